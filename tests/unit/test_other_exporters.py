"""A text that is not vLLM's is refused by the name of the server whose it is."""

import pytest

from live.exposition import read_exposition
from live.metrics import read_metrics
from live.other_exporters import other_exporter

OTHERS = {
    "SGLang": '# HELP sglang:num_running_reqs Running.\nsglang:num_running_reqs{model_name="m"} 3.0',
    "Text Generation Inference": "tgi_queue_size 3",
    "llama.cpp": "# TYPE llamacpp:kv_cache_usage_ratio gauge\nllamacpp:kv_cache_usage_ratio 0.1",
    "Triton Inference Server": 'nv_inference_count{model="vllm_model",version="1"} 3',
    "NVIDIA Dynamo": 'dynamo_frontend_requests_total{model="vllm"} 3',
    "TensorRT-LLM": "trtllm:request_success_total 3",
    "NVIDIA's DCGM exporter": 'DCGM_FI_DEV_FB_USED{gpu="0"} 3',
}


@pytest.mark.parametrize("name", OTHERS)
def test_the_server_is_named(name):
    text = f"# HELP python_info Python.\npython_info 1.0\n{OTHERS[name]}\n"

    reading = read_metrics(text, 0)

    assert reading.engines == ()
    assert [finding.code for finding in reading.findings] == ["no-vllm-metrics"]
    assert f"is {name}'s metrics, not vLLM's" in reading.findings[0].text


@pytest.mark.parametrize("text", ["<html>sglang: no</html>", "", "hello tgi_queue_size", 'my_total{job="sglang"} 3'])
def test_what_is_not_known_is_not_named(text):
    assert other_exporter(text) is None


def test_an_engine_beside_another_exporter_is_read():
    text = 'dynamo_component_uptime 3\nvllm:num_requests_running{model_name="m"} 3.0\n'

    assert read_exposition(text).other_exporter is None
    assert read_metrics(text, 0).engines[0].num_requests_running == 3
