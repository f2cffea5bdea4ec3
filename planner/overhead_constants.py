"""Measured constants of activation peak, non-torch memory and CUDA graphs, by era and card class, each with its source.

Read 2026-11 from public start-up logs (planner/data/truth) and vLLM's sources. `rows` counts the logs and `models` the
distinct models behind a constant: "one row" says that a single log supports it and its band is wide for that.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.units import KIB, MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A measured quantity with its 90 % interval, and where it comes from."""

    best: float
    low: float
    high: float
    source: str
    rows: int
    models: int

    @property
    def support(self) -> str:
        """How much stands behind it, in words; "one row" and "one model" mark what little supports."""
        if self.rows == 1:
            return "one row"
        return f"{self.rows} rows of one model" if self.models == 1 else f"{self.rows} rows, {self.models} models"


# -- sampler: bytes per logit beside the logits themselves (rows x vocabulary) ------------------------------------------

# PyTorch's top-k/top-p: fp32 copy, sorted values, int64 indices and the sort's own double buffers (v1/sample/ops, 0.8-0.16).
# 7.38, 4.76, 5.56 GiB (H100, three models), 1.40 (24 GB), V0 1.22, 1.26, 1.39: 38.0 bytes with bf16 logits in all seven.
SORT_SAMPLER_BYTES_PER_LOGIT = Constant(best=36.0, low=35.4, high=36.6, source="0.8-0.16 and V0 logs", rows=7, models=6)
# Triton's or FlashInfer's top-k/top-p (0.17 on): fp32 copy, probabilities, noise. 43 rows of 0.19 agree to 0.01 GiB.
FUSED_SAMPLER_BYTES_PER_LOGIT = Constant(best=12.0, low=11.9, high=12.2, source="0.19 H100 logs", rows=46, models=21)
# V2 runner to 0.32: the dummy batch asks for no processing, so the logits stay as they are (v1/worker/gpu/sample).
V2_PLAIN_SAMPLER_BYTES_PER_LOGIT = Constant(best=0.1, low=0.0, high=4.0, source="0.27-0.32 source", rows=3, models=3)
# Persistent: output counts int32 and one prompt bit a logit, for every sequence (v1/worker/gpu/sample/penalties.py).
V2_PENALTY_BYTES_PER_LOGIT = 4.125

# -- allocator and library workspaces -----------------------------------------------------------------------------------

CUBLAS_WORKSPACE_HOPPER_BYTES = 32 * MIB  # PyTorch's default on compute capability 9.0 and up
CUBLAS_WORKSPACE_BYTES = 8 * MIB + 128 * KIB  # 4096:2 and 16:8 below
NUM_SMS = {  # streaming multiprocessors: one vocabulary-long fp32 row each in Triton's top-k/top-p buffer
    "H100 80GB PCIe": 114, "H100": 132, "H200": 132, "H800": 132, "GH200": 132, "H20": 78, "B200": 148, "B300": 148,
    "A100": 108, "A800": 108, "L40S": 142, "L40": 142, "L4": 58, "L20": 92, "T4": 40, "A10": 72, "A30": 56, "A40": 84,
    "V100": 80, "RTX PRO 6000": 188, "RTX 6000 Ada": 142, "RTX A6000": 84, "RTX 5090": 170, "RTX 5080": 84,
    "RTX 4090": 128, "RTX 4080": 76, "RTX 3090": 82, "GB10": 48, "MI300X": 304, "MI325X": 304, "MI355X": 256,
}  # fmt: skip
TYPICAL_NUM_SMS = 108

# -- compile and layers -------------------------------------------------------------------------------------------------

# A cold torch.compile holds a second copy of the embedding table while its gather is compiled: 1.10 GiB on the first of
# 2 and of 4 stages (Llama-3.1-8B, 0.19), 1.18 (Qwen3-8B), 0.60 (a 3B), against 0.19 and 0.15 warm. Unsharded tables of
# 1.4 and 2 GiB on a 96 GB Blackwell took 0.4 to 1.0 tables more (Qwen3-32B at TP 1 and PP 2, a 70B; unexplained).
COLD_COMPILE_TOKEN_COPIES = 2
COLD_COMPILE_EXTRA_TABLES_SM120 = 0.5
# From 0.27 on one table more: Qwen3-32B at TP 1 and PP 2 (RTX PRO 6000), Qwen3-32B-AWQ and 14B-AWQ twice (RTX 5090), within 0.2 GiB.
COLD_COMPILE_EXTRA_TABLES_SM120_027 = 1.0
# Elsewhere nine cold starts (A100, 4090, L4, four L40S; 0.19 to 0.31, tables of 0.5 to 1.5 GiB) stayed within a tenth of a table; one 3B
# on an 8 GB card (0.18) took 0.4 tables more.
COLD_COMPILE_MOST_EXTRA_TABLES = 0.5
V0_TENSOR_PARALLEL_COPIES = 2  # all-reduce outputs: Qwen2.5-32B on two L40S, 1.26 GiB at 10,000 tokens (one row)
LAYER_RESIDUAL_COPIES = 3  # hidden, residual and the norm's output; V0 logs at 20,000 and 29,000 tokens fit to 0.01 GiB
# V1 runner where layers rule: 0.77 (CodeLlama-7b) and 0.85 GiB (Granite-3.1-8B, both 0.19), 1.97 (LLaVA-1.6-7B, 0.10.2).
LAYER_RESIDUAL_COPIES_V1 = 3.75
GATED_ENCODER_RESIDUAL_COPIES = (
    4.3  # Qwen2.5-VL-7B at 114,688 video tokens, 0.23: 15.5 GiB beside the weights (one row)
)
ENCODER_RESIDUAL_COPIES = (
    3.2  # Qwen3.8-27B, 0.27.1: 1.84 GiB printed beside the graph estimate; a 4B on an L4 agrees (two rows)
)

MLA_CONTEXT_TOKENS = 65536  # read in 0.11 to 0.31
INDEXER_BYTES_PER_TOKEN = 40 * 132  # 825 MiB at 163,840 tokens; read in 0.19 to 0.31

# -- non-torch growth between vLLM's first snapshot and the end of profiling, GiB ---------------------------------------

_LOGS = "start-up logs"
NON_TORCH_V0 = Constant(best=0.08, low=0.02, high=0.35, source=_LOGS, rows=7, models=5)
NON_TORCH_V0_TP = Constant(best=0.25, low=0.20, high=0.60, source=_LOGS, rows=3, models=3)
NON_TORCH_V1 = Constant(best=0.13, low=0.00, high=0.25, source=_LOGS, rows=10, models=8)
NON_TORCH_V1_TP_PCIE = Constant(
    best=0.15, low=0.00, high=1.20, source="opt-2.7b TP 4 0.09, L40S TP 2", rows=2, models=2
)
NON_TORCH_V1_TP_NVLINK = Constant(
    best=0.70, low=0.20, high=2.10, source="H100 TP 2 0.55, H200 TP 2 0.75 GiB", rows=2, models=2
)
NON_TORCH_V1_TP_NVLINK_HIGH_PER_RANK_GIB = 0.20  # eight B200 with fused all-reduce (0.13) left 3.5 GiB
# 0.17.0 left what 0.15 and 0.16 left, on the same card with the same model; 0.18 twice as much.
NON_TORCH_017_FIRST = Constant(best=0.13, low=0.05, high=0.33, source="Qwen3-14B on an H100, 0.17.0", rows=1, models=1)
NON_TORCH_017 = Constant(best=0.25, low=0.23, high=0.33, source="0.19 H100 logs", rows=38, models=18)
# Granite's 49,155 columns (3.1-2B, 3.1-8B, 3.3-8B) left 0.46 GiB, 49,156 (Granite vision) and all other vocabularies 0.25: rows
# of logits that do not begin on 16 bytes take kernels with local memory, which the driver reserves for every multiprocessor.
NON_TORCH_017_UNALIGNED_LOGITS = Constant(best=0.46, low=0.23, high=0.50, source="0.19 H100 logs", rows=2, models=3)
NON_TORCH_017_PP = Constant(best=0.07, low=0.05, high=0.27, source="0.19 H100 PP 2 and 4", rows=2, models=1)
NON_TORCH_021 = Constant(best=0.25, low=0.05, high=0.60, source="0.21 and 0.24 pools, an sm_90 slice", rows=3, models=3)
# A cold compile left 0.4 to 0.5 GiB behind on three cards (6 GB, a 4070 laptop, RTX 8000), nothing on an A100 and a 4090:
# the high end.
NON_TORCH_027 = Constant(best=0.12, low=0.00, high=0.45, source="A100, 4090, L4 less the V2 tables", rows=4, models=4)
# Compiled text models whose table is tied left one table more: 0.5B 0.26 GiB (of 0.25; 0.05 in another start), 1.5B 0.43 and 0.53
# (of 0.43; 0.11 eager), 3B 0.70 (of 0.58), 4B 0.55 (of 0.72). Untied ones none: an 8B twice, a 14B three times. Why is not known.
TIED_TABLES_LEFT_027 = Constant(best=1.0, low=0.1, high=1.3, source="tied tables, 0.27 to 0.31", rows=6, models=4)
# Tensor parallel over NVLink (symmetric memory, custom all-reduce, NCCL): base + slope x layers, by log2(TP).
TP_NVLINK_BASE_GIB = 2.05
TP_NVLINK_BASE_PER_DOUBLING_GIB = 0.03
TP_NVLINK_PER_LAYER_GIB = 0.0006
TP_NVLINK_PER_LAYER_PER_DOUBLING_GIB = 0.0010
NON_TORCH_TP_NVLINK_021 = Constant(best=1.74, low=0.60, high=2.40, source="H200 TP 8", rows=1, models=1)
# Over PCIe: 0.18 GiB at TP 2 (4090, RTX PRO 6000), 0.7 at TP 4 (RTX PRO 6000), experts' workspace and tables apart.
TP_PCIE_PER_RANK_GIB = 0.20
TP_PCIE_BASE_GIB = -0.15
NON_TORCH_AMD_APU = Constant(best=0.50, low=0.20, high=1.60, source="Strix Halo", rows=2, models=1)
# Beside the activation on one MI300X: 1.1 (0.17.1), 2.2 (V0), 3.6 GiB (0.31, an encoder in it); hipBLASLt keeps 76 MiB.
NON_TORCH_AMD = Constant(best=1.10, low=0.30, high=3.60, source="MI300X pools", rows=3, models=3)
# A graphics card: 0.37 GiB beside weights and sampler (0.15 or 0.16, eager).
NON_TORCH_RADEON = Constant(best=0.40, low=0.10, high=1.40, source="RX 7900 GRE", rows=1, models=1)
NON_TORCH_AMD_TP = Constant(best=3.50, low=1.00, high=5.60, source="R9700 TP 4", rows=1, models=1)
NON_TORCH_XPU = Constant(best=1.50, low=0.90, high=1.70, source="Arc Pro B60, V1 runner", rows=1, models=1)
NON_TORCH_XPU_V2 = Constant(best=0.83, low=0.60, high=1.50, source="Arc Pro B60, V2 runner", rows=1, models=1)
# GB10 and Thor: free memory is the system's, so page cache and other processes count. 0.13: 1.6 GiB beside the activation
# with 15 GiB of weights, 1.9 with 29; 0.18 to 0.27: 2.0 with 1, 4.8 with 22, 5.5 with 34, 4.2 with 48, 4.3 and 5.5 with 51;
# 0.30: near nothing.
NON_TORCH_UNIFIED_BEFORE_017 = Constant(best=1.75, low=0.50, high=4.60, source="GB10 pools, 0.13", rows=2, models=2)
NON_TORCH_UNIFIED = Constant(
    best=1.90, low=0.00, high=4.60, source="GB10 and Thor logs and pools, 0.18 to 0.27", rows=6, models=5
)
NON_TORCH_UNIFIED_PER_WEIGHT = 0.06
NON_TORCH_UNIFIED_028 = Constant(best=0.50, low=0.00, high=3.50, source="GB10 pools, 0.30", rows=4, models=4)

# -- CUDA graphs, GiB, with the 51 default sizes -------------------------------------------------------------------------

GRAPH_REFERENCE_COUNT = 102  # 51 PIECEWISE and 51 FULL graphs: the default with 1024 sequences
GRAPH_REFERENCE_TOKENS = 512
# vLLM's own estimate, V1 runner: dense models of 0.19-0.24 (8 to 80 layers) within 20 %. MoE models differ: Gemma-4-26B-A4B
# (L40S, 0.25) and Qwen3-Coder-30B (4 x L40S, 0.24) charge nothing for their experts, hybrids and older ones 0.03 GiB a layer.
ESTIMATE_BASE_GIB = -0.12
ESTIMATE_PER_LAYER_GIB = 0.0105
ESTIMATE_PER_THOUSAND_HIDDEN_GIB = 0.126
ESTIMATE_PER_MOE_LAYER_GIB = 0.010
ESTIMATE_PER_MOE_LAYER_HIGH_GIB = 0.030
ESTIMATE_HALF_WIDTH = 0.40
# The first capture of a gated-delta-net layer brings its kernels along, however small the sizes: Qwen3.5-4B 0.14 and 9B 0.08 GiB
# above the line (24 such layers each), 27B 0.44 to 0.83 (48), a 27B with five sizes up to 16 0.54.
ESTIMATE_PER_GDN_LAYER_GIB = 0.006
ESTIMATE_PER_GDN_LAYER_HIGH_GIB = 0.014
V2_ESTIMATE_FACTOR = (
    0.6  # 0.29 on: 0.43 GiB for Llama-3.1-8B (A100), 0.69 for Qwen3.8-27B (96 GB Blackwell), GB10 (4 models) above
)
V2_ESTIMATE_HALF_WIDTH = 0.75
# In 0.26 the estimate of a GDN hybrid holds a transient per batched token (one report, two releases compared).
GDN_ESTIMATE_BYTES_PER_TOKEN = 128 * KIB
ACTUAL_BASE_GIB = 0.05
ACTUAL_PER_LAYER_GIB = 0.0114
ACTUAL_PER_THOUSAND_HIDDEN_GIB = 0.09
ACTUAL_PER_MOE_LAYER_GIB = 0.026
V2_ACTUAL_FACTOR = 0.5
ACTUAL_BEFORE_017_FACTOR = 0.6  # PIECEWISE graphs alone to 0.10: 0.3 to 0.6 GiB for 1.5B to 8B
SMALLEST_GRAPH_GIB = 0.04
