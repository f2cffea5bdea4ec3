"""The plan request of a start beside its log: the log's own, on the model and card that were chosen where it does not say them."""

from __future__ import annotations

from dataclasses import replace

from planner.facts import Finding
from planner.gpu_catalog import find_gpu
from planner.log_request import LoggedRequest, cards_of_total, request_of_log
from planner.model_catalog import catalogue_ids
from planner.request import PlanRequest
from planner.startup_facts import StartupLog
from planner.units import GIB

_SAME_CARD_SHARE = 0.02  # a card's total differs by driver; beyond that it is another card, or a slice of one


def start_request(log: StartupLog, base: PlanRequest) -> tuple[PlanRequest, tuple[Finding, ...]]:
    """What `log` ran, on the model and card of `base`, and what the log does not say of it.

    The total that the log prints stands in for the catalogue's only where it is no total of that card.
    """
    logged = request_of_log(log)
    fields: dict[str, object] = dict(logged.fields) | {"model_id": base.model_id, "gpu": base.gpu}
    total = fields.get("gpu_memory_bytes")
    if base.gpu is not None and isinstance(total, int) and _is_total_of(base.gpu, total):
        del fields["gpu_memory_bytes"]
    request = LoggedRequest(fields=tuple(fields.items()), findings=()).apply(base)
    chosen = {"gpu", "model_id"}
    findings = tuple(finding for finding in logged.findings if finding.field not in chosen)
    return replace(request, config_json=base.config_json), findings


def _is_total_of(gpu: str, total_bytes: int) -> bool:
    known = find_gpu(gpu).total.best_bytes
    return abs(known - total_bytes) <= known * _SAME_CARD_SHARE


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
    """The catalogue card that the log tells; of several with the printed total `likely` where it is one of them."""
    fields = dict(request_of_log(log).fields)
    named, total = fields.get("gpu"), fields.get("gpu_memory_bytes")
    if isinstance(named, str):
        return named
    return likely if isinstance(total, int) and likely in cards_of_total(total) else None


def total_words(log: StartupLog) -> str | None:
    """The card's total as the log prints it: "79.19 GiB"."""
    total = log.memory("card_total")
    return None if total is None else f"{total.best_bytes / GIB:.2f} GiB"
