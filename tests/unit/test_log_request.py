"""What a start asked for, as its log tells it: flags, release, card, and what could not be known."""

from __future__ import annotations

import pytest

from planner.gpu_catalog import find_gpu
from planner.log_request import card_total_bytes, cards_of_total, request_of_log
from planner.request import PlanRequest
from planner.startup_log import read_startup_log
from planner.units import GIB

ARGUMENTS = (
    "(APIServer pid=1) INFO 09-01 10:00:00 [startup.py:96] non-default args: {'model_tag': 'meta-llama/Llama-3.1-8B-Instruct', 'host': "
    "'0.0.0.0', 'model': 'meta-llama/Llama-3.1-8B-Instruct', 'max_model_len': 32768, 'tensor_parallel_size': 2, "
    "'gpu_memory_utilization': 0.85, 'enforce_eager': True, 'kv_cache_dtype': 'fp8', 'enable_prefix_caching': False, "
    "'max_num_seqs': 64, 'limit_mm_per_prompt': {'image': 2}, 'speculative_config': {'method': 'ngram', 'num_speculative_tokens': 3}, "
    "'compilation_config': {'cudagraph_mode': 'PIECEWISE', 'cudagraph_capture_sizes': [1, 2, 4]}}\n"
)
BANNER = (
    "(EngineCore pid=5) INFO 09-01 10:00:01 [core.py:140] Initializing a V1 LLM engine (v0.33.0) with config: "
    "model='{model}', dtype=torch.bfloat16, max_seq_len=32768, tensor_parallel_size=2, pipeline_parallel_size=1, "
    "quantization=compressed-tensors, kv_cache_dtype=auto, device_config=cuda, compilation_config={{}}\n"
)


def fields(text: str) -> dict[str, object]:
    return dict(request_of_log(read_startup_log(text)).fields)


def codes(text: str) -> list[str]:
    return [finding.code for finding in request_of_log(read_startup_log(text)).findings]


def test_the_users_arguments_become_the_requests_flags() -> None:
    logged = request_of_log(read_startup_log(ARGUMENTS + BANNER.format(model="meta-llama/Llama-3.1-8B-Instruct")))

    request = logged.apply(PlanRequest(model_id="other/model", gpu="H100 80GB SXM", config_json="{}"))

    flags = request.flags
    assert (request.model_id, request.config_json, request.gpu) == (
        "meta-llama/Llama-3.1-8B-Instruct",
        None,
        "H100 80GB SXM",
    )
    assert (request.vllm_version, flags.max_model_len, flags.tensor_parallel_size) == ("0.33.0", 32768, 2)
    assert (flags.gpu_memory_utilization, flags.enforce_eager, flags.enable_prefix_caching) == (0.85, True, False)
    assert (flags.kv_cache_dtype, flags.max_num_seqs, flags.limit_mm_per_prompt) == ("fp8", 64, (("image", 2),))
    assert (flags.speculative_config.method, flags.speculative_config.num_speculative_tokens) == ("ngram", 3)
    assert (flags.cudagraph_mode, flags.cudagraph_capture_sizes) == ("PIECEWISE", (1, 2, 4))
    assert flags.quantization is None  # the checkpoint's own, which the engine prints


def test_a_namespace_of_every_argument_gives_no_switch_that_was_not_set() -> None:
    given = fields(
        "INFO 11-29 12:00:00 api_server.py:713] args: Namespace(host=None, port=8000, model='org/M', dtype='auto', swap_space=4, "
        "enforce_eager=False, enable_prefix_caching=None, max_num_seqs=256, max_model_len=None, gpu_memory_utilization=0.9)\n"
        "INFO 11-29 12:00:01 api_server.py:712] vLLM API server version 0.6.6\n"
    )

    assert (given["model_id"], given["max_num_seqs"], given["gpu_memory_utilization"]) == ("org/M", "256", "0.9")
    assert not {"enforce_eager", "enable_prefix_caching", "max_model_len"} & given.keys()


def test_a_folder_with_a_catalogued_name_is_that_model_and_the_log_says_so() -> None:
    text = BANNER.format(model="/data/models/Llama-3.1-8B-Instruct")

    assert fields(text)["model_id"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert "log-model-by-path" in codes(text)


@pytest.mark.parametrize(
    ("text", "total_gib"),
    [
        (
            "Free memory on device (78.7/79.19 GiB) on startup. Desired GPU memory utilization is (0.9, 71.27 GiB).",
            79.19,
        ),
        ("total_gpu_memory (23.64GiB) x gpu_memory_utilization (0.90) = 21.28GiB", 23.64),
        (
            (
                "non-default args: {'gpu_memory_utilization': 0.5}\nModel loading took 10.0 GiB\nMemory profiling takes 3 seconds. Total "
                "non KV cache memory: 12GiB; torch peak memory increase: 1.5GiB; non-torch forward increase memory: 0.5GiB; weights memory: "
                "10.0GiB.\nAvailable KV cache memory: 28.00 GiB"
            ),
            80.0,
        ),
    ],
)
def test_the_cards_total_is_printed_or_follows_from_the_share(text: str, total_gib: float) -> None:
    total = card_total_bytes(read_startup_log(text))

    assert total == pytest.approx(total_gib * GIB, abs=0.02 * GIB)


def test_a_card_is_named_by_the_log_or_not_at_all() -> None:
    memory = "Free memory on device (78.7/79.19 GiB) on startup. Desired GPU memory utilization is (0.9, 71.27 GiB).\n"
    named = (
        "WARNING [fused_moe.py:1] Config file not found at /x/E=128,N=768,device_name=NVIDIA_GeForce_RTX_3090.json\n"
    )

    assert "gpu" not in fields(memory)
    assert fields(memory)["gpu_memory_bytes"] == round(79.19 * GIB)
    assert "log-card-by-memory" in codes(memory)
    assert fields(named)["gpu"] == find_gpu("GeForce RTX 3090").name
    assert "log-without-card" in codes("Model loading took 1.0 GiB")


def test_cards_of_a_total_are_those_that_report_it() -> None:
    assert find_gpu("H100 80GB SXM").name in cards_of_total(find_gpu("H100 80GB SXM").total.best_bytes)
    assert cards_of_total(5) == ()


def test_what_others_hold_at_the_start_is_kept() -> None:
    text = "Free memory on device (30.0/79.19 GiB) on startup. Desired GPU memory utilization is (0.3, 23.76 GiB).\n"

    assert fields(text)["other_processes_bytes"] == round(79.19 * GIB) - 30 * GIB


def test_an_inferred_release_is_said() -> None:
    text = "INFO 09-01 10:00:00 [gpu_worker.py:466] Available KV cache memory: 5.0 GiB\n"

    assert fields(text)["vllm_version"] == "0.22.1"
    assert "log-release-inferred" in codes(text)
    assert "log-without-release" in codes("Available KV cache memory: 5.0 GiB")
