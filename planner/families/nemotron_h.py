"""Nemotron-H and Nemotron 3: Mamba-2, attention, MLP and expert layers in the order of a pattern, one mixer a layer.

Sources: nemotron_h.py and nemotron_h_mtp.py of vLLM 0.33.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.config_view import ConfigView
from planner.facts import PlanError
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import (
    AttentionShape,
    attention,
    attention_shape,
    build_layers,
    column_linear,
    final_norm,
    kv_cache,
    norm,
    plain_mlp,
    replicated_linear,
    vocabulary,
)
from planner.families.mamba_layers import Mamba2Shape
from planner.inventory import Cache, Experts, Layer, Module, Part, Role, Tensor

_PATTERN_OF_TYPE = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """One Nemotron-H config."""

    view: ConfigView

    @property
    def hidden_size(self) -> int:
        return self.view.integer("hidden_size")

    def pattern(self, *, is_draft: bool = False) -> str:
        """One letter a layer: M Mamba-2, * attention, - MLP, E experts."""
        text = self.view.text("mtp_hybrid_override_pattern" if is_draft else "hybrid_override_pattern")
        if text is None:
            listed = self.view.items("mtp_layers_block_type" if is_draft else "layers_block_type") or []
            text = "".join(_PATTERN_OF_TYPE.get(kind, "?") for kind in listed)
        if (not text and not is_draft) or not set(text) <= set("M*-E"):
            raise PlanError(
                "hybrid_override_pattern",
                text,
                "config.json: hybrid_override_pattern must give one of M, *, - or E for each layer.",
            )
        return text

    def mamba(self) -> Mamba2Shape:
        heads, size = self.view.integer("mamba_num_heads"), self.view.integer("mamba_head_dim")
        return Mamba2Shape(
            hidden_size=self.hidden_size,
            num_heads=heads,
            head_size=size,
            state_size=self.view.integer("ssm_state_size"),
            num_groups=self.view.integer("n_groups"),
            conv_kernel=self.view.integer("conv_kernel", default=4),
            intermediate_size=heads * size,
            has_conv_bias=self.view.flag("use_conv_bias", True),
            has_bias=self.view.flag("use_bias", False),
        )

    def attention_shape(self) -> AttentionShape:
        size = self.view.optional_integer("head_dim", "attention_head_dim")
        return attention_shape(self.view, **({"head_size": size} if size else {}))

    def attention_cache(self) -> Cache:
        return kv_cache(self.attention_shape(), self.view.optional_integer("sliding_window"))

    def attention(self) -> tuple[Module, ...]:
        return attention(self.attention_shape(), prefix="mixer")

    def mlp(self, name: str, intermediate_size: int, role: Role = "mlp") -> tuple[Module, ...]:
        bias = self.view.flag("mlp_bias", False)
        up, down = f"{name}.up_proj", f"{name}.down_proj"
        return plain_mlp(self.hidden_size, intermediate_size, up=up, down=down, has_bias=bias, role=role)

    def dense_size(self, index: int) -> int:
        """The width of the MLP in layer `index`; a list holds one per MLP layer."""
        sizes = self.view.values.get("intermediate_size")
        if not isinstance(sizes, list):
            return self.view.integer("intermediate_size")
        place = 0 if len(sizes) == 1 else self.pattern()[: index + 1].count("-") - 1
        if not 0 <= place < len(sizes):
            raise PlanError(
                "intermediate_size", sizes, "config.json: intermediate_size must list one width for each MLP layer."
            )
        return ConfigView({"intermediate_size": sizes[place]}).integer("intermediate_size")

    def experts(self) -> tuple[Module, ...]:
        count = self.view.integer("n_routed_experts")
        latent = self.view.optional_integer("moe_latent_size")
        routed = Experts(
            name="mixer.experts",
            num_experts=count,
            hidden_size=latent or self.hidden_size,
            intermediate_size=self.view.integer("moe_intermediate_size"),
            top_k=self.view.integer("num_experts_per_tok"),
            prefixes=("mixer.experts",),
            is_gated=False,
        )
        return (
            replace(replicated_linear("mixer.gate", self.hidden_size, count, role="router"), quantizable=False),
            Tensor(name="mixer.gate.e_score_correction_bias", role="router", shape=(count,), dtype="float32"),
            *self._shared_experts(),
            *self._latent_projections(latent),
            routed,
        )

    def _shared_experts(self) -> tuple[Module, ...]:
        count = self.view.integer("n_shared_experts", default=0, least=0)
        if not count:
            return ()
        size = self.view.integer("moe_shared_expert_intermediate_size") * count
        return self.mlp("mixer.shared_experts", size, "shared_experts")

    def _latent_projections(self, latent: int | None) -> tuple[Module, ...]:
        if not latent:
            return ()
        bias = self.view.flag("mlp_bias", False)
        return (
            replicated_linear("mixer.fc1_latent_proj", self.hidden_size, latent, role="mlp", has_bias=bias),
            replicated_linear("mixer.fc2_latent_proj", latent, self.hidden_size, role="mlp", has_bias=bias),
        )

    def modules(self, letter: str, index: int) -> tuple[Module, ...]:
        return (*self._mixer(letter, index), *norm("norm", self.hidden_size))

    def _mixer(self, letter: str, index: int) -> tuple[Module, ...]:
        if letter == "M":
            return self.mamba().modules("mixer")
        if letter == "*":
            return self.attention()
        return self.experts() if letter == "E" else self.mlp("mixer", self.dense_size(index))

    def caches(self, letter: str) -> tuple[Cache, ...]:
        if letter == "M":
            return (self.mamba().cache(),)
        return (self.attention_cache(),) if letter == "*" else ()

    def layers(self) -> tuple[Layer, ...]:
        pattern = self.pattern()
        return build_layers(
            len(pattern),
            "backbone.layers",
            lambda index: (self.modules(pattern[index], index), self.caches(pattern[index])),
        )

    def draft_layers(self) -> tuple[Layer, ...]:
        """The multi-token prediction layers: a projection of two hidden states before the first, a norm after the last."""
        if not self.view.integer("num_nextn_predict_layers", default=0, least=0):
            return ()
        pattern = self.pattern(is_draft=True)
        return build_layers(
            len(pattern),
            "mtp.layers",
            lambda index: (
                (*self.modules(pattern[index], index), *self._draft_ends(index, len(pattern))),
                self.caches(pattern[index]),
            ),
        )

    def _draft_ends(self, index: int, count: int) -> tuple[Module, ...]:
        size = self.hidden_size
        ends: tuple[Module, ...] = ()
        if index == 0:
            projection = column_linear("eh_proj", 2 * size, size, role="draft")
            ends = (*norm("enorm", size), *norm("hnorm", size), projection)
        return (*ends, *norm("final_layernorm", size)) if index == count - 1 else ends


def build_nemotron_h(given: FamilyInput) -> Built:
    """A Nemotron-H language model; pipeline stages all hold both tables."""
    reader = _Reader(view=given.text)
    parts: tuple[Part, ...] = (
        *vocabulary(
            given.text,
            ties=False,
            embedding="backbone.embeddings",
            embedding_on_every_stage=True,
            head_on_every_stage=True,
        ).parts(),
        final_norm(reader.hidden_size, name="backbone.norm_f", stage="every"),
    )
    return Built(
        layers=reader.layers(),
        parts=parts,
        is_hybrid=True,
        is_moe="E" in reader.pattern(),
        draft_layers=reader.draft_layers(),
    )


BUILDERS: dict[str, Builder] = {"NemotronHForCausalLM": build_nemotron_h}
