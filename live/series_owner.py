"""Whose a series is: groups raw series by engine. A series that lacks a label belongs to the one engine it can be of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from live.metric_names import CACHE_CONFIG_INFO, PLACE_LABELS, PLAIN_NAMES, canonical
from live.sample_lines import RawSeries
from live.samples import EngineIdentity
from planner.facts import Finding

_USAGE = {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"}
Labels = tuple[tuple[str, str], ...]
_IDENTITY_LABELS = {"model_name", "engine", "model"}  # Triton's vLLM backend says "model"
_MOST_IDENTITIES = 512  # engines, and the incomplete names that some of their series have
_MOST_ENGINES = 256  # of one text; more is no fleet but a broken or hostile text


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedSeries:
    """One series of a known engine; `labels` are those that neither name the engine nor its place, sorted."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    identity: EngineIdentity
    series: OwnedSeries


def _place_labels(series: Sequence[RawSeries]) -> frozenset[str]:
    """Labels that say where a server is: known ones, and what a plain series has beyond vLLM's own two."""
    seen = {name for one in series if canonical(one.name) in PLAIN_NAMES for name, _ in one.labels}
    return PLACE_LABELS | (seen - _IDENTITY_LABELS - {"pid"})


def _claim(one: RawSeries, place_labels: frozenset[str]) -> _Claim:
    identity, labels = _named(one.name, one.labels, place_labels)
    return _Claim(identity=identity, series=OwnedSeries(name=one.name, labels=labels, value=one.value))


@lru_cache(maxsize=40_960)  # as many as lines are read
def _named(series_name: str, pairs: Labels, place_labels: frozenset[str]) -> tuple[EngineIdentity, Labels]:
    """Whose a series says it is, and its other labels: the same in every scrape."""
    labels = {name: text for name, text in pairs if text}
    is_config = canonical(series_name) == CACHE_CONFIG_INFO
    places = sorted((name, text) for name, text in labels.items() if name in place_labels)
    kept = labels if is_config else {k: v for k, v in labels.items() if k not in place_labels | _IDENTITY_LABELS}
    identity = EngineIdentity(
        model_name=labels.get("model_name") or (None if is_config else labels.get("model")),
        engine=labels.get("engine"),
        replica=",".join(f"{name}={text}" for name, text in places) or None,
    )
    return identity, tuple(sorted(kept.items()))


def _fits(partial: EngineIdentity, whole: EngineIdentity) -> bool:
    return (
        partial.model_name in {None, whole.model_name}
        and partial.engine in {None, whole.engine}
        and partial.replica in {None, whole.replica}
    )


def _whole_identities(claims: Sequence[_Claim]) -> list[EngineIdentity]:
    """The identities that no other one completes, in the text's order."""
    every = list(dict.fromkeys(claim.identity for claim in claims))
    every = every[:_MOST_IDENTITIES]  # the comparison is of each with each
    return [one for one in every if not any(one != other and _fits(one, other) for other in every)][:_MOST_ENGINES]


def _config_owners(
    candidates: Sequence[EngineIdentity], usage_owners: set[EngineIdentity]
) -> tuple[list[EngineIdentity], Finding | None]:
    """Whose a cache_config_info without a full name is: of all engines of one model, or of the one that has a usage."""
    if len({(one.model_name, one.replica) for one in candidates}) == 1:
        return list(candidates), None
    named = ", ".join(str(one.model_name) for one in candidates)
    likely = [one for one in candidates if one in usage_owners]
    if len(likely) == 1:
        text = (
            f"cache_config_info names no model and there are several ({named}); its blocks are taken to be "
            f"{likely[0].model_name}'s, the only one with a KV usage. That is a guess."
        )
        return likely, Finding(code="cache-config-owner-guessed", severity="warning", text=text, field="num_gpu_blocks")
    text = f"cache_config_info names no model and there are several ({named}); whose blocks these are cannot be told."
    return [], Finding(code="cache-config-owner-unknown", severity="warning", text=text, field="num_gpu_blocks")


def _double_configs(claims: Sequence[_Claim]) -> set[EngineIdentity]:
    """Identities under which several different cache_config_info stand: none of them can be told apart."""
    lines = {
        (claim.identity, claim.series.labels) for claim in claims if canonical(claim.series.name) == CACHE_CONFIG_INFO
    }
    return {identity for identity, times in Counter(identity for identity, _ in lines).items() if times > 1}


def _too_many(claims: Sequence[_Claim], whole: Sequence[EngineIdentity]) -> list[Finding]:
    if len(whole) < _MOST_ENGINES:
        return []
    text = f"The text names {len({claim.identity for claim in claims})} engines; the first {_MOST_ENGINES} are read."
    return [Finding(code="too-many-engines", severity="warning", text=text)]


def _owners(
    identity: EngineIdentity,
    whole: Sequence[EngineIdentity],
    known: dict[EngineIdentity, tuple[EngineIdentity, ...]],
) -> tuple[EngineIdentity, ...]:
    """Whose a series of `identity` can be; looked for once an identity, and only as many times as a fleet can need."""
    if identity not in known:
        if len(known) > _MOST_IDENTITIES:
            return ()
        known[identity] = tuple(one for one in whole if _fits(identity, one))
    return known[identity]


def owned_series(
    series: Iterable[RawSeries],
) -> tuple[dict[EngineIdentity, list[OwnedSeries]], list[Finding]]:
    """The series of each engine, engines in the text's order, and what could not be attributed."""
    raw = list(series)
    place_labels = _place_labels(raw)
    claims = [_claim(one, place_labels) for one in raw]
    whole = _whole_identities(claims)
    usage_owners = {claim.identity for claim in claims if canonical(claim.series.name) in _USAGE}
    doubled = _double_configs(claims)
    owned: dict[EngineIdentity, list[OwnedSeries]] = {identity: [] for identity in whole}
    findings: dict[Finding, None] = dict.fromkeys(_too_many(claims, whole))
    owners_of: dict[EngineIdentity, tuple[EngineIdentity, ...]] = {
        one: (one,) for one in whole
    }  # no other identity fits a whole one
    for claim in claims:
        owners: Sequence[EngineIdentity] = _owners(claim.identity, whole, owners_of)
        if canonical(claim.series.name) == CACHE_CONFIG_INFO and len(owners) > 1:
            owners, finding = _config_owners(owners, usage_owners)
            if claim.identity in doubled:
                owners = []
            if finding is not None:
                findings[finding] = None
        elif len(owners) > 1:
            text = f"{claim.series.name} does not say of which of {len(owners)} engines it is; it is left out."
            findings[Finding(code="series-owner-unknown", severity="info", text=text, field=claim.series.name)] = None
            continue
        for owner in owners:
            owned[owner].append(claim.series)
    return owned, list(findings)
