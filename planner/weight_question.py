"""What a rank's weights depend on, as one value: the split, the kernels of the card, drafter, LoRA, offload, buffers."""

from __future__ import annotations

from dataclasses import dataclass

from planner import drafts
from planner.defaults import Resolved
from planner.drafts import Speculation
from planner.inventory import ModelFacts
from planner.load_buffers import has_batched_buffers, index_topk, latent_workspace_bytes
from planner.lora import LoraShape
from planner.quant_formats import DTYPE_BYTES
from planner.quantization import KernelChoice, asks_card
from planner.sharding import Split
from planner.towers import TowerRule, tower_rule
from planner.units import GIB
from planner.versions import Version

_FIRST_TOWER_OFFLOAD = Version(0, 28, 0)  # not in 0.27.1, in 0.31


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightQuestion:
    """Everything that a rank's weights depend on, as one hashable value."""

    split: Split
    pp: int
    pp_rank: int
    dtype: str
    method: str | None
    kernels: KernelChoice
    has_custom_ops: bool  # eager mode runs vLLM's own operators; under torch.compile they are off
    lora: LoraShape | None
    towers: TowerRule
    draft: Speculation  # what speculative decoding builds on this rank
    offload_bytes: int
    offloads_towers: bool  # before the layers: they are built first
    batched_tokens: int  # max_num_batched_tokens, for models that keep a tensor per batched token; else 0
    index_bytes: int  # the table of chosen keys that sparse attention allocates with the model
    workspace_bytes: int  # of latent attention kernels, where the release allocates it when it looks for a backend


def weight_question(model: ModelFacts, resolved: Resolved, pp_rank: int) -> WeightQuestion:
    """The question for pipeline stage `pp_rank`; equal ones, of whatever cards, have one answer."""
    flags, draft = resolved.flags, drafts.NONE
    if pp_rank == resolved.pp - 1:
        draft = drafts.speculation(model, resolved)
    # Cards whose kernels store the same bytes share one answer.
    is_asked = asks_card(model.quantization) or draft.facts is not None
    return WeightQuestion(
        # Without expert parallelism the data-parallel ranks share each expert's width (FusedMoEParallelConfig.make).
        split=Split(tp=resolved.tp, moe_tp=resolved.tp * resolved.dp, ep=resolved.ep),
        pp=resolved.pp,
        pp_rank=pp_rank,
        dtype=resolved.dtype,
        method=resolved.quantization if model.quantization is None else None,
        kernels=KernelChoice(
            capability=resolved.gpu.capability if is_asked else None,
            vendor=resolved.gpu.vendor if is_asked else "any",
            moe_backend=flags.moe_backend,
            vllm_minor=resolved.version.minor,
        ),
        has_custom_ops=flags.enforce_eager and resolved.gpu.capability is not None,
        lora=LoraShape.of(flags, model, resolved.version),
        towers=tower_rule(model, resolved),
        draft=draft,
        offload_bytes=int(flags.cpu_offload_gb * GIB),
        offloads_towers=resolved.version >= _FIRST_TOWER_OFFLOAD,
        batched_tokens=resolved.max_num_batched_tokens if has_batched_buffers(model) else 0,
        index_bytes=resolved.max_num_batched_tokens * index_topk(model) * DTYPE_BYTES["int32"],
        workspace_bytes=latent_workspace_bytes(model, resolved),
    )
