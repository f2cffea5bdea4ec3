import json

import pytest

from planner.__main__ import main

LLAMA = ["plan", "--model", "meta-llama/Llama-3.1-8B", "--gpu", "H100 80GB SXM"]
KEYS = {
    "model_id", "gpu", "vllm_version", "will_start", "reason", "findings", "resolved", "lines", "parameter_bytes",
    "weight_bytes", "weight_low_bytes", "weight_high_bytes", "activation_peak_bytes", "non_torch_bytes",
    "cuda_graph_bytes", "kv_pool_bytes", "kv_pool_low_bytes", "kv_pool_high_bytes", "block_size", "kv_groups",
    "kv_bytes_per_token", "state_bytes_per_request", "bytes_per_block", "num_gpu_blocks", "kv_cache_tokens",
    "max_model_len", "max_concurrency", "max_concurrency_low", "max_concurrency_high", "estimated_max_model_len",
    "needed_kv_bytes", "advice", "serve_command", "per_rank",
}  # fmt: skip


def run(capsys, *argv):
    status = main(argv)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_json_has_every_documented_key(capsys):
    status, out, _ = run(capsys, *LLAMA, "--json")

    assert status == 0
    assert json.loads(out).keys() >= KEYS


def test_flags_reach_the_plan(capsys):
    _, out, _ = run(capsys, *LLAMA, "--max-model-len", "32k", "-tp", "2", "--enforce-eager", "--json")

    answer = json.loads(out)
    assert answer["max_model_len"] == 32_000
    assert answer["cuda_graph_bytes"] == 0
    assert "--tensor-parallel-size 2" in answer["serve_command"]


def test_a_no_flag_switches_off(capsys):
    _, out, _ = run(capsys, *LLAMA, "--no-enable-prefix-caching", "--json")

    assert json.loads(out)["resolved"]["enable_prefix_caching"] is False


def test_will_not_start_is_an_answer(capsys):
    status, out, _ = run(capsys, "plan", "--model", "meta-llama/Llama-3.1-8B", "--gpu", "L4", "--json")

    answer = json.loads(out)
    assert status == 0
    assert not answer["will_start"]
    assert answer["advice"]


def test_the_text_tells_the_verdict_and_the_command(capsys):
    _, out, _ = run(capsys, *LLAMA)

    assert "starts" in out
    assert "vllm serve meta-llama/Llama-3.1-8B" in out


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (["plan"], "model"),
        (["plan", "--model", "no/such-model", "--gpu", "L4"], "python -m live fetch"),
        (["plan", "--model", "Qwen/Qwen3-8B", "--gpu", "Voodoo 2"], "gpu-memory-gib"),
        (["plan", "--model", "Qwen/Qwen3-8B"], "card"),
        ([*LLAMA, "--max-model-len", "-7"], "max_model_len"),
        ([*LLAMA, "--frobnicate", "1"], "frobnicate"),
        ([*LLAMA, "--max-model-len"], "value"),
        ([*LLAMA, "--model", "Qwen/Qwen3-8B"], "twice"),
        ([*LLAMA, "stray"], "stray"),
        ([*LLAMA, "-tp", "3"], "3"),
        (["plan", "--batch", "nowhere.jsonl"], "nowhere.jsonl"),
        (["plan", "--batch", "x.jsonl", "--gpu", "L4"], "batch"),
        (["planet"], "planet"),
        ([], "command"),
        (["plan", "--config", "no\nsuch.json", "--gpu", "L4"], "no such.json does not exist"),
    ],
)
def test_bad_input_is_one_line_on_stderr_and_status_2(capsys, argv, word):
    status, out, err = run(capsys, *argv)

    assert status == 2
    assert out == ""
    assert err.count("\n") == 1
    assert word in err


def test_help_lists_the_options(capsys):
    status, out, _ = run(capsys, "plan", "--help")

    assert status == 0
    assert "--gpu-memory-gib" in out


def test_a_batch_answers_each_line_and_names_bad_ones(capsys, tmp_path):
    file = tmp_path / "requests.jsonl"
    good = {"model": "Qwen/Qwen3-8B", "gpu": "L40S", "max_model_len": 8192}
    lines = [json.dumps(good), "{not json", "", json.dumps(good | {"tensor_parallel_size": "many"}), "[1]"]
    file.write_text("\n".join(lines))

    status, out, _ = run(capsys, "plan", "--batch", str(file))

    answers = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert answers[0]["num_gpu_blocks"] > 0
    assert [answer["error"]["line"] for answer in answers[1:]] == [2, 4, 5]
    assert answers[2]["error"]["field"] == "tensor_parallel_size"


def test_a_config_file_and_a_folder_give_the_same_plan(capsys, tmp_path):
    config = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8,
        "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 4096,
        "torch_dtype": "bfloat16", "model_type": "llama",
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))

    _, by_file, _ = run(capsys, "plan", "--config", str(tmp_path / "config.json"), "--gpu", "L4", "--json")
    _, by_folder, _ = run(capsys, "plan", "--model-dir", str(tmp_path), "--gpu", "L4", "--json")

    assert json.loads(by_file)["parameter_bytes"] == json.loads(by_folder)["parameter_bytes"] > 0


def test_a_batch_line_that_json_readers_disagree_on_is_answered_in_plain_json(capsys, tmp_path):
    file = tmp_path / "requests.jsonl"
    file.write_text('{"model": "Qwen/Qwen3-8B", "gpu": "L4", "gpu": "T4"}\n{"model": NaN}\n')

    _, out, _ = run(capsys, "plan", "--batch", str(file))

    twice, nan = (json.loads(line, parse_constant=pytest.fail)["error"] for line in out.splitlines())
    assert "stands twice" in twice["message"]
    assert nan["value"] is None


@pytest.mark.parametrize("flag", ["--num-gpu-blocks-override=100000", "--kv-cache-memory-bytes=200G"])
def test_a_fixed_pool_larger_than_the_card_does_not_start(capsys, flag):
    _, out, _ = run(capsys, *LLAMA, flag, "--json")

    answer = json.loads(out)
    assert answer["will_start"] is False
    assert flag[2:].split("=")[0].replace("-", "_") in answer["reason"]
