from dataclasses import replace

import pytest

from planner.error_lines import explain, read_error
from planner.model_catalog import catalogue_documents
from planner.planning import answer
from planner.request import PlanRequest
from planner.units import GIB

FIT = (
    "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, "
    "which is larger than the available KV cache memory (10.00 GiB). Based on the available memory, the estimated "
    "maximum model length is 81904. Try increasing `gpu_memory_utilization` or decreasing `max_model_len`."
)
FIT_GB = (
    "To serve at least one request with the models's max seq len (262144), (24.0 GB KV cache is needed, which is "
    "larger than the available KV cache memory (9.97 GB). Try increasing `gpu_memory_utilization`"
)
FIT_V0 = (
    "The model's max seq len (29000) is larger than the maximum number of tokens that can be stored in KV cache "
    "(23648). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
)
FREE = (
    "Free memory on device cuda:0 (6.56/63.63 GiB) on startup is less than desired GPU memory utilization "
    "(0.92, 58.54 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
)


@pytest.fixture(scope="module")
def plan():
    request = PlanRequest(model_id="meta-llama/Llama-3.1-8B", gpu="GeForce RTX 4090")
    return answer(request, catalogue_documents(request.model_id))[0]


def test_a_fit_error_is_read():
    reading = read_error(FIT)

    assert reading.kind == "length_does_not_fit"
    assert reading.max_model_len == 131_072
    assert reading.needed_bytes == 16 * GIB
    assert reading.available_bytes == 10 * GIB
    assert reading.estimated_max_model_len == 81_904


def test_gb_of_an_old_line_means_gib():
    reading = read_error(FIT_GB)

    assert reading.needed_bytes == 24 * GIB
    assert reading.estimated_max_model_len is None


def test_a_v0_line_counts_tokens():
    reading = read_error(FIT_V0)

    assert (reading.max_model_len, reading.available_tokens) == (29_000, 23_648)


def test_a_free_memory_error_is_read():
    reading = read_error(FREE)

    assert reading.kind == "too_little_free"
    assert reading.total_bytes == int(63.63 * GIB)
    assert reading.gpu_memory_utilization == 0.92


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("No available memory for the cache blocks. Try increasing ...", "no_cache_memory"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 786.00 MiB.", "out_of_memory"),
    ],
)
def test_other_memory_errors_are_told_apart(text, kind):
    assert read_error(text).kind == kind


def test_other_text_is_no_error():
    assert read_error("INFO 11-29 Loading weights took 3.2 seconds") is None


def test_a_line_broken_over_lines_is_read():
    assert read_error(FIT.replace(", ", ",\n      ")).needed_bytes == 16 * GIB


def test_the_explanation_sets_measured_beside_planned(plan):
    sentences = explain(read_error(FIT), plan)

    assert any("16.00 GiB by vLLM, 16.00 GiB by this plan" in sentence for sentence in sentences)
    assert any("--max-model-len 81904" in sentence for sentence in sentences)


def test_another_length_is_said(plan):
    reading = replace(read_error(FIT), max_model_len=4096)

    assert any("set the same length" in sentence for sentence in explain(reading, plan))


@pytest.mark.parametrize(
    "text", [FIT, FIT_GB, FIT_V0, FREE, "CUDA out of memory", "No available memory for the cache blocks"]
)
def test_every_error_has_an_explanation(text, plan):
    assert all(sentence.endswith(".") for sentence in explain(read_error(text), plan))


def test_the_most_utilisation_that_starts_is_named(plan):
    assert any("--gpu-memory-utilization 0.1 " in sentence for sentence in explain(read_error(FREE), plan))
