"""The plan request that a start-up log implies: what it ran, as far as its lines say; card and model come in where they do not."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from planner.facts import PlanError
from planner.gpu_catalog import find_gpu, gpu_names
from planner.measured_start import version_of
from planner.model_catalog import catalogue_ids
from planner.request import PlanRequest
from planner.request_mapping import FLAG_READERS
from planner.startup_facts import StartupLog
from planner.units import GIB

_FACTS = (
    "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "enable_expert_parallel", "max_model_len",
    "gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", "enforce_eager", "enable_prefix_caching",
    "enable_chunked_prefill",
)  # fmt: skip
_SAME_CARD_SHARE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """The request, and the settings of the log that no plan can read (name and value as printed)."""

    request: PlanRequest
    unread: tuple[tuple[str, str], ...] = ()


def start_request(log: StartupLog, base: PlanRequest) -> StartRequest:
    """What `log` ran, on the model and card of `base`; the release is the log's where it tells one."""
    record: dict[str, object] = {
        "model": base.model_id,
        "gpu": base.gpu,
        "gpu_memory_bytes": base.gpu_memory_bytes,
        "vllm_version": version_of(log) or base.vllm_version,
        "model_runner": log.model_runner or "auto",
        "config_json": base.config_json,
    }
    accepted, unread = _settings(log, record)
    return StartRequest(request=PlanRequest.from_mapping(record | accepted), unread=unread)


def _settings(log: StartupLog, record: Mapping[str, object]) -> tuple[dict[str, object], tuple[tuple[str, str], ...]]:
    """The flags that the reader of requests accepts, one by one: what a user gave counts more than what was made of it."""
    told = {name: getattr(log, name) for name in _FACTS}
    told |= _engine_flags(log)
    told |= {name: value for name, value in log.arguments if name in FLAG_READERS}
    accepted: dict[str, object] = {}
    unread: list[tuple[str, str]] = []
    for name, value in told.items():
        if value is None:
            continue
        try:
            PlanRequest.from_mapping({**record, name: value})
        except PlanError:
            unread.append((name, str(value)[:80]))
        else:
            accepted[name] = value
    return accepted, tuple(unread)


def _engine_flags(log: StartupLog) -> dict[str, object]:
    """What the engine's own config says of a quantised cache; a checkpoint's own format needs no flag."""
    dtype = log.kv_cache_dtype
    return {"kv_cache_dtype": dtype} if dtype and dtype.startswith("fp8") else {}


# -- what a log may not say ---------------------------------------------------------------------------------------------


def model_of(log: StartupLog) -> str | None:
    """The catalogue model that the log names, by its whole id or the only one with its last part."""
    names = [name.lower() for name in (log.model_name, log.served_model_name) if name]
    ids = catalogue_ids()
    whole = next((known for known in ids if known.lower() in names), None)
    if whole is not None:
        return whole
    tails = {name.rsplit("/", 1)[-1] for name in names}
    alike = [known for known in ids if known.rsplit("/", 1)[-1].lower() in tails]
    return alike[0] if len(alike) == 1 else None


def card_of_log(log: StartupLog, likely: str | None = None) -> str | None:
    """The catalogue card that the log names; where it prints a total alone, `likely` if that fits, else the only one that fits."""
    if log.card_name is not None:
        with suppress(PlanError):
            return find_gpu(log.card_name).name
    total = log.memory("card_total")
    if total is None:
        return None
    near = [name for name in gpu_names() if _is_near(name, total.best_bytes)]
    if likely in near:
        return likely
    return near[0] if len(near) == 1 else None


def _is_near(name: str, total_bytes: int) -> bool:
    known = find_gpu(name).total.best_bytes
    return abs(known - total_bytes) <= known * _SAME_CARD_SHARE


def total_words(log: StartupLog) -> str | None:
    """The card's total as the log prints it: "79.19 GiB"."""
    total = log.memory("card_total")
    return None if total is None else f"{total.best_bytes / GIB:.2f} GiB"
