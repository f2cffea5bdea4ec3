"""The buffers that `--enable-lora` allocates beside linears, experts and tables: room for `max_loras` adapters of `max_lora_rank`.

Towers and drafters get none. Read in vllm/lora of 0.11, 0.14 and 0.33; "Model loading took" includes the buffers.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.inventory import Embedding, Experts, Linear, ModelFacts
from planner.request import EngineFlags
from planner.sharding import Split, local_experts, local_linear
from planner.versions import Version

_FIRST_WITH_EXPERTS = Version(0, 12, 0)  # lora/layers/fused_moe.py: not in 0.11, in 0.14
_LAST_EXTRA_VOCABULARY = Version(0, 12, 0)  # lora_extra_vocab_size: in 0.11, not in 0.14
_EXTRA_TOKENS = 256  # its default, a token table's rows for each adapter
# Classes whose `embedding_modules` name their tables, and since when (models/*.py); the others' get no adapter.
_TABLES_SINCE = dict.fromkeys(
    (
        "ApertusForCausalLM",
        "BambaForCausalLM",
        "CohereForCausalLM",
        "Cohere2ForCausalLM",
        "DeciLMForCausalLM",
        "ExaoneForCausalLM",
        "Exaone4ForCausalLM",
        "ExaoneMoEForCausalLM",
        "FalconH1ForCausalLM",
        "GraniteForCausalLM",
        "GraniteMoeForCausalLM",
        "GraniteMoeHybridForCausalLM",
        "GraniteMoeSharedForCausalLM",
        "HyperCLOVAXForCausalLM",
        "JambaForCausalLM",
        "Lfm2ForCausalLM",
        "Lfm2MoeForCausalLM",
        "LlamaForCausalLM",
        "MiniCPMForCausalLM",
        "MistralForCausalLM",
        "MixtralForCausalLM",
        "NemotronForCausalLM",
        "NemotronHForCausalLM",
        "PhiMoEForCausalLM",
        "SolarForCausalLM",
        # Multimodal models around one of them.
        "LlavaForConditionalGeneration",
        "LlavaNextForConditionalGeneration",
        "Mistral3ForConditionalGeneration",
        "PixtralForConditionalGeneration",
    ),
    Version(0, 6, 0),
) | {
    "Qwen3ForCausalLM": Version(0, 15, 0),  # not in 0.14, in 0.19
    "Qwen3MoeForCausalLM": Version(0, 15, 0),
    "Qwen3_5ForCausalLM": Version(0, 28, 0),  # not in 0.27.1, in 0.31
    "Qwen3_5MoeForCausalLM": Version(0, 28, 0),
    "Qwen3_5ForConditionalGeneration": Version(0, 28, 0),
    "Qwen3_5MoeForConditionalGeneration": Version(0, 28, 0),
}
# Experts whose gate and up projections share one adapter (`is_3d_moe_weight`).
_ONE_PAIR_FOR_GATE_AND_UP = frozenset(
    {
        "GptOssForCausalLM",
        "Qwen3VLMoeForConditionalGeneration",
        "Qwen3OmniMoeForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
    }
)
_NEVER = Version(999, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraShape:
    """How many adapters, of what rank, whether the whole ones of their A and B matrices are divided too, and of what."""

    num_adapters: int
    rank: int
    is_fully_sharded: bool
    has_experts: bool = True
    has_tables: bool = False
    is_pair_shared: bool = False  # one pair for an expert's gate and up
    extra_tokens: int = 0  # rows that an adapter may add to the vocabulary
    is_tied: bool = False

    @classmethod
    def of(cls, flags: EngineFlags, model: ModelFacts, version: Version) -> LoraShape | None:
        """The shape the flags ask for, or None without LoRA."""
        if not flags.enable_lora:
            return None
        return cls(
            num_adapters=flags.max_loras,
            rank=flags.max_lora_rank,
            is_fully_sharded=flags.fully_sharded_loras,
            has_experts=version >= _FIRST_WITH_EXPERTS,
            has_tables=version >= _TABLES_SINCE.get(model.architecture, _NEVER),
            is_pair_shared=model.architecture in _ONE_PAIR_FOR_GATE_AND_UP,
            extra_tokens=_EXTRA_TOKENS if version < _LAST_EXTRA_VOCABULARY else 0,
            is_tied=model.ties_embeddings,
        )


def lora_tensors(
    module: Linear | Experts | Embedding, lora: LoraShape, split: Split, dtype_bytes: int
) -> tuple[int, ...]:
    """The bytes of each A and B buffer of a module on a rank: adapters x (rank x in, out x rank), one pair per projection.

    Column-parallel: A whole, B divided; row-parallel: A divided, B whole; fully sharded: the whole one divided as well
    (vLLM lora/layers/base_linear.py, column_parallel_linear.py, row_parallel_linear.py, fused_moe.py).
    """
    unit = lora.num_adapters * dtype_bytes
    match module:
        case Experts():
            return _expert_tensors(module, lora, split, unit) if lora.has_experts else ()
        case Embedding():
            return _table_tensors(module, lora, unit) if lora.has_tables else ()
        case Linear():
            return _linear_tensors(module, lora, split, unit)


def _linear_tensors(module: Linear, lora: LoraShape, split: Split, unit: int) -> tuple[int, ...]:
    tp = split.tp if lora.is_fully_sharded else 1
    local = local_linear(module, split.tp_of(module))
    size_in = local.in_features * lora.rank * unit
    if module.parallel == "row":
        return (size_in, local.rows * lora.rank * unit // tp)
    a_bytes = size_in // tp if module.parallel in {"column", "qkv"} else size_in
    return tuple(size for rows in local.out_features for size in (a_bytes, rows * lora.rank * unit))


def _expert_tensors(module: Experts, lora: LoraShape, split: Split, unit: int) -> tuple[int, ...]:
    tp = split.tp if lora.is_fully_sharded else 1
    shape = local_experts(module, split)
    per_rank = unit * lora.rank * shape.num_experts
    into, out = per_rank * shape.hidden_size, per_rank * shape.intermediate_size
    pair = (into // tp, out) * (2 if shape.is_gated else 1)
    if shape.is_gated and lora.is_pair_shared:
        pair = (into // tp, 2 * out)
    return (*pair, out, into // tp)


def _table_tensors(module: Embedding, lora: LoraShape, unit: int) -> tuple[int, ...]:
    """A table's buffers, whole on every rank (vocab_parallel_embedding.py; a head's by logits_processor.py)."""
    rows = module.num_rows + lora.extra_tokens
    pair = (rows * lora.rank * unit, module.dim * lora.rank * unit)
    extra = (lora.extra_tokens * module.dim * unit,) if lora.extra_tokens else ()
    uses = 2 if lora.is_tied and module.role == "embedding" else 1  # a tied head is wrapped beside the embedding
    return (*pair, *extra) * uses
