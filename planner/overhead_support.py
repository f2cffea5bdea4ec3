"""How many logs and models stand behind each measured constant, and which of them rest on a single one."""

from __future__ import annotations

from dataclasses import dataclass

from planner import overhead_constants as constants
from planner.overhead_constants import Constant


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantSupport:
    """One constant of planner/overhead_constants.py and what it was read from."""

    name: str
    rows: int
    models: int
    source: str

    @property
    def is_thin(self) -> bool:
        """Whether a single row or a single model supports it."""
        return self.rows <= 1 or self.models <= 1


# Constants that are plain numbers, with the same count: (rows, models, what from).
_PLAIN: dict[str, tuple[int, int, str]] = {
    "V0_TENSOR_PARALLEL_COPIES": (1, 1, "Qwen2.5-32B on two L40S, V0"),
    "LAYER_RESIDUAL_COPIES": (2, 1, "Llama-3.1-8B on an RTX 3090, V0, at 20,000 and 29,000 tokens"),
    "LAYER_RESIDUAL_COPIES_V1": (3, 3, "CodeLlama-7b, Granite-3.1-8B, LLaVA-1.6-7B"),
    "GATED_ENCODER_RESIDUAL_COPIES": (1, 1, "Qwen2.5-VL-7B, 0.23, 114,688 video tokens"),
    "ENCODER_RESIDUAL_COPIES": (2, 2, "Qwen3.8-27B, 0.27.1; a 4B on an L4"),
    "COLD_COMPILE_MOST_EXTRA_TABLES": (10, 7, "cold starts on A100, 4090, L4, L40S and an 8 GB card, 0.18 to 0.31"),
    "COLD_COMPILE_EXTRA_TABLES_SM120": (1, 1, "a 70B on a 96 GB Blackwell, 0.23"),
    "COLD_COMPILE_EXTRA_TABLES_SM120_027": (5, 3, "Qwen3-32B on a 96 GB Blackwell, 32B-AWQ and 14B-AWQ on an RTX 5090"),
    "GDN_ESTIMATE_BYTES_PER_TOKEN": (1, 1, "one report that compares two releases, 0.26"),
    "ESTIMATE_PER_GDN_LAYER_GIB": (5, 3, "Qwen3.5-4B and 9B, Qwen3.6 and 3.8-27B, 0.19 to 0.27"),
    "V2_ESTIMATE_FACTOR": (6, 6, "Llama-3.1-8B (A100), Qwen3.8-27B (96 GB Blackwell), GB10 (4 models)"),
    "TP_NVLINK_BASE_GIB": (11, 5, "0.19 H100 TP 2 and 4 logs"),
    "TP_PCIE_PER_RANK_GIB": (4, 4, "4090 TP 2, RTX PRO 6000 TP 2 and 4, L40S TP 4"),
    "NON_TORCH_V1_TP_NVLINK_HIGH_PER_RANK_GIB": (1, 1, "gpt-oss-120b on eight B200, 0.13"),
    "NON_TORCH_UNIFIED_PER_WEIGHT": (6, 5, "GB10 and Thor logs and pools, 0.18 to 0.27"),
}


def constant_support() -> tuple[ConstantSupport, ...]:
    """Every counted constant, by name."""
    measured = [
        ConstantSupport(name=name, rows=held.rows, models=held.models, source=held.source)
        for name, held in vars(constants).items()
        if isinstance(held, Constant)
    ]
    plain = [
        ConstantSupport(name=name, rows=rows, models=models, source=source)
        for name, (rows, models, source) in _PLAIN.items()
    ]
    return tuple(sorted(measured + plain, key=lambda each: each.name))


def thin_constants() -> tuple[ConstantSupport, ...]:
    """The constants that one row or one model supports: a start beside them can be further off than its band says."""
    return tuple(each for each in constant_support() if each.is_thin)
