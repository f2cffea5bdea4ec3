"""vLLM's start-up messages of all releases, as patterns: which fact each states, and of which rank or start it is.

Each text has an anchor, a piece that every such message holds and that is cheap to look for. "GB" in old messages means GiB.
A message with several figures is one text with one named group per figure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Sizes within reason: more digits than any machine needs are no size.
# A number ends at what is no part of one; before a date or a line number of another line it was run into that.
_END = r"(?![\d.,]*\d|[eE][+-]?\d|-\d\d-\d\d|:\s)"
_NUMBER = rf"(?<![\w.,])-?\d{{1,7}}(?:\.\d{{1,9}})?{_END}"
_COUNT = rf"(?<![\w.,])(?:\d{{1,3}}(?:,\d{{3}}){{1,5}}|\d{{1,15}}){_END}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageText:
    """One message: `key` names it in the table of source lines; groups of `pattern` name facts."""

    key: str
    anchor: str
    pattern: re.Pattern[str]


_EXPRESSIONS = {
    "gib": _NUMBER,
    "number": _NUMBER,
    "count": _COUNT,
    "word": r"[^\s'\",]{1,300}",
    "release": r"(?!\d+\.?(?![\w.]))[^\s'\",]{1,300}",
}
_GROUP = re.compile(r"<(gib|count|number|word|release):(\w+)>")


def _text(key: str, anchor: str, pattern: str) -> MessageText:
    """A message; <gib:name>, <count:name>, <number:name> and <word:name> stand for the groups that facts are read from."""
    expanded = _GROUP.sub(lambda group: f"(?P<{group[2]}>{_EXPRESSIONS[group[1]]})", pattern)
    return MessageText(key=key, anchor=anchor, pattern=re.compile(expanded))


_GB = r" ?Gi?[Bb]\b"

TEXTS: tuple[MessageText, ...] = (
    # -- the terms, by rank
    _text("load", "Model loading took", rf"Model loading took <gib:weights>{_GB}"),
    _text("load_v0", "model weights took", rf"Loading model weights took (?:in total )?<gib:weights>{_GB}"),
    _text(
        "profile_v0",
        "model weights take",
        rf"model weights take <gib:weights>{_GB}; non_torch_memory takes <gib:non_torch>{_GB}; PyTorch activation peak "
        rf"memory takes <gib:activation_peak>{_GB}; the rest of the memory reserved for KV Cache is <gib:available_kv>{_GB}",
    ),
    _text("weights_v0", "model weights take", rf"model weights take <gib:weights>{_GB}"),
    _text("non_torch_v0", "non_torch_memory takes", rf"non_torch_memory takes <gib:non_torch>{_GB}"),
    _text("peak_v0", "activation peak", rf"PyTorch activation peak memory takes <gib:activation_peak>{_GB}"),
    _text("rest_v0", "reserved for KV Cache is", rf"reserved for KV Cache is <gib:available_kv>{_GB}"),
    _text(
        "share_v0",
        "total_gpu_memory (",
        rf"total_gpu_memory \(<gib:card_total>{_GB}\) x gpu_memory_utilization \(<number:gpu_memory_utilization>\)"
        rf" = <gib:requested>{_GB}",
    ),
    _text(
        "results_v0",
        "Memory profiling results",
        rf"total_gpu_memory=<gib:card_total>{_GB}.* non_torch_memory=<gib:non_torch>{_GB} kv_cache_size=<gib:available_kv>"
        rf"{_GB} gpu_memory_utilization=<number:gpu_memory_utilization>",
    ),
    _text("available", "Available KV cache memory", rf"Available KV cache memory: *<gib:available_kv>{_GB}"),
    _text("peak_debug", "torch peak memory increase", rf"torch peak memory increase: *<gib:activation_peak>{_GB}"),
    _text("non_torch_debug", "non-torch forward", rf"non-torch forward increase memory: *<gib:non_torch>{_GB}"),
    _text("consumed_debug", "total consumed (", rf"total consumed \(from mem_get_info\): *<gib:consumed>{_GB}"),
    _text("weights_debug", "weights memory:", rf"weights memory: *<gib:weights>{_GB}"),
    _text("graphs", "raph capturing finished", rf"(?<!Encoder )[Gg]raph capturing finished in .{{1,20}}?took <gib:cuda_graphs>{_GB}"),
    _text("graphs_estimate", "Estimated CUDA graph memory", rf"Estimated CUDA graph memory: <gib:cuda_graphs_estimate>{_GB} total"),
    _text(
        "graph_pool",
        "CUDA graph pool memory",
        rf"CUDA graph pool memory: <gib:cuda_graphs>{_GB} \(actual\), <gib:cuda_graphs_estimate>{_GB} \(estimated\)",
    ),
    _text("free", "emory on device", rf"memory on device (?:\S+ )?\(<gib:free_at_start>/<gib:card_total>{_GB}\) on startup"),
    _text("summary", "Desired GPU memory", rf"Desired GPU memory utilization is \(<number:gpu_memory_utilization>, <gib:requested>{_GB}\)"),
    _text("summary_weight", "Actual usage is", rf"Actual usage is <gib:weights>{_GB} for weight"),
    _text("summary_consumed", "Actual usage is", rf"Actual usage is <gib:consumed>{_GB} for consumed memory"),
    _text("summary_peak", "for peak activation", rf"<gib:activation_peak>{_GB} for peak activation"),
    _text("summary_non_torch", "for non-torch memory", rf"<gib:non_torch>{_GB} for non-torch memory"),
    _text("summary_graphs", "for CUDAGraph memory", rf"<gib:cuda_graphs>{_GB} for CUDAGraph memory"),
    _text("summary_fit", "to fit", rf"--kv-cache-memory=\d+`* \(<gib:suggested_kv_to_fit>{_GB}\) to fit"),
    _text("fit_bytes", "to fit", r"--kv-cache-memory=<count:suggested_kv_to_fit_in_bytes>`* to fit"),
    _text("fill_bytes", "to fully utilize", r"--kv-cache-memory=<count:suggested_kv_to_fill_in_bytes>`* to fully utilize"),
    _text("in_use_bytes", "kv cache memory in use is", r"Current kv cache memory in use is <count:available_kv_in_bytes> bytes"),
    _text("summary_fill", "to fully utilize", rf"--kv-cache-memory=\d+`* \(<gib:suggested_kv_to_fill>{_GB}\) to fully utilize"),
    _text("in_use", "kv cache memory in use is", rf"Current kv cache memory in use is <gib:available_kv>{_GB}"),
    _text("wanted", "is less than desired", rf"less than desired GPU memory utilization \(<number:gpu_memory_utilization>, <gib:requested>{_GB}\)"),
    _text(
        "given_pool",
        "memory for KV Cache as specified",
        rf"Initial free memory <gib:free_at_start>(?:{_GB})?, reserved <gib:kv_given>{_GB} memory for KV Cache as specified",
    ),
    _text(
        "requested_debug",
        "Requested memory:",
        rf"Initial free memory: <gib:free_at_start>{_GB}; Requested memory: <number:gpu_memory_utilization> \(util\), "
        rf"<gib:requested>{_GB}",
    ),
    _text("worker_requested", "worker requested memory", rf"worker requested memory: *<gib:requested>{_GB}"),
    _text("offloaded", "CPU offloaded parameters", r"Total CPU offloaded parameters: *<gib:cpu_offloaded>"),
    _text("cpu_pool", "for KV cache on node", rf"(?:Auto|Explicitly) set \(<gib:available_kv>/<gib:card_total>\){_GB} for KV cache"),
    # -- the pool
    _text("tokens", "KV cache size:", r"KV cache size: *<count:kv_cache_tokens> tokens"),
    _text(
        "concurrency",
        "Maximum concurrency for",
        r"Maximum concurrency for *<count:max_model_len_served> tokens per request: *<number:max_concurrency>x",
    ),
    _text("blocks_v0", " blocks: ", r"(?<!, )(?<!; )# [A-Za-z]{1,12} blocks: *<count:num_gpu_blocks>(?:[,;] # (?:CPU|swap) blocks: *<count:num_cpu_blocks>)?"),
    _text("blocks", "num_gpu_blocks is:", r"num_gpu_blocks is: *<count:num_gpu_blocks>"),
    _text("blocks_override", "with num_gpu_blocks_override=", r"num_gpu_blocks=[1-9]\d* with num_gpu_blocks_override=<count:num_gpu_blocks>"),
    _text("block_size", "block size to ", r"(?:kv cache|attention) block size to <count:printed_block_size>\b"),
    _text("padding", "padding layers", r"Add <count:padding_layers> padding layers"),
    _text("length", "Using max model len", r"Using max model len <count:max_model_len>"),
    _text("auto_fit", "Auto-fit max_model_len", r"Auto-fit max_model_len: reduced from \d+ to <count:max_model_len_served>"),
    _text("auto_full", "Auto-fit max_model_len", r"Auto-fit max_model_len: full model context length <count:max_model_len_served>"),
    _text("equivalent", "is equivalent to", r"The current --gpu-memory-utilization=<number:gpu_memory_utilization> is equivalent "
          r"to --gpu-memory-utilization=<number:equivalent_utilization>"),
    _text("estimate_off", "CUDA graph memory profiling is disabled", r"increasing --gpu-memory-utilization from <number:gpu_memory_utilization> to "),
    _text("estimate_later", "--gpu-memory-utilization from", r"increase --gpu-memory-utilization from <number:gpu_memory_utilization> to "),
    # -- what was started
    _text("engine", "LLM engine", r"Initializing (?:a V[01]|an) LLM engine (?:\((?:vx\.x\.x|v?<release:vllm_version>)\) )?with config"),
    _text("server", "server version", r"vLLM (?:API )?server version v?<release:vllm_version>"),
    _text("arguments", "args: ", r"non-default args: \{|\bargs: Namespace\("),
    _text("logo", " version ", r"█ +version +v?<release:vllm_version>"),
    _text("logo_model", "█ ", r"█ +model +<word:model_name>"),
    _text("serving", "serving model", r"vLLM server version [^\s,]+, serving model <word:model_name>"),
    _text("environment", "vLLM Version", r"vLLM Version *: *v?<word:environment_version>"),
    _text("loading", "Starting to load model", r"Starting to load model (?P<model_name>[^\s'\",]{1,300}?)(?:\.\.\.|\s|$)"),
    _text("world", "in world size", r"rank \d{1,5} in world size \d{1,5} is assigned as (?P<place>[A-Z ]*rank[\w ,/]{1,120})"),
    _text("platform", "detected platform", r"Automatically detected platform <word:platform>"),
    _text("batched", "max_num_batched_tokens=", r"Chunked prefill is enabled with max_num_batched_tokens=<count:max_num_batched_tokens>"),
    _text("architecture", "Resolved architecture", r"Resolved architecture: <word:architecture>"),
    _text("backend_chosen", "attention backend out of", r"Using (?:AttentionBackendEnum\.)?<word:attention_backend> attention backend out of"),
    _text("backend", " backend", r"Using (?:AttentionBackendEnum\.)?(?P<attention_backend>[\w-]+(?: [A-Z][\w-]+){0,2}?)(?: backend)? ?(?:attention )?"
          r"backend(?: on V1 engine\.?|\.| out of| \(selected)"),
    _text("compile", "torch.compile t", r"torch\.compile (?:takes|took) <number:compile_seconds> s in total"),
    _text("compile_cold", "raph", r"(?P<compile_cold>Compiling a graph for|Cache the graph)"),
    _text("compile_warm", "Directly load", r"(?P<compile_warm>Directly load (?:the (?:compiled|\d)|AOT))"),
    _text("runner", "Model Runner", r"Using (?P<runner_v2>V2) Model Runner"),
    _text("eager", "ager", r"(?P<eager>Enforce eager set, |Cudagraph is disabled under eager mode)"),
    _text("experts", "Expert parallelism", r"(?P<expert_parallel>Expert parallelism is enabled)"),
    _text("card", "device_name=", r"device_name=(?P<card_name>(?:NVIDIA|AMD|Intel)[\w-]{1,60})"),
)  # fmt: skip

GIB_FACTS = frozenset(
    [
        "weights", "available_kv", "activation_peak", "non_torch", "cuda_graphs", "cuda_graphs_estimate", "consumed", "requested",
        "card_total", "free_at_start", "suggested_kv_to_fit", "suggested_kv_to_fill", "kv_given", "cpu_offloaded",
    ]
)  # fmt: skip
BYTE_FACTS = frozenset(f"{name}_in_bytes" for name in GIB_FACTS)
COUNT_FACTS = frozenset(
    [
        "kv_cache_tokens", "max_model_len", "max_model_len_served", "num_gpu_blocks", "num_cpu_blocks", "printed_block_size",
        "padding_layers", "max_num_batched_tokens",
    ]
)  # fmt: skip
NUMBER_FACTS = frozenset(["max_concurrency", "gpu_memory_utilization", "equivalent_utilization", "compile_seconds"])

# Pieces that many anchors hold: a line without a piece holds none of its anchors.
_PIECES = ("emory", "iB", "KV", "version", "odel", "block", "onfig", "ackend", "raph", "rank", "load")


def _by_piece() -> tuple[tuple[str, tuple[MessageText, ...]], ...]:
    rest = list(TEXTS)
    groups = []
    for piece in _PIECES:
        group = tuple(text for text in rest if piece in text.anchor)
        rest = [text for text in rest if text not in group]
        groups.append((piece, group))
    return (*groups, ("", tuple(rest)))


TEXTS_BY_PIECE = _by_piece()
