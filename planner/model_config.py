"""A model's documents in, `ModelFacts` out: which config part is the language model, its dtype, length and quantisation.

What the model is built of is left to `families`; headers alone are left to `headers`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.config_defaults import architecture_of, defaulted_sizes, with_defaults
from planner.config_view import ConfigView
from planner.facts import Finding, PlanError
from planner.families import Built, FamilyInput, builder_for, from_headers, generic, without_head
from planner.families.rope import rope_parameters
from planner.interning import share_equal_parts
from planner.inventory import Experts, Linear, ModelDocuments, ModelFacts, QuantFacts

LARGEST_CONFIG_CHARS = 20 * 2**20  # the longest real one (per-layer quantisation lists) is under 5 MiB
MOST_LAYERS = 10_000
_TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
_LENGTH_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
_FALLBACK_LENGTH = 2048  # tokens; vLLM config/model.py when no key tells
_UNSCALED_ROPES = frozenset({"su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling"})
_DTYPES = {
    "float32": "float32",
    "float": "float32",
    "float16": "float16",
    "half": "float16",
    "bfloat16": "bfloat16",
    "float64": "float32",
}
_HEADER_DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float32"}


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """config.json as read: `root` and `text` with class defaults under them, `raw` as written."""

    raw: Mapping[str, Any]  # parsed JSON
    root: ConfigView
    text: ConfigView
    findings: tuple[Finding, ...]


def read_model(documents: ModelDocuments, *, quantization: str | None = None, vllm_minor: int = 33) -> ModelFacts:
    """All that planning needs to know of the model, from its config.json and, where given, its checkpoint headers."""
    read = _read_config(documents)
    architecture = _architecture(read)
    facts, quant_findings = _quantization(read, documents, vllm_minor)
    family = FamilyInput(
        architecture=architecture,
        root=read.root,
        text=read.text,
        is_quantized=facts is not None or quantization is not None,
        vllm_minor=vllm_minor,
    )
    built, family_findings = _build(family, documents)
    _check_heads(read.text, built)
    dtype, dtype_findings = _dtype(read, documents)
    length, length_findings = _max_position(read, documents)
    text = read.text
    return ModelFacts(
        model_id=documents.model_id,
        architecture=architecture,
        model_type=str(read.root.values.get("model_type") or ""),
        dtype=dtype,
        hidden_size=text.integer("hidden_size", "n_embd", "d_model"),
        intermediate_size=built.intermediate_size or _widest(built, text),
        vocab_size=text.integer("vocab_size", "padded_vocab_size"),
        num_attention_heads=text.integer("num_attention_heads", "n_head", "n_heads", default=1),
        max_position=length,
        layers=share_equal_parts(built.layers),
        parts=built.parts,
        quantization=facts,
        is_mla=built.is_mla,
        is_hybrid=built.is_hybrid,
        is_multimodal=built.is_multimodal,
        is_encoder_decoder=built.is_encoder_decoder,
        is_moe=built.is_moe,
        has_mtp=bool(built.draft_layers),
        ties_embeddings=built.ties_embeddings,
        encoders=built.encoders,
        draft_layers=built.draft_layers,
        draft_parts=built.draft_parts,
        max_encoder_tokens=built.max_encoder_tokens,
        mla_nope_head_dim=built.mla_nope_head_dim,
        mla_v_head_dim=built.mla_v_head_dim,
        kv_lora_rank=built.kv_lora_rank,
        qk_rope_head_dim=built.qk_rope_head_dim,
        config=dict(read.raw),
        text_config=dict(text.values),
        documents=documents,
        findings=(
            *read.findings,
            *built.findings,
            *family_findings,
            *quant_findings,
            *dtype_findings,
            *length_findings,
        ),
    )


def _read_config(documents: ModelDocuments) -> _Read:
    raw = _parse_object(documents.config_json, "config.json")
    merged = with_defaults(raw)
    root = ConfigView(merged)
    findings = []
    if not documents.is_config_complete:
        findings.append(
            Finding(
                code="config-incomplete",
                severity="warning",
                text="The config.json at hand is a reduced copy; what it leaves out is taken from the engine's config class.",
            )
        )
    name, text = _text_part(root)
    if name:
        findings.extend(_defaulted(raw, name, text))
    return _Read(raw, root, text, tuple(findings))


def _parse_object(text: str, file: str) -> dict[str, Any]:
    if len(text) > LARGEST_CONFIG_CHARS:
        raise PlanError(file, len(text), f"{file} has {len(text):,} characters; a model's is far under 20 million.")
    try:
        value = json.loads(text)
    except RecursionError:
        raise PlanError(file, None, f"{file} is nested too deeply to be a model's; check the file.") from None
    except ValueError as error:
        reason = str(error).split(":", maxsplit=1)[0]
        raise PlanError(file, None, f"{file} is not valid JSON ({reason}); check that the file is whole.") from None
    if not isinstance(value, dict):
        raise PlanError(file, type(value).__name__, f"{file} must hold one JSON object, as a model repository's does.")
    return value


def _text_part(root: ConfigView) -> tuple[str, ConfigView]:
    """The language model's part and its path: the root itself for a text model (vLLM: get_hf_text_config)."""
    for name in _TEXT_PARTS:
        part = root.values.get(name)
        if not isinstance(part, dict):
            continue
        view = root.section(name)
        if view is None:
            continue
        inner_name, inner = _text_part(view)
        if inner_name:
            return f"{name}.{inner_name}", inner
        if view.has("num_hidden_layers", "num_attention_heads", "n_layer", "num_layers"):
            return name, view
    return "", root


def _defaulted(raw: Mapping[str, Any], path: str, text: ConfigView) -> list[Finding]:
    part: object = raw
    for name in path.split("."):
        part = part.get(name, {}) if isinstance(part, dict) else {}
    model_type = str(text.values.get("model_type") or "")
    missing = defaulted_sizes(part, model_type) if isinstance(part, dict) else ()
    if not missing:
        return []
    listed = ", ".join(f"{key} {text.values.get(key)}" for key in missing)
    sentence = f"config.json's {path} leaves out {', '.join(missing)}; the class {model_type} gives {listed}."
    return [Finding(code="size-from-class", severity="info", text=sentence, field=f"{path}.{missing[0]}")]


def _architecture(read: _Read) -> str:
    named = read.root.items("architectures") or []
    if named and isinstance(named[0], str):
        known = next((name for name in named if isinstance(name, str) and builder_for(name)), named[0])
        return str(known)
    model_type = read.root.values.get("model_type")
    found = architecture_of(model_type) if isinstance(model_type, str) else None
    if found is None:
        raise PlanError(
            "architectures",
            None,
            "config.json names no architectures and no model_type that is known; add the line from the model's repository.",
        )
    return found


def _build(family: FamilyInput, documents: ModelDocuments) -> tuple[Built, tuple[Finding, ...]]:
    _check_counts(family.root.values, "")
    builder = builder_for(family.architecture)
    if builder is not None:
        built = builder(family)
        return (without_head(built) if documents.is_sentence_transformer else built), ()
    if documents.tensors:
        return from_headers.build(family, documents.tensors)
    return generic.build(family)


_COUNTED = ("layers", "depth", "num_inputs", "num_stages")  # what the names of counts that builders loop over end in


def _check_counts(section: Mapping[str, Any], path: str) -> None:
    """Refuse a count of layers that no model has, before a builder makes that many."""
    for key, value in section.items():
        if isinstance(value, dict):
            _check_counts(value, f"{path}{key}.")
        elif isinstance(value, int | float) and key.endswith(_COUNTED) and value > MOST_LAYERS:
            field = f"{path}{key}"
            raise PlanError(
                field, value, f"config.json: {field} {value:.6g} is more than any model has; check the file."
            )


def _check_heads(text: ConfigView, built: Built) -> None:
    """Refuse more heads than the model is wide: a head of no size keeps no cache and fits nothing."""
    caches = (cache for layer in built.layers for cache in layer.caches if cache.num_kv_heads)
    if any(cache.head_size == 0 for cache in caches):
        heads = text.values.get("num_attention_heads")
        sentence = f"config.json: {text.path}num_attention_heads is {heads!r:.40}, more than hidden_size; correct one of the two."
        raise PlanError(f"{text.path}num_attention_heads", heads, sentence)


def _widest(built: Built, text: ConfigView) -> int:
    widths = [
        max(module.out_features)
        for layer in built.layers[-1:] + built.layers[:1]
        for module in layer.modules
        if isinstance(module, Linear) and module.role == "mlp" and module.parallel == "column"
    ]
    experts = [
        module.intermediate_size for layer in built.layers for module in layer.modules if isinstance(module, Experts)
    ]
    return max(widths or experts or [text.integer("intermediate_size", default=1)])


def _dtype(read: _Read, documents: ModelDocuments) -> tuple[str, tuple[Finding, ...]]:
    views = [read.root, read.text]
    views.extend(part for name in ("vision_config", "encoder_config") if (part := read.root.section(name)))
    for view in views:
        for key in ("dtype", "torch_dtype"):
            if view.has(key):
                return _known_dtype(view, key), ()
    headers = {_HEADER_DTYPES[tensor.dtype] for tensor in documents.tensors or () if tensor.dtype in _HEADER_DTYPES}
    if headers:
        return (headers.pop() if len(headers) == 1 else "float32"), ()
    text = (
        "config.json states no dtype and no checkpoint headers are at hand; bfloat16 is assumed, 2 bytes a parameter."
    )
    return "bfloat16", (Finding(code="dtype-assumed", severity="warning", text=text, field="dtype"),)


def _known_dtype(view: ConfigView, key: str) -> str:
    name = (view.text(key) or "").removeprefix("torch.")
    if name not in _DTYPES:
        field = f"{view.path}{key}"
        raise PlanError(
            field, name, f"config.json: {field} {name!r} is not a dtype vLLM knows; use bfloat16 or float16."
        )
    return _DTYPES[name]


def _max_position(read: _Read, documents: ModelDocuments) -> tuple[int, tuple[Finding, ...]]:
    """The longest length as vLLM derives it: the least of the known keys, times a rope factor that is not yet in it (config/model.py)."""
    text = read.text
    lengths = [value for key in _LENGTH_KEYS if (value := text.optional_integer(key, least=1)) is not None]
    own = text.optional_integer("model_max_length", least=1)
    length = float(own or min(lengths, default=math.inf))
    if documents.tokenizer_max_length:
        length = min(length, documents.tokenizer_max_length)
    if math.isinf(length):
        sentence = f"config.json has no key that tells the longest length; {_FALLBACK_LENGTH} is assumed, as vLLM does."
        return _FALLBACK_LENGTH, (Finding(code="length-assumed", severity="warning", text=sentence),)
    rope = ConfigView(rope_parameters(text), f"{text.path}rope_scaling.")
    kind = str(rope.values["rope_type"])
    if "gemma3" not in str(read.root.values.get("model_type")) and kind not in _UNSCALED_ROPES:
        length *= rope.number("factor", 1.0)
    return int(length), ()


def _quantization(
    read: _Read, documents: ModelDocuments, vllm_minor: int
) -> tuple[QuantFacts | None, tuple[Finding, ...]]:
    """The checkpoint's quantisation: config.json's own object, a part's, or ModelOpt's separate file."""
    for view in (read.root, read.root.section("text_config")):
        for key in ("quantization_config", "compression_config"):
            settings = view.section(key) if view else None
            if settings is not None:
                facts = _quant_facts(_with_expert_dtype(settings.values, read.root), f"config.json {key}", vllm_minor)
                return (_with_tensors(facts, documents), ()) if facts else (None, (_ignored(f"config.json {key}"),))
    if documents.hf_quant_config_json:
        settings_json = _parse_object(documents.hf_quant_config_json, "hf_quant_config.json")
        found = _quant_facts(settings_json, "hf_quant_config.json", vllm_minor)
        return found, () if found else (_ignored("hf_quant_config.json"),)
    if documents.gguf_metadata_json is not None:
        return QuantFacts(method="gguf", settings={"tensors": documents.tensors or ()}, source="GGUF header"), ()
    return None, ()


def _ignored(source: str) -> Finding:
    text = f"{source} names no quant_method: vLLM takes the model for an unquantised one and builds every weight in its dtype."
    return Finding(code="quantization-ignored", severity="warning", text=text, field="quantization_config.quant_method")


def _with_tensors(facts: QuantFacts, documents: ModelDocuments) -> QuantFacts:
    """The facts; for GGUF with the file's tensors, whose types are the quantisation."""
    if facts.method != "gguf":
        return facts
    return QuantFacts(method="gguf", settings={"tensors": documents.tensors or ()}, source=facts.source)


def _with_expert_dtype(settings: Mapping[str, Any], root: ConfigView) -> dict[str, Any]:
    """The settings; for DeepSeek-V4 and Kimi-K3 under the method that their classes make of it."""
    copy = dict(settings)
    if str(root.values.get("model_type")).startswith("deepseek_v4") and copy.get("quant_method") == "fp8":
        copy["quant_method"] = "deepseek_v4_fp8"
        copy.setdefault("expert_dtype", root.text("expert_dtype", "fp4"))
    is_k3 = root.values.get("model_type") == "kimi_k3" and copy.get("format") == "mxfp4-pack-quantized"
    if is_k3 and copy.get("quant_method") == "compressed-tensors":
        copy["quant_method"] = "mxfp4"  # routed experts alone (models/config.py, KimiK3ForConditionalGenerationConfig)
    return copy


# What a ModelOpt export's own object names (`quantization.quant_algo`); 0.33 added the mixed ones.
_EXPORTED_METHODS = {
    "FP8": "modelopt",
    "FP8_PER_CHANNEL_PER_TOKEN": "modelopt",
    "FP8_PB_WO": "modelopt",
    "NVFP4": "modelopt_fp4",
}
_FIRST_MINOR_WITH_MIXED_EXPORT = 33


def _quant_facts(settings: dict[str, Any], source: str, vllm_minor: int) -> QuantFacts | None:
    """The facts of a quantisation object; None where it names no method, which vLLM then takes for no quantisation."""
    method = str(settings.get("quant_method") or "").lower().replace("compressed_tensors", "compressed-tensors")
    producer, inner = settings.get("producer"), settings.get("quantization")
    nested = inner.get("quant_algo") if isinstance(inner, dict) else None
    if isinstance(producer, dict) and producer.get("name") == "modelopt" and nested is not None:
        method = _exported_method(str(nested), source, vllm_minor)
    elif method.startswith("modelopt"):
        method = _declared_method(str(nested or settings.get("quant_algo") or "").upper(), method)
    return QuantFacts(method=method, settings=settings, source=source) if method else None


def _exported_method(algorithm: str, source: str, vllm_minor: int) -> str:
    name = algorithm.upper()
    if name == "MIXED_PRECISION" and vllm_minor >= _FIRST_MINOR_WITH_MIXED_EXPORT:
        return "modelopt_mixed"
    if name not in _EXPORTED_METHODS:
        raise PlanError(
            "quantization.quant_algo", algorithm, f"{source}: Unknown ModelOpt quant algo: {algorithm:.60}."
        )
    return _EXPORTED_METHODS[name]


def _declared_method(algorithm: str, method: str) -> str:
    """ModelOpt's method where config.json says `quant_method: modelopt`: its algorithm decides (modelopt.py overrides)."""
    if "FP4" in algorithm and "MXFP4" not in algorithm:
        return "modelopt_fp4"
    return {"FP8": "modelopt", "MXFP8": "modelopt_mxfp8", "MIXED_PRECISION": "modelopt_mixed"}.get(algorithm, method)
