"""Start-up logs as vLLM writes them, made from a start's numbers: for tests that need a log and not someone's machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StartNumbers:
    """What a log of 0.19 prints of one card. The numbers of a public start of Qwen3-8B on an H100 (planner/data/truth)."""

    model: str = "Qwen/Qwen3-8B"
    version: str = "0.19.0"
    utilization: float = 0.95
    max_model_len: int = 8192
    total: float = 79.19
    free: float = 78.68
    weights: float = 15.27
    activation: float = 2.21
    non_torch: float = 0.25
    graphs: float = 0.96
    pool: float = 57.5
    tokens: int = 418_688
    concurrency: float = 51.11


def start_log(numbers: StartNumbers | None = None) -> str:
    """The lines of one start that a reader of memory needs, at log level INFO."""
    n = numbers or StartNumbers()
    requested = round(n.total * n.utilization, 2)
    api, engine = "(APIServer pid=1) INFO 04-22 09:13:50", "(EngineCore_DP0 pid=71) INFO 04-22 09:14"
    return f"""\
{api} [utils.py:299] vLLM API server version {n.version}
{api} [utils.py:233] non-default args: {{'model': '{n.model}', 'max_model_len': {n.max_model_len}, \
'gpu_memory_utilization': {n.utilization}, 'enable_prefix_caching': False}}
{engine}:01 [core.py:101] Initializing a V1 LLM engine (v{n.version}) with config: model='{n.model}', speculative_config=None, \
tokenizer='{n.model}', dtype=torch.bfloat16, max_seq_len={n.max_model_len}, tensor_parallel_size=1, pipeline_parallel_size=1, \
data_parallel_size=1, quantization=None, enforce_eager=False, kv_cache_dtype=auto, enable_prefix_caching=False
{engine}:20 [gpu_model_runner.py:4810] Model loading took {n.weights} GiB memory and 5.114230 seconds
{engine}:58 [gpu_worker.py:436] Available KV cache memory: {n.pool} GiB
{engine}:58 [kv_cache_utils.py:1319] GPU KV cache size: {n.tokens:,} tokens
{engine}:58 [kv_cache_utils.py:1324] Maximum concurrency for {n.max_model_len:,} tokens per request: {n.concurrency}x
{engine}:59 [gpu_model_runner.py:5893] Graph capturing finished in 9 secs, took {n.graphs} GiB
{engine}:59 [gpu_worker.py:660] Free memory on device ({n.free}/{n.total} GiB) on startup. Desired GPU memory utilization is \
({n.utilization}, {requested} GiB). Actual usage is {n.weights} GiB for weight, {n.activation} GiB for peak activation, \
{n.non_torch} GiB for non-torch memory, and {n.graphs} GiB for CUDAGraph memory. Replace gpu_memory_utilization config with \
`--kv-cache-memory=60555000000` (56.4 GiB) to fit into requested memory, or `--kv-cache-memory=64300000000` (59.88 GiB) to fully \
utilize gpu memory. Current kv cache memory in use is {n.pool} GiB.
(APIServer pid=1) INFO:     Application startup complete.
"""
