"""Pasted commands: what people paste, and what must be said about it."""

from __future__ import annotations

from dataclasses import fields

import pytest

from planner.command_line import ParsedCommand, parse_command
from planner.flags import all_flags, find_flag
from planner.request import EngineFlags, PlanRequest, SpeculativeConfig
from planner.request_mapping import FLAG_READERS
from planner.versions import parse_version


def parsed(text: str, version: str = "0.33.0") -> PlanRequest:
    return parse_command(text, version).apply(PlanRequest(model_id="base", gpu="L4", vllm_version=version))


def codes(command: ParsedCommand) -> list[str]:
    return [finding.code for finding in command.findings]


def test_serve_line_fills_model_and_flags() -> None:
    request = parsed("vllm serve Qwen/Qwen3-8B --max-model-len 32k -tp 2 --gpu_memory_utilization=0.85 --enforce-eager")

    assert request.model_id == "Qwen/Qwen3-8B"
    assert request.gpu == "L4"
    assert request.flags == EngineFlags(
        max_model_len=32000, tensor_parallel_size=2, gpu_memory_utilization=0.85, enforce_eager=True
    )


def test_module_line_takes_the_model_as_a_flag() -> None:
    request = parsed("python3 -m vllm.entrypoints.openai.api_server --model org/m --max-num-seqs 64 --port 8000")

    assert (request.model_id, request.flags.max_num_seqs) == ("org/m", 64)


DOCKER = """docker run --runtime nvidia --gpus '"device=0,1"' \\
    -v ~/.cache/huggingface:/root/.cache/huggingface --env "HF_TOKEN=$SECRET" -e VLLM_USE_V2_MODEL_RUNNER=0 \\
    -p 8000:8000 --ipc=host vllm/vllm-openai:v0.11.0 \\
    --model mistralai/Mistral-7B-v0.1 --max-model-len=4096  # short
"""


def test_docker_line_gives_version_environment_and_cards() -> None:
    command = parse_command(DOCKER, "0.33.0")
    request = command.apply(PlanRequest(model_id="base"))

    assert (request.model_id, request.vllm_version, request.model_runner) == (
        "mistralai/Mistral-7B-v0.1",
        "0.11.0",
        "v1",
    )
    assert request.flags == EngineFlags(max_model_len=4096)
    assert command.num_cards == 2
    assert command.findings == ()


def test_an_image_without_a_release_is_said() -> None:
    command = parse_command("podman run --rm vllm/vllm-openai:latest --model org/m", "0.33.0")

    assert codes(command) == ["image-without-version"]


def test_an_entry_point_of_a_shell_is_followed() -> None:
    request = parsed("docker run --entrypoint bash vllm/vllm-openai:v0.19.0 -c 'pip list && vllm serve org/m -pp 2'")

    assert (request.model_id, request.vllm_version, request.flags.pipeline_parallel_size) == ("org/m", "0.19.0", 2)


KUBERNETES = """
apiVersion: apps/v1
spec:
  containers:
    - name: server
      image: vllm/vllm-openai:v0.19.1
      command: ["vllm", "serve", "org/m"]
      args:
        - --max-model-len=8192
        - "--tensor-parallel-size"
        - "4"
      env:
        - name: VLLM_ALLOW_LONG_MAX_MODEL_LEN
          value: "1"
"""


def test_kubernetes_container_is_read() -> None:
    request = parsed(KUBERNETES)

    assert (request.model_id, request.vllm_version, request.allow_long_max_model_len) == ("org/m", "0.19.1", True)
    assert request.flags == EngineFlags(max_model_len=8192, tensor_parallel_size=4)


def test_compose_service_is_read() -> None:
    text = "services:\n  vllm:\n    image: vllm/vllm-openai:v0.30.0\n    command: --model org/m --max-num-seqs 8\n"
    request = parsed(text)

    assert (request.model_id, request.vllm_version, request.flags.max_num_seqs) == ("org/m", "0.30.0", 8)


def test_args_file_is_read() -> None:
    text = "# server\nmodel: org/m\nport: 8000\nmax-model-len: 16384\nenable-prefix-caching: false\nspeculative-config:\n  method: mtp\n  num_speculative_tokens: 2\n"
    request = parsed(text)

    assert request.model_id == "org/m"
    assert request.flags == EngineFlags(
        max_model_len=16384,
        enable_prefix_caching=False,
        speculative_config=SpeculativeConfig(method="mtp", num_speculative_tokens=2),
    )


@pytest.mark.parametrize("end", ["\\\n", "`\r\n", "^\n"])
def test_lines_go_on_as_in_each_shell(end: str) -> None:
    assert parsed(f"vllm serve org/m {end}  --max-num-seqs 4 {end}  --dtype half").flags == EngineFlags(
        max_num_seqs=4, dtype="half"
    )


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        ("--no-enable-prefix-caching", EngineFlags(enable_prefix_caching=False)),
        ("--enable_chunked_prefill", EngineFlags(enable_chunked_prefill=True)),
        ("--enable-chunked-prefill False", EngineFlags(enable_chunked_prefill=False)),
        ("--max-model-len auto", EngineFlags(max_model_len="auto")),
        ("--max-model-len -1", EngineFlags(max_model_len="auto")),
        ("--max-model-len 1M", EngineFlags(max_model_len=2**20)),
        ("--kv-cache-memory=25G", EngineFlags(kv_cache_memory_bytes=25 * 2**30)),
        ("-q awq --dtype half", EngineFlags(quantization="awq", dtype="half")),
        ("-dp 2 -ep -dcp 2", EngineFlags(data_parallel_size=2, enable_expert_parallel=True, decode_context_parallel_size=2)),
        ("--cudagraph-capture-sizes 1 2 4 --swap-space 0", EngineFlags(cudagraph_capture_sizes=(1, 2, 4), swap_space=0.0)),
        ("-O0", EngineFlags(cudagraph_mode="NONE")),
        ("-O3", EngineFlags()),
        ("-cc.cudagraph_mode=full_decode_only", EngineFlags(cudagraph_mode="FULL_DECODE_ONLY")),
        ("--attention-config.backend FLASHINFER", EngineFlags(attention_backend="FLASHINFER")),
        ("""--compilation-config '{"cudagraph_capture_sizes": [1, 8]}'""", EngineFlags(cudagraph_capture_sizes=(1, 8))),
        ("""--limit-mm-per-prompt '{"image": 2, "video": {"count": 0}}'""", EngineFlags(limit_mm_per_prompt=(("image", 2), ("video", 0)))),
        ("--limit-mm-per-prompt image=2,video=0", EngineFlags(limit_mm_per_prompt=(("image", 2), ("video", 0)))),
        ("--limit-mm-per-prompt.image 2 --limit-mm-per-prompt.video 1", EngineFlags(limit_mm_per_prompt=(("image", 2), ("video", 1)))),
        (
            "--speculative-config.method eagle3 --speculative-config.num_speculative_tokens 3 --speculative-config.model org/e",
            EngineFlags(speculative_config=SpeculativeConfig(method="eagle3", num_speculative_tokens=3, model="org/e")),
        ),
        (
            """-sc '{"model": "ngram", "num_speculative_tokens": 4}'""",
            EngineFlags(speculative_config=SpeculativeConfig(method="ngram", num_speculative_tokens=4, model="ngram")),
        ),
        ("--served-model-name a b c --max-loras 3", EngineFlags(max_loras=3)),
        ("--tool-call-parser hermes --enable-auto-tool-choice", EngineFlags()),
    ],
)  # fmt: skip
def test_spellings_that_vllm_takes(arguments: str, flags: EngineFlags) -> None:
    assert parsed(f"vllm serve org/m {arguments}").flags == flags


def test_environment_before_the_command_counts() -> None:
    text = "export HF_HOME=/x && CUDA_VISIBLE_DEVICES=0 VLLM_ATTENTION_BACKEND=FLASHINFER uv run vllm serve org/m"

    assert parsed(text, "0.11.0").flags.attention_backend == "FLASHINFER"


@pytest.mark.parametrize(
    ("text", "version", "code", "said"),
    [
        ("vllm serve m --swap-space 4", "0.33.0", "flag-not-in-version", "removed in 0.18"),
        ("vllm serve m --mamba-cache-mode align", "0.11.0", "flag-not-in-version", "came with 0.15"),
        ("vllm serve m --make-it-fast", "0.33.0", "flag-unknown", "--make-it-fast"),
        ("vllm serve m --max-model-len long", "0.33.0", "value-not-understood", "max_model_len"),
        ("vllm serve m --max-num-seqs", "0.33.0", "value-missing", "--max-num-seqs"),
        ("vllm serve m extra", "0.33.0", "argument-not-understood", "extra"),
        ("vllm serve m --hf-overrides '{}'", "0.33.0", "flag-not-modelled", "--hf-overrides"),
        ("VLLM_MLA_DISABLE=1 vllm serve m", "0.33.0", "environment-not-modelled", "VLLM_MLA_DISABLE"),
        ("vllm serve m --speculative-config nonsense", "0.33.0", "value-not-understood", "speculative_config"),
        ("vllm serve --max-num-seqs 3", "0.33.0", "model-not-named", "no model"),
        ("please help", "0.33.0", "command-not-found", "vllm serve"),
    ],
)
def test_what_is_not_understood_is_said(text: str, version: str, code: str, said: str) -> None:
    command = parse_command(text, version)

    assert codes(command) == [code]
    assert said in command.findings[0].text


def test_an_unknown_flag_does_not_swallow_the_next_one() -> None:
    assert parsed("vllm serve m --odd-thing 7 --max-num-seqs 3 --odder --block-size 32").flags == EngineFlags(
        max_num_seqs=3, block_size=32
    )


def test_nothing_is_expanded_or_run() -> None:
    request = parsed("vllm serve $(rm -rf /tmp/x) --max-num-seqs 2")

    assert "x" not in request.model_id.split("/")[-1:]
    assert request.flags.max_num_seqs == 2


def test_pasting_a_model_drops_the_uploaded_config() -> None:
    base = PlanRequest(model_id="mine", config_json="{}", revision="abc", gpu="L4")

    request = parse_command("vllm serve org/m", "0.33.0").apply(base)

    assert (request.model_id, request.config_json, request.revision, request.gpu) == ("org/m", None, None, "L4")


def test_every_flag_field_can_be_read_and_is_a_flag_of_vllm() -> None:
    names = {field.name for field in fields(EngineFlags)}

    assert names == set(FLAG_READERS)
    assert names - {"cudagraph_mode"} <= {name.replace("-", "_") for name in all_flags()}


@pytest.mark.parametrize(
    ("name", "version", "is_there"),
    [
        ("--kv-cache-memory-bytes", "0.10.2", True),
        ("--kv-cache-memory-bytes", "0.9.2", False),
        ("--swap-space", "0.17.1", True),
        ("--swap-space", "0.18.0", False),
        ("--performance-mode", "0.16.0", False),
        ("--performance-mode", "0.17.0", True),
    ],
)
def test_flags_by_release(name: str, version: str, is_there: bool) -> None:
    flag = find_flag(name, parse_version(version))

    assert flag is not None
    assert flag.is_in(parse_version(version)) is is_there
