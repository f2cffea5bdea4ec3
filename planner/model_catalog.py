"""The offline catalogue: models whose whole config ships with the project, each with its source.

Reduced copies of a config are in it only to be found: asking for one says how to get the whole file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from planner.bounded_files import parse_object
from planner.facts import PlanError
from planner.inventory import ModelDocuments
from planner.model_folder import config_documents, folder_documents
from planner.wrapped_config import wrapped_documents

__all__ = [
    "CatalogueEntry",
    "catalogue_documents",
    "catalogue_ids",
    "config_documents",
    "folder_documents",
    "known_parameters",
    "search",
]

Completeness = Literal["full", "derived", "reduced"]

_DATA = Path(__file__).parent / "data"
_MODELS = _DATA / "models"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """One line of the catalogue. `derived`: the config was made from a sister model's; `reduced`: too little to plan with."""

    model_id: str
    architecture: str | None
    num_parameters: int | None
    quantization: str | None  # vLLM's method name; None: not quantised
    source: str
    completeness: Completeness
    note: str = ""

    @property
    def is_plannable(self) -> bool:
        """Whether `catalogue_documents` answers for it."""
        return self.completeness != "reduced"


@lru_cache(maxsize=1)
def _files() -> dict[str, Path]:
    return {path.stem.replace("--", "/", 1): path for path in sorted(_MODELS.glob("*.json"))}


@lru_cache(maxsize=1)
def catalogue_ids() -> tuple[str, ...]:
    """The ids of all models in the catalogue, in alphabetic order; reads file names only."""
    return tuple(sorted(_files(), key=str.lower))


@lru_cache(maxsize=256)
def _read(model_id: str) -> dict[str, Any]:  # parsed JSON of our own data files
    path = _files()[model_id]
    return parse_object(path.read_bytes(), path.name, "model")


def _quantization(document: dict[str, Any]) -> str | None:
    if document.get("gguf"):
        return "gguf"
    config = document["config"] or {}
    section = config.get("quantization_config") or config.get("text_config", {}).get("quantization_config")
    if section:
        return str(section.get("quant_method") or "unknown")
    return "modelopt" if document.get("hf_quant_config") else None


def _parameters(document: dict[str, Any], quantization: str | None) -> int | None:
    weights = document.get("weights", {})
    if document.get("gguf"):
        return int(document["gguf"]["parameters"])
    counted = weights.get("computed_parameters")
    stored = weights.get("parameters_total_hub") if quantization is None else None  # packed: elements, not parameters
    return counted or stored


def _architecture(document: dict[str, Any]) -> str | None:
    config = document["config"] or {}
    names = config.get("architectures") or [config.get("model_type")]
    if document.get("gguf"):
        return f"{document['gguf']['metadata']['general.architecture']} (GGUF)"
    return names[0] if names else None


def _entry(model_id: str) -> CatalogueEntry:
    document = _read(model_id)
    quantization = _quantization(document)
    is_whole = bool(document["config_complete"]) or bool(document.get("gguf"))
    completeness: Completeness = "reduced" if not is_whole else "derived" if document.get("config_derived") else "full"
    return CatalogueEntry(
        model_id=model_id,
        architecture=_architecture(document),
        num_parameters=_parameters(document, quantization),
        quantization=quantization,
        source=document["source"],
        completeness=completeness,
        note=document.get("config_note") or "",
    )


@lru_cache(maxsize=1)
def _entries() -> tuple[CatalogueEntry, ...]:
    return tuple(_entry(model_id) for model_id in catalogue_ids())


def search(text: str = "") -> tuple[CatalogueEntry, ...]:
    """The entries whose id, architecture or quantisation hold every word of `text`; ids that start with it come first."""
    words = text.lower().split()

    def haystack(entry: CatalogueEntry) -> str:
        return " ".join((entry.model_id, entry.architecture or "", entry.quantization or "")).lower()

    found = [entry for entry in _entries() if all(word in haystack(entry) for word in words)]
    name = text.strip().lower()
    return tuple(sorted(found, key=lambda entry: not entry.model_id.lower().split("/")[-1].startswith(name)))


@lru_cache(maxsize=1)
def _parameter_hints() -> dict[str, dict[str, Any]]:  # parsed JSON of our own data file
    path = _DATA / "parameters.json"
    models: dict[str, dict[str, Any]] = parse_object(path.read_bytes(), path.name, "model")["models"]
    return models


def known_parameters(model_id: str) -> int | None:
    """The Hub's exact parameter total of a repository that the catalogue has no config of, or None."""
    hint = _parameter_hints().get(model_id)
    return None if hint is None or hint.get("estimate") else int(hint["parameters_total_hub"])


def _nearest(model_id: str) -> list[str]:
    from difflib import get_close_matches  # noqa: PLC0415 - only a misspelt id pays for it

    ids = {name.lower(): name for name in catalogue_ids()}
    tails = {name.split("/")[-1]: name for name in ids}
    wanted = model_id.lower()
    close = get_close_matches(wanted, ids, n=3, cutoff=0.5)
    close += [tails[tail] for tail in get_close_matches(wanted.split("/")[-1], tails, n=3, cutoff=0.5)]
    return [ids[name] for name in dict.fromkeys(close)][:3]


def _fetch_hint(model_id: str) -> str:
    return f"`python -m live fetch {model_id} --out DIR` brings a Hub model's facts into a folder for --model-dir"


def _unknown(model_id: str) -> PlanError:
    near = _nearest(model_id)
    nearest = f" (nearest: {', '.join(near)})" if near else ""
    shown = model_id if len(model_id) <= 100 and model_id.isprintable() else "ID"
    text = f"{shown!r} is not in the offline catalogue{nearest}; {_fetch_hint(shown if shown.strip() else 'ID')}."
    return PlanError("model", model_id, text)


@lru_cache(maxsize=1)
def _ids_by_lower() -> dict[str, str]:
    return {name.lower(): name for name in catalogue_ids()}


@lru_cache(maxsize=256)
def catalogue_documents(model_id: str) -> ModelDocuments:
    """The documents of `model_id`; an unknown id or a reduced copy is a `PlanError` that names the way to the whole file."""
    known = _ids_by_lower().get(model_id.strip().lower())  # the Hub's ids ignore case
    if known is None:
        raise _unknown(model_id)
    document = _read(known)
    if not document["config_complete"] and not document.get("gguf"):
        text = f"The catalogue holds only a reduced copy of {known}'s config, too little to plan with; {_fetch_hint(known)}."
        raise PlanError("model", model_id, text)
    return wrapped_documents(document, source=f"offline catalogue: {document['source']}")
