"""`python -m planner reconcile LOG`: the start of a log beside its plan, as a short text or one JSON object."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from planner.answer import Plan
from planner.calibration_file import held_in
from planner.facts import Finding, PlanError
from planner.inventory import ModelDocuments
from planner.log_file import LARGEST_TEXT_BYTES, decode_log, read_file_lines, stream_lines
from planner.measured_advice import MeasuredAnswer, measured_answer
from planner.measured_start import MeasuredStart, from_log
from planner.model_catalog import catalogue_documents
from planner.model_folder import config_documents, folder_documents
from planner.planning import answer
from planner.reconcile import ComparedTerm, Reconciliation, reconcile
from planner.request import PlanRequest
from planner.start_request import card_of_log, model_of, start_request
from planner.startup_log import StartupLog, read_lines, read_starts
from planner.units import GIB

_BAD_INPUT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    found: Reconciliation
    measured: MeasuredAnswer | PlanError  # why there is none
    findings: tuple[Finding, ...]


def main(argv: Sequence[str]) -> int:
    """The exit status of `python -m planner reconcile`: 0 when a start was compared, 2 with one line on stderr else."""
    options = _parser().parse_args(argv)
    try:
        outcome = _outcome(options)
    except PlanError as error:
        sys.stderr.write(" ".join(error.text.split()) + "\n")
        return _BAD_INPUT
    shown = json.dumps(_record(outcome), ensure_ascii=False) if options.json else _text(outcome)
    sys.stdout.write(shown + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m planner reconcile",
        description="A vLLM start-up log beside the plan of what it ran, term by term.",
    )
    parser.add_argument("log", metavar="LOG", help="a log file, or - for standard input")
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--model", metavar="ID", help="a model of the catalogue, where the log's is none or another is meant"
    )
    source.add_argument("--model-dir", metavar="DIR", help="a folder with the model's config.json, or a .gguf file")
    source.add_argument("--config", metavar="FILE", type=Path, help="the model's config.json")
    parser.add_argument("--gpu", metavar="NAME", help="the card, where the log does not name it")
    parser.add_argument(
        "--calibrations", metavar="FILE", type=Path, help="predict with the constants of an exported file"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    return parser


def _outcome(options: argparse.Namespace) -> _Outcome:
    log = _log(options.log)
    documents = _documents(options, log)
    gpu = options.gpu or card_of_log(log)
    if gpu is None:
        raise PlanError("gpu", None, "The log does not name its card; give --gpu NAME.")
    request, findings = start_request(log, PlanRequest(model_id=documents.model_id, gpu=gpu))
    general, _ = answer(request, documents)
    start = from_log(log, Path(options.log).name, general.vllm_version)
    held = (
        None if options.calibrations is None else held_in(options.calibrations, general.gpu_name, general.vllm_version)
    )
    plan = general
    if held is not None:
        named = PlanRequest.from_mapping({**request.to_mapping(), "calibration": held.identity})
        plan, _ = answer(named, documents, calibration=held)
    return _Outcome(found=reconcile(plan, start), measured=_measured(general, documents, start), findings=findings)


def _measured(general: Plan, documents: ModelDocuments, start: MeasuredStart) -> MeasuredAnswer | PlanError:
    try:
        return measured_answer(general, documents, start)
    except PlanError as error:
        return error


def _log(name: str) -> StartupLog:
    """The last start of the file, or of standard input."""
    if name == "-":
        starts = read_lines(stream_lines(sys.stdin.buffer))
    elif Path(name).is_file() and Path(name).stat().st_size <= LARGEST_TEXT_BYTES:
        starts = read_starts(decode_log(Path(name).read_bytes()))
    else:
        starts = read_lines(read_file_lines(Path(name)))
    if not starts[-1].lines and not starts[-1].ranks:
        raise PlanError("log", name, f"{name} holds no line in which vLLM says what a start took.")
    return starts[-1]


def _documents(options: argparse.Namespace, log: StartupLog) -> ModelDocuments:
    if options.config is not None:
        return config_documents(options.config)
    if options.model_dir is not None:
        return folder_documents(options.model_dir)
    model_id = options.model or model_of(log)
    if model_id is None:
        named = (
            "The log names no model"
            if log.model_name is None
            else f"The log's model, {log.model_name}, is not in the catalogue"
        )
        raise PlanError("model", log.model_name, f"{named}; give --model ID, --model-dir DIR or --config FILE.")
    return catalogue_documents(model_id)


# -- what is printed ----------------------------------------------------------------------------------------------------


def _record(outcome: _Outcome) -> dict[str, Any]:  # Any: JSON
    found, measured = outcome.found, outcome.measured
    return {
        "source": found.start.source,
        "model_id": found.plan.request.model_id,
        "gpu": found.plan.gpu_name,
        "vllm_version": found.start.version,
        "calibration": found.plan.calibration,
        "outcome": found.start.outcome,
        "predicted_start": found.plan.will_start,
        "bounding_rank": found.bounding_rank,
        "terms": [_term(term) for term in found.terms],
        "identity": {**asdict(found.identity), "closes": found.identity.closes},
        "reasons": [asdict(reason) for reason in found.reasons],
        "findings": [asdict(finding) for finding in outcome.findings],
        "measured_advice": _advice(measured),
        "request": found.plan.request.to_mapping(),
    }


def _advice(measured: MeasuredAnswer | PlanError) -> dict[str, Any]:
    if isinstance(measured, PlanError):
        return {"reason": measured.text, "longest_tokens": None, "advice": []}
    advice = [asdict(each) for each in measured.advice]
    return {"reason": measured.plan.reason, "longest_tokens": measured.longest_tokens, "advice": advice}


def _term(term: ComparedTerm) -> dict[str, Any]:
    return {**asdict(term), "error": term.error, "error_fraction": term.error_fraction, "is_inside": term.is_inside}


def _text(outcome: _Outcome) -> str:
    found = outcome.found
    subject = (
        f"{found.plan.request.model_id} on {found.plan.gpu_name}, vLLM {found.start.version}: {found.start.outcome}"
    )
    rows = [subject, "", f"  {'':24}{'predicted':>12}{'measured':>12}{'error':>10}   90 % band"]
    rows += [_row(term) for term in found.terms]
    rows += ["", _identity(found)]
    rows += [f"why: {reason.text}" for reason in found.reasons]
    rows += [f"{finding.severity}: {finding.text}" for finding in outcome.findings]
    measured = _advice(outcome.measured)
    rows += ["", f"with the measured values: {measured['reason']}"]
    rows += [f"try {each['change']}: {each['effect']}" for each in measured["advice"]]
    return "\n".join(rows)


def _row(term: ComparedTerm) -> str:
    name = f"{term.name.replace('_', ' ')} {term.rank}".strip()
    percent = "-" if term.error_fraction is None else f"{term.error_fraction:+.1%}"
    scale, digits, unit = (GIB, 2, "GiB") if term.unit == "bytes" else (1, 2 if term.unit == "requests" else 0, "")
    shown = [f"{value / scale:,.{digits}f}" for value in (term.predicted, term.measured, term.low, term.high)]
    band = f"[{shown[2]} to {shown[3]}] {unit}" if term.low != term.high else "exact"
    verdict = "" if term.is_inside else "  OUTSIDE"
    return f"  {name:24}{shown[0]:>12}{shown[1]:>12}{percent:>10}   {band}{verdict}"


def _identity(found: Reconciliation) -> str:
    identity = found.identity
    if identity.difference_bytes is None:
        return f"{identity.formula}: not checked, missing {', '.join(identity.missing)}"
    verdict = "adds up" if identity.closes else "DOES NOT ADD UP"
    return f"{identity.formula}: {verdict}, {identity.difference_bytes / GIB:+.2f} GiB"
