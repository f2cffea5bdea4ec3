"""The `PlanRequest` that a start-up row stands for: its model's documents, its card and total, its flags."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

from planner.facts import PlanError
from planner.gpu_catalog import find_gpu
from planner.inventory import ModelDocuments
from planner.model_catalog import catalogue_documents, catalogue_ids
from planner.request import CompileCache, EngineFlags, PlanRequest, Runner, SpeculativeConfig
from planner.truth import CONFIGS, TruthRow
from planner.units import GIB, MIB
from planner.versions import parse_version
from planner.wrapped_config import wrapped_documents

# CUDA context and communicator: 0.1 to 2.0 GiB in logs, and a tenth of a unified memory is the system's.
_LARGEST_CONTEXT_GIB, _LARGEST_CONTEXT_SHARE = 2.0, 0.1
# Names that logs give a chip: unified memory of 120 GiB is a GB10's.
_CHIPS = {"unified": "DGX Spark (GB10)", "gb10": "DGX Spark (GB10)", "gfx1151": "Ryzen AI MAX+ 395 (Strix Halo)"}
# CUDA totals of card sizes that people name without the card ("24 GB GPU"): the middle of what cards of that size report.
_CLASS_TOTAL_GIB = {
    6: 6.0,
    8: 7.65,
    12: 11.6,
    16: 15.57,
    24: 23.55,
    32: 31.35,
    40: 39.5,
    48: 44.4,
    80: 79.2,
    96: 94.97,
    128: 121.69,
}


# -- the model ----------------------------------------------------------------------------------------------------------


def documents_for(row: TruthRow, extra_configs: Path | None = None) -> ModelDocuments:
    """The documents of the row's model: catalogue first, then the truth configs, then `extra_configs`."""
    name = row.model_id
    if name is None:
        raise PlanError("model_id", None, "the row names no model")
    folders = [CONFIGS] + ([extra_configs] if extra_configs is not None else [])
    for candidate in (name, *_shortened(name)):
        found = _catalogued(candidate) or _from_folders(candidate, folders)
        if found is not None:
            return found
    raise PlanError("model_id", name, f"no config of {name!r} in the catalogue or beside the rows")


def _shortened(name: str) -> list[str]:
    """The name without a remark in brackets or a drafter behind a plus sign."""
    bare = name.split(" (", maxsplit=1)[0].split(" + ", maxsplit=1)[0].strip()
    return [bare] if bare != name and " " not in bare else []


def _catalogued(name: str) -> ModelDocuments | None:
    tails = [known for known in catalogue_ids() if known.split("/")[-1].lower() == name.lower()]
    for candidate in (name, *(tails if len(tails) == 1 else ())):
        try:
            return catalogue_documents(candidate)
        except PlanError:
            continue
    return None


def _from_folders(name: str, folders: list[Path]) -> ModelDocuments | None:
    for folder in folders:
        for path in sorted(folder.glob("*.json")):
            document = json.loads(path.read_text(encoding="utf-8"))
            if name.lower() in [known.lower() for known in document.get("model_ids", [])]:
                confidence = document.get("confidence", "unknown")
                return wrapped_documents(document, source=f"{path.name} ({confidence})")
    return None


# -- the request --------------------------------------------------------------------------------------------------------


def request_for(row: TruthRow, model: ModelDocuments, version: str) -> PlanRequest:
    """The question that the row's engine answered, under `version`; raises `PlanError` when the card cannot be known."""
    gpu, gpu_memory_bytes = _card(row)
    return PlanRequest(
        model_id=model.model_id,
        gpu=gpu,
        gpu_memory_bytes=gpu_memory_bytes,
        other_processes_bytes=_held_by_others(row, gpu_memory_bytes),
        vllm_version=version,
        model_runner=_runner(row),
        compile_cache=_compile_cache(row),
        flags=_flags(row, model),
    )


def _held_by_others(row: TruthRow, total_bytes: int | None) -> int:
    """What the card had lost at start beyond an engine's own context, where the row prints the free memory."""
    free = row.number("free_at_start_gib")
    if free is None or total_bytes is None:
        return 0
    lost_bytes = total_bytes - round(free * GIB)
    allowance_bytes = round(_LARGEST_CONTEXT_GIB * GIB + _LARGEST_CONTEXT_SHARE * total_bytes)
    return lost_bytes if lost_bytes > allowance_bytes else 0


def with_length(documents: ModelDocuments, length_tokens: int) -> ModelDocuments:
    """`documents` with a longest position of `length_tokens`: an engine that ran beyond the config's was told to."""
    config = json.loads(documents.config_json)
    for section in (config, config.get("text_config")):
        if isinstance(section, dict) and "max_position_embeddings" in section:
            section["max_position_embeddings"] = length_tokens
    return replace(documents, config_json=json.dumps(config))


def _runner(row: TruthRow) -> Runner:
    text = row.text("engine", "notes")
    if "v2 model runner" in row.text("engine") or "v2 runner (default" in text:
        return "v2"
    return "v1" if "v1 model runner" in text else "auto"


def _compile_cache(row: TruthRow) -> CompileCache:
    notes = row.text("notes")
    if "warm torch.compile" in notes or "warm compile" in notes or "compile cache hit" in notes:
        return "warm"
    is_cold = "cold torch.compile" in notes or "cold compile" in notes or "first start" in notes
    return "cold" if is_cold else "unknown"


def _card(row: TruthRow) -> tuple[str | None, int | None]:
    """The card's name and, where the row gives or implies it, its CUDA total."""
    name = _card_name(str(row.values.get("gpu_name") or "")) or _card_name(row.text("notes"), only_chips=True)
    is_known = name is not None and _is_catalogued(name)
    total_gib = row.number("gpu_mem_gib_total") or _named_total_gib(row) or _printed_total_gib(row)
    if total_gib is None and not is_known:
        total_gib = _class_total_gib(row) or _shifted_total_gib(row)
    if total_gib is not None:
        return name, round(total_gib * GIB)
    if not is_known:
        raise PlanError(
            "gpu_name", row.values.get("gpu_name"), "the row names no card and prints nothing to derive its size"
        )
    return name, None


def _is_catalogued(name: str) -> bool:
    try:
        find_gpu(name)
    except PlanError:
        return False
    return True


def _card_name(text: str, *, only_chips: bool = False) -> str | None:
    """The card that `text` names; a size or a class is no name."""
    bare = re.sub(r"\(.*?\)", "", text).strip()
    is_vague = not bare or re.match(r"^\d+ ?(GB|GiB)|SM\d|slice|not named", bare, re.IGNORECASE) is not None
    name = None if is_vague or only_chips else bare
    if name is not None and _is_catalogued(name):
        return name
    return next((chip for sign, chip in _CHIPS.items() if sign in text.lower()), name)


def _named_total_gib(row: TruthRow) -> float | None:
    """The total that stands beside the card's name in brackets: "24 GB GPU (23.53 GiB)"."""
    found = re.search(r"\((\d+\.\d+) GiB", str(row.values.get("gpu_name") or ""))
    return float(found[1]) if found else None


def _printed_total_gib(row: TruthRow) -> float | None:
    """The total that the printed terms imply: requested / utilisation."""
    requested = row.number("requested_gib") or _printed_sum_gib(row)
    is_new = row.version is not None and parse_version(row.version) >= (0, 20, 0)
    utilization = row.number("gpu_memory_utilization") or (0.92 if is_new else 0.9)
    return requested / utilization if requested is not None else None


def _printed_sum_gib(row: TruthRow) -> float | None:
    """Weights, activation, non-torch and pool as printed, when all four are: what utilisation x total was (to 0.20)."""
    terms = [
        row.number(name) for name in ("model_load_gib", "activation_peak_gib", "non_torch_gib", "available_kv_gib")
    ]
    return sum(term for term in terms if term is not None) if all(term is not None for term in terms) else None


def _shifted_total_gib(row: TruthRow) -> float | None:
    """The usual card whose total is nearest to graph estimate / (utilisation - equivalent utilisation), within 12 %."""
    utilization, equivalent = row.number("gpu_memory_utilization"), row.number("util_equivalent")
    estimate = row.number("cudagraph_est_gib")
    if not estimate or not equivalent or not utilization or utilization <= equivalent:
        return None
    rough = estimate / (utilization - equivalent)
    nearest = min(_CLASS_TOTAL_GIB.values(), key=lambda total: abs(total - rough))
    return nearest if abs(nearest - rough) <= 0.12 * nearest else rough


def _class_total_gib(row: TruthRow) -> float | None:
    """The total of a card that is known by size alone ("24 GB GPU", "32 GB class" in the notes, "24g-" in the row's id)."""
    named = re.search(r"(\d+) ?(?:GB|GiB)", str(row.values.get("gpu_name") or ""))
    noted = re.search(r"(\d+) gb (?:class|card|gpu)", row.text("notes"))
    tagged = re.search(r"(?:^|-)(\d+)g(?:-|$)", row.row_id)
    found = named or noted or tagged
    return _CLASS_TOTAL_GIB.get(int(found[1])) if found else None


def _flags(row: TruthRow, model: ModelDocuments) -> EngineFlags:
    if row.text("quantization").startswith("gguf") and model.tensors is None:
        raise PlanError("quantization", "gguf", "a GGUF file is sized from its header, which is not beside the row")
    if row.integer("tp") is None and (row.integer("num_gpus") or 1) > 1:
        raise PlanError("tp", None, f"the row ran on {row.integer('num_gpus')} cards and does not say how it was split")
    given = _given_pool_bytes(row)
    return EngineFlags(
        tensor_parallel_size=row.count("tp") or 1,
        pipeline_parallel_size=row.count("pp") or 1,
        data_parallel_size=row.count("dp") or 1,
        enable_expert_parallel=_splits_experts(row),
        gpu_memory_utilization=row.setting("gpu_memory_utilization", least=0),
        kv_cache_memory_bytes=given,
        max_model_len=row.count("max_model_len"),
        max_num_seqs=row.count("max_num_seqs"),
        max_num_batched_tokens=row.count("max_num_batched_tokens"),
        kv_cache_dtype=(str(row.values.get("kv_cache_dtype") or "").split() or ["auto"])[0],
        dtype=str(row.values.get("dtype") or "auto").removeprefix("torch."),
        quantization=_quantization(row, model),
        enforce_eager=bool(row.switch("enforce_eager")),
        enable_prefix_caching=row.switch("prefix_caching"),
        cpu_offload_gb=row.setting("cpu_offload_gb", least=0) or float(_noted(row, "cpu_offload_gb") or 0),
        enable_lora="enable_lora" in _flag_text(row),
        max_lora_rank=int(_noted(row, "max_lora_rank") or 16),
        max_loras=int(_noted(row, "max_loras") or 1),
        speculative_config=_speculation(row),
        limit_mm_per_prompt=_mm_limits(row),
        language_model_only="--language-model-only" in row.text("other_flags"),
        skip_mm_profiling="--skip-mm-profiling" in row.text("other_flags"),
    )


def _splits_experts(row: TruthRow) -> bool:
    """Whether experts are split: `ep` is a switch, or over how many ranks."""
    return bool(row.switch("ep")) and row.number("ep") != 1


def _flag_text(row: TruthRow) -> str:
    """The other flags in one spelling: --cpu-offload-gb and cpu_offload_gb are the same."""
    return row.text("other_flags").replace("-", "_")


def _noted(row: TruthRow, flag: str) -> str | None:
    """The number that the other flags give `flag`, as --flag 4, flag=4 or flag: 4."""
    found = re.search(rf"{flag}[=: ]+(\d{{1,6}}(?:\.\d{{1,3}})?)", _flag_text(row))
    return found[1] if found else None


def _given_pool_bytes(row: TruthRow) -> int | None:
    """What --kv-cache-memory-bytes gave: its number, or the printed pool where only the flag's use is on record."""
    flags = row.text("other_flags")
    match = re.search(r"--kv-cache-memory(?:-bytes)?[= ]+(\d+)(m|g)?\b", flags)
    if match:
        return int(match[1]) * {"m": MIB, "g": GIB, None: 1}[match[2]]
    printed = row.number("available_kv_gib")
    return round(printed * GIB) if "--kv-cache-memory" in flags and printed else None


def _quantization(row: TruthRow, model: ModelDocuments) -> str | None:
    """An online method; a checkpoint's own needs no flag."""
    asked = str(row.values.get("quantization") or "").split(" ")[0]
    is_checkpoint_quantized = '"quantization_config"' in model.config_json or model.hf_quant_config_json is not None
    return asked if asked in {"fp8", "bitsandbytes"} and not is_checkpoint_quantized else None


def _speculation(row: TruthRow) -> SpeculativeConfig | None:
    text = row.text("other_flags", "model_id")
    count = re.search(r"(?:num_speculative_tokens['\"]?[=: ]+|\bk=)(\d{1,3})", text)
    tokens = int(count[1]) if count else 1
    method = next((name for name in ("mtp", "dflash", "eagle") if name in text), None)
    return None if method is None else SpeculativeConfig(method=method, num_speculative_tokens=tokens)


def _mm_limits(row: TruthRow) -> tuple[tuple[str, int], ...]:
    text = row.text("other_flags")
    if "limit_mm" not in text:
        return ()
    return tuple((kind, int(count)) for kind, count in re.findall(r"(image|video|audio)[ =:]+(\d+)", text))
