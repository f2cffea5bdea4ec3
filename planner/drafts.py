"""What speculative decoding builds beside the target on the last pipeline stage: the drafter's modules and caches.

Read in v1/spec_decode (0.8 to 0.33) and v1/worker/gpu/spec_decode (the V2 runner): embedding and head are the target's
unless the draft has its own; "Model loading took" includes the drafter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, TypeGuard

from planner.config_view import ConfigView
from planner.defaults import Resolved
from planner.draft_models import WITHOUT_MODEL
from planner.facts import Finding, PlanError
from planner.families.dflash import num_hidden_states_read
from planner.families.draft_layers import NUM_AUX_HIDDEN_STATES, eagle_draft, num_aux_hidden_states
from planner.inventory import Buffer, Embedding, Layer, ModelFacts, Module, Part, Tensor
from planner.request import SpeculativeConfig
from planner.versions import Version

_FIRST_SHARED_MTP_HEAD = Version(0, 19, 0)  # not in 0.14, in 0.19: each MTP layer's head is the target's
_FIRST_SHARED_INDEX_TABLE = Version(0, 20, 0)  # not in 0.19, in 0.23
_FIRST_RESIZED_ROPE = Version(0, 33, 0)  # a draft's rotary cache covers the target's max_model_len
_FIRST_DRAFT_MODEL_V1 = Version(0, 15, 0)  # "not supported yet" in 0.14, there in 0.19
_FIRST_WITHOUT_MEDUSA = Version(0, 33, 0)
_ASSUMED_DRAFT_VOCABULARY = 32_000  # tokens; what published EAGLE-3 drafts keep
_UNKNOWN_SHARE = 10  # a draft that cannot be sized may hold up to a tenth of the target's bytes
_EAGLE = frozenset({"eagle", "eagle3"})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Speculation:
    """A drafter. `facts` holds its layers and parts alone, None where nothing is on the card or nothing is known.

    `low_share`, `high_share`: how far the drafter's bytes may be below and above, where its shape is assumed.
    """

    facts: ModelFacts | None = None
    is_targets_own: bool = False  # layers of the target's checkpoint, in the target's formats
    is_whole: bool = False  # not divided by tensor parallelism: V0 with draft_tensor_parallel_size 1
    is_unsized: bool = False
    num_index_tables: int = 0  # tables of chosen keys beside the target's own
    num_aux_hidden_states: int = 0  # of the target, kept for the draft while it runs
    low_share: float = 0.0
    high_share: float = 0.0
    findings: tuple[Finding, ...] = ()

    def unsized_bytes(self, target_bytes: int) -> int:
        """The bytes that a drafter of unknown shape may add."""
        return target_bytes // _UNKNOWN_SHARE if self.is_unsized else 0


NONE = Speculation()


def speculation(model: ModelFacts, resolved: Resolved) -> Speculation:
    """The drafter that vLLM builds beside `model` under the resolved flags; without one, nothing."""
    config = resolved.flags.speculative_config
    if config is None:
        return NONE
    found = _speculation(model, config, resolved.version, resolved.runner, _Cards(tp=resolved.tp, pp=resolved.pp))
    if found.facts is None or found.is_targets_own or config.method == "draft_model":
        return found
    is_resized = resolved.version >= _FIRST_RESIZED_ROPE and _shortest_rope(found.facts) < resolved.max_model_len
    return _with_longer_rope(found, resolved.max_model_len) if is_resized else found


class _Cards(NamedTuple):
    tp: int
    pp: int


@lru_cache(maxsize=64)
def _speculation(
    model: ModelFacts, config: SpeculativeConfig, version: Version, runner: str, cards: _Cards
) -> Speculation:
    found = _found(model, config)
    if found.facts is not None:
        tables = len(model.draft_layers) if found.is_targets_own and version < _FIRST_SHARED_INDEX_TABLE else 0
        found = replace(
            found,
            facts=_with_tables(model, found.facts, config, version, is_pipelined=cards.pp > 1),
            is_whole=runner == "v0" and config.draft_tensor_parallel_size == 1,
            num_index_tables=tables,
        )
    return replace(found, findings=(*found.findings, *_refusals(model, config, version, runner, cards.tp)))


def _found(model: ModelFacts, config: SpeculativeConfig) -> Speculation:
    method = config.method
    if method in WITHOUT_MODEL:
        return NONE
    if method.endswith("mtp"):
        return _own_layers(model.draft or model, method, is_targets_own=model.draft is None)
    if model.draft is not None:
        return Speculation(facts=model.draft, num_aux_hidden_states=_aux_states(model.draft, method))
    named = f"the draft model {config.model!r}" if config.model else "the draft model"
    if method in _EAGLE and not model.is_mla:
        return _assumed_eagle(model, method, named)
    return Speculation(is_unsized=True, findings=(_not_sized(named),))


def _not_sized(named: str) -> Finding:
    text = (
        f"The config of {named} is not known, so neither its weights nor its KV cache are counted; the weights' band"
        " is a tenth wider. Name a catalogue model, or on the command line a folder with its config.json."
    )
    return Finding(code="draft-not-sized", severity="warning", text=text, field="speculative_config")


def _own_layers(model: ModelFacts, method: str, *, is_targets_own: bool) -> Speculation:
    if not model.draft_layers:
        text = (
            f"{model.architecture} has no multi-token-prediction layers that can be sized from its config: {method} adds"
            " nothing here, and the weights' band is a tenth wider."
        )
        finding = Finding(code="draft-not-sized", severity="warning", text=text, field="speculative_config")
        return Speculation(is_unsized=True, findings=(finding,))
    facts = replace(model, layers=model.draft_layers, parts=model.draft_parts, draft_layers=(), draft_parts=())
    return Speculation(facts=facts, is_targets_own=is_targets_own)


def _aux_states(draft: ModelFacts, method: str) -> int:
    text = ConfigView(draft.text_config)
    if method == "eagle3":
        return num_aux_hidden_states(text)
    return num_hidden_states_read(text) if method == "dflash" else 0


def _assumed_eagle(model: ModelFacts, method: str, named: str) -> Speculation:
    """One layer of Llama shape with the target's sizes."""
    values = {**model.text_config, "num_hidden_layers": 1, "model_type": "llama"}
    values.setdefault("intermediate_size", model.intermediate_size)
    if method == "eagle3":
        values["draft_vocab_size"] = min(_ASSUMED_DRAFT_VOCABULARY, model.vocab_size)
    try:
        layers = eagle_draft(
            ConfigView(values),
            method=method,
            target_hidden_size=model.hidden_size,
            target_vocab_size=model.vocab_size,
        )
    except PlanError:
        return Speculation(is_unsized=True, findings=(_not_sized(named),))
    text = (
        f"The config of {named} is not known: one decoder layer of the target's sizes is assumed"
        + (f" with a head of {values['draft_vocab_size']:,} tokens" if method == "eagle3" else "")
        + "; its weights may be half as much or twice as much."
    )
    return Speculation(
        facts=replace(model, layers=layers, parts=(), quantization=None, draft_layers=(), draft_parts=()),
        num_aux_hidden_states=NUM_AUX_HIDDEN_STATES if method == "eagle3" else 0,
        low_share=0.5,
        high_share=1.0,
        findings=(Finding(code="draft-not-sized", severity="warning", text=text, field="speculative_config"),),
    )


# -- tables -------------------------------------------------------------------------------------------------------------


def _with_tables(
    model: ModelFacts, facts: ModelFacts, config: SpeculativeConfig, version: Version, *, is_pipelined: bool
) -> ModelFacts:
    """The draft with those tables that vLLM does not share: an own embedding on a later stage, old MTP heads."""
    if config.method in {"draft_model", "medusa"}:
        return facts
    tables: list[Module] = []
    if is_pipelined:
        tables.append(Embedding(name="embed_tokens", role="draft", num_rows=facts.vocab_size, dim=facts.hidden_size))
    tables += _own_head(facts)
    if config.method.endswith("mtp") and version < _FIRST_SHARED_MTP_HEAD:
        count = sum(_has_own_head(layer) for layer in facts.layers)
        head = Embedding(name="shared_head.head", role="draft", num_rows=model.vocab_size, dim=model.hidden_size)
        tables += [replace(head, repeat=count)] if count else []
    if not tables:
        return facts
    return replace(facts, parts=(*facts.parts, Part(prefix="", stage="last", modules=tuple(tables))))


def _has_own_head(layer: Layer) -> bool:
    return any(isinstance(module, Tensor) and module.name == "shared_head.norm" for module in layer.modules)


def _own_head(facts: ModelFacts) -> Iterator[Embedding]:
    """The head that the draft's checkpoint is seen to hold over the whole vocabulary; vLLM shares only an equal one."""
    headers = facts.documents.tensors if facts.documents else None
    has_head = any(tensor.name == "lm_head.weight" for tensor in headers or ())
    groups = (*(layer.modules for layer in facts.layers), *(part.modules for part in facts.parts))
    is_built = any(isinstance(module, Embedding) and module.name == "lm_head" for group in groups for module in group)
    if has_head and not is_built and facts.draft_layers == () and facts.architecture.startswith(("Eagle3", "Llama")):
        yield Embedding(name="lm_head", role="draft", num_rows=facts.vocab_size, dim=facts.hidden_size)


def _is_rope(module: Module) -> TypeGuard[Buffer]:
    return isinstance(module, Buffer) and module.name == "rotary_cache"


@lru_cache(maxsize=64)
def _shortest_rope(facts: ModelFacts) -> int:
    """The rows of the shortest rotary cache in the draft's layers."""
    tuples = {id(layer.modules): layer.modules for layer in facts.layers}
    return min(
        (module.shape[0] for modules in tuples.values() for module in modules if _is_rope(module)), default=2**40
    )


@lru_cache(maxsize=64)
def _with_longer_rope(found: Speculation, max_model_len: int) -> Speculation:
    def longer(module: Module) -> Module:
        if not _is_rope(module) or module.shape[0] >= max_model_len:
            return module
        return replace(module, shape=(max_model_len, *module.shape[1:]))

    facts = found.facts
    if facts is None:
        return found
    made: dict[int, tuple[Module, ...]] = {}
    layers = []
    for layer in facts.layers:
        if id(layer.modules) not in made:
            made[id(layer.modules)] = tuple(map(longer, layer.modules))
        layers.append(replace(layer, modules=made[id(layer.modules)]))
    return replace(found, facts=replace(facts, layers=tuple(layers)))


# -- refusals -----------------------------------------------------------------------------------------------------------


def _refusals(
    model: ModelFacts, config: SpeculativeConfig, version: Version, runner: str, tp: int
) -> Iterator[Finding]:
    draft_tp = config.draft_tensor_parallel_size
    if draft_tp not in (None, 1, tp):
        yield _refusal(f"draft_tensor_parallel_size {draft_tp} must be 1 or tensor_parallel_size ({tp}).")
    if config.method == "medusa" and version >= _FIRST_WITHOUT_MEDUSA:
        yield _refusal("vLLM 0.33 has no Medusa drafts any more.")
    if config.method != "draft_model" or runner == "v0":
        return
    if version < _FIRST_DRAFT_MODEL_V1:
        yield _refusal("The V1 engine before 0.15 does not support speculative decoding with a draft model.")
    if draft_tp not in (None, tp) and runner == "v1":
        text = f"'draft_tensor_parallel_size' and 'tensor_parallel_size' must be the same. Got {draft_tp} and {tp}."
        yield _refusal(f"vLLM's V1 runner says: Currently, {text}")
    if model.draft is not None and model.draft.vocab_size != model.vocab_size:
        sizes = f"{model.vocab_size:,} and {model.draft.vocab_size:,}"
        yield _refusal(f"Target and draft model should have the same vocabulary size; they have {sizes}.")


def _refusal(text: str) -> Finding:
    return Finding(code="draft-refused", severity="refusal", text=text, field="speculative_config")


# -- while it runs ------------------------------------------------------------------------------------------------------


def buffer_bytes(found: Speculation, resolved: Resolved, value_bytes: int) -> int:
    """The drafter's buffers of `max_num_batched_tokens` hidden vectors, allocated with the runner and kept.

    V1 keeps hidden states and input embeddings, V2 the hidden states of a drafter that reads the target's.
    """
    config = resolved.flags.speculative_config
    if config is None or found.facts is None or resolved.runner == "v0" or config.method == "medusa":
        return 0
    copies = 2 if resolved.runner == "v1" else int(config.method != "draft_model")
    return copies * resolved.max_num_batched_tokens * found.facts.hidden_size * value_bytes


def captured_layers(found: Speculation, resolved: Resolved) -> tuple[Layer, ...]:
    """The drafter's layers that are captured in CUDA graphs: all but those of a draft model on the V2 runner."""
    config = resolved.flags.speculative_config
    if config is None or found.facts is None or (config.method == "draft_model" and resolved.runner == "v2"):
        return ()
    return found.facts.layers
