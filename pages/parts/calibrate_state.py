"""Session state of the Calibrate page: the logs that were dropped in, which start is shown, what was pressed.

Widgets are keyed `calib_<field>`. Of a log only its facts stay in the session; nothing is kept beyond it unless asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from live.calibration_store import CalibrationStore, process_store
from live.measured_engine import measured_engine
from live.plan_comparison import served_length
from live.samples import EngineSample, EngineSnapshot
from pages.parts import calibrate_request, state, watch_plan, watch_state
from pages.parts.language import mark
from pages.parts.page_state import PageState
from pages.parts.said import said
from planner import planning
from planner.answer import Plan
from planner.calibration import CalibratedStart, Calibration
from planner.calibration_evidence import calibrated_start
from planner.facts import PlanError
from planner.inventory import ModelDocuments
from planner.log_file import decode_log
from planner.measured_advice import MeasuredAnswer, measured_answer
from planner.measured_start import MeasuredStart, from_log
from planner.reconcile import Reconciliation, reconcile
from planner.request import PlanRequest
from planner.start_request import card_of_log, model_of
from planner.startup_facts import StartupLog
from planner.startup_log import read_starts

LOG, ENGINE = "log", "engine"
PASTED = "pasted lines"
_MOST_LOGS = 50
_SAYING = ("ranks", "vllm_version", "model_name", "kv_cache_tokens", "num_gpu_blocks", "failed_start", "max_model_len")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """One start of one log."""

    name: str  # the file's, with the start's number where it holds several
    log: StartupLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One start beside its plan. `general` is the plan with the general constants: what is learned is learned beside it."""

    found: Reconciliation
    general: Plan
    documents: ModelDocuments
    notes: tuple[str, ...] = ()


_PAGE = PageState("calib")
key, value, keep, take = _PAGE.key, _PAGE.value, _PAGE.keep, _PAGE.take


def store() -> CalibrationStore:
    """The calibrations of this process."""
    return process_store()


def take_message() -> str | None:
    """What came of the last press, told once."""
    text: str | None = take("message")
    return text


def take_problem() -> str | None:
    """The sentence of what the last press could not do, told once."""
    text: str | None = take("problem")
    return text


def trying(action: Callable[[], None]) -> None:
    """Do `action`; a user's mistake becomes the page's problem."""
    try:
        action()
    except PlanError as error:
        keep("problem", said(error.text))


# -- logs ---------------------------------------------------------------------------------------------------------------


def read(name: str, content: bytes | str, file_id: str) -> tuple[Dropped, ...]:
    """The starts of one log, read once a session; raises `PlanError` for what is no text."""
    kept: dict[str, tuple[Dropped, ...]] = value("read") or {}
    if file_id not in kept:
        starts = read_starts(content if isinstance(content, str) else decode_log(content))
        many = len(starts) > 1
        found = tuple(
            Dropped(name=f"{name} (start {place})" if many else name, log=log)
            for place, log in enumerate(starts, start=1)
        )
        kept = dict(list(kept.items())[-_MOST_LOGS:]) | {file_id: found}
        keep("read", kept)
    return kept[file_id]


def says_something(log: StartupLog) -> bool:
    """Whether the log holds any fact of a start."""
    return any(getattr(log, name) for name in _SAYING)


# -- one start beside its plan ------------------------------------------------------------------------------------------


def shown_log(dropped: Dropped, asked: calibrate_request.Asked) -> Shown:
    """The start of a log beside the plan of what it ran; raises `PlanError` where there can be none."""
    general, _ = planning.answer(asked.request, asked.documents)
    start = from_log(dropped.log, dropped.name, general.vllm_version)
    return Shown(
        found=_compared(asked.request, asked.documents, start, general), general=general, documents=asked.documents
    )


def _compared(request: PlanRequest, documents: ModelDocuments, start: MeasuredStart, general: Plan) -> Reconciliation:
    """Beside the plan that the page would make: with the calibration that is held, where the switch is on."""
    named = state.with_calibration(request)
    held = state.calibration_of(named)
    plan = general if held is None else planning.answer(named, documents, calibration=held)[0]
    return reconcile(plan, start)


def engine_choice() -> tuple[EngineSample, EngineSnapshot] | None:
    """The engine that the Watch page shows now, None where none is watched."""
    recorder = watch_state.shown_recorder()
    snapshot = None if recorder is None else recorder.status().snapshot
    if snapshot is None or not snapshot.engines:
        return None
    return snapshot.engines[0], snapshot


def shown_engine(sample: EngineSample, snapshot: EngineSnapshot) -> Shown | None:
    """The watched engine beside the plan of its model; None where no plan of it can be made."""
    planned = watch_plan.planned_for(sample, snapshot)
    if planned is None:
        return None
    request = replace(planned.plan.request, calibration=None)
    general = planned.replan(request)
    start = measured_engine(
        sample, general, version=snapshot.vllm_version, served=served_length(sample, snapshot.models)
    )
    found = _compared(request, planned.documents, start, general)
    return Shown(found=found, general=general, documents=planned.documents, notes=planned.notes)


def advice_of(shown: Shown) -> MeasuredAnswer | PlanError:
    """The planner's advice with this start's own constants, or why there is none."""
    try:
        return measured_answer(shown.general, shown.documents, shown.found.start)
    except PlanError as problem:
        return problem


# -- presses ------------------------------------------------------------------------------------------------------------


def calibrate(shown: Shown) -> None:
    """Keep what the start taught; for a callback."""
    general = shown.general
    learned = calibrated_start(general, shown.found.start, f"{datetime.now(UTC):%Y-%m-%d}")
    made: list[Calibration] = []
    trying(lambda: made.append(store().add(general.gpu_name, general.era, [learned])))
    if made:
        state.follow_held_calibration()
        keep("message", made[0].identity)


def calibrate_all(found: Sequence[Dropped], gpu: str | None) -> None:
    """Keep what all of these starts taught, on the card that is chosen where a log names none; for a callback."""
    learned: dict[tuple[str, str], list[CalibratedStart]] = {}
    left_out: list[str] = []
    for dropped in found:
        try:
            general, made = _learned_of(dropped, gpu)
        except PlanError as error:
            left_out.append(f"{dropped.name}: {said(error.text)}")
        else:
            learned.setdefault((general.gpu_name, general.era), []).append(made)
    if left_out:
        keep("problem", " ".join(left_out[:5]))
    trying(lambda: _keep_all(learned))


def _learned_of(dropped: Dropped, gpu: str | None) -> tuple[Plan, CalibratedStart]:
    card = card_of_log(dropped.log, gpu) or gpu
    shown = shown_log(dropped, calibrate_request.asked(dropped.log, model_of(dropped.log), card))
    made = calibrated_start(shown.general, shown.found.start, f"{datetime.now(UTC):%Y-%m-%d}")
    if not made.evidence:
        raise PlanError("log", None, mark("It prints nothing to learn from."))
    return shown.general, made


def _keep_all(learned: Mapping[tuple[str, str], Sequence[CalibratedStart]]) -> None:
    names = [store().add(card, era, starts).identity for (card, era), starts in learned.items()]
    if names:
        state.follow_held_calibration()
        keep("message", ", ".join(names))


def to_plan_page(shown: Shown) -> None:
    """Put the start's request into the form; for a callback."""
    state.fill(shown.general.request)
    keep("went", True)


def has_gone() -> bool:
    """Whether the last press leads to the Plan page; told once."""
    return bool(take("went"))


def remove(identity: str) -> None:
    """Forget a calibration; for a callback."""
    trying(lambda: store().remove(identity))


def remove_start(identity: str, source: str) -> None:
    """Forget one start of a calibration; for a callback."""
    trying(lambda: store().remove_start(identity, source))


def take_upload() -> None:
    """Import the file that was given; for a callback."""
    given = value("import")
    if given is None:
        return

    def bring() -> None:
        brought = store().take(given.getvalue(), given.name)
        keep("message", ", ".join(each.identity for each in brought))

    trying(bring)
