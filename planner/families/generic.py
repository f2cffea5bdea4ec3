"""A model of an architecture no family knows: what its config's usual keys say, with a warning that it was assumed."""

from __future__ import annotations

from planner.facts import Finding, PlanError
from planner.families import Built, FamilyInput
from planner.families.dense import llama_like

_NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


def build(family: FamilyInput) -> tuple[Built, tuple[Finding, ...]]:
    """A Llama-like decoder of the config's sizes; refuses what names experts, states or a latent cache it cannot place."""
    text = family.text
    missing = [key for key in _NEEDED if not text.has(key)]
    odd = next((key for key in (*_EXPERTS, "kv_lora_rank", "ssm_state_size", "state_size") if text.has(key)), None)
    if missing or odd:
        why = f"its config has {odd}" if odd else f"its config has no {missing[0]}"
        raise PlanError(
            "architectures",
            family.architecture,
            f"{family.architecture} is not an architecture this planner knows, and {why}, so its size cannot be assumed; "
            "give a model folder with safetensors headers, or a model of a known architecture.",
        )
    built = llama_like(family)
    finding = Finding(
        code="architecture-assumed",
        severity="warning",
        text=f"{family.architecture} is not known; it is sized as a Llama-like decoder from the config's usual keys.",
        field="architectures",
    )
    return built, (finding,)
