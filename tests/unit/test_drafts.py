"""Drafters: their weights, tables and caches on the last stage, and what vLLM refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from factories import make_documents

from planner.answer import Plan
from planner.inventory import ModelDocuments
from planner.model_catalog import catalogue_documents
from planner.plan_cli import main
from planner.planning import answer, facts_for
from planner.request import EngineFlags, PlanRequest, SpeculativeConfig
from planner.truth import CONFIGS
from planner.units import GIB
from planner.wrapped_config import wrapped_documents

LLAMA = "meta-llama/Llama-3.1-8B"
LLAMA_DRAFT = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "float16",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 1,
    "vocab_size": 128256,
    "draft_vocab_size": 32000,
    "max_position_embeddings": 2048,
}


def plan_of(
    model: str | ModelDocuments,
    config: dict[str, Any] | None,
    draft: ModelDocuments | None = None,
    *,
    version: str = "0.33.0",
    **flags: Any,
) -> Plan:
    documents = catalogue_documents(model) if isinstance(model, str) else model
    speculative = None if config is None else SpeculativeConfig(**{"num_speculative_tokens": 3, **config})
    request = PlanRequest(
        model_id=documents.model_id,
        gpu="H200",
        vllm_version=version,
        flags=EngineFlags(speculative_config=speculative, kv_cache_memory_bytes=20 * GIB, max_model_len=8192, **flags),
    )
    return answer(request, documents, draft)[0]


def added_parameters(model: str, config: dict[str, Any], draft: ModelDocuments | None = None, **flags: Any) -> int:
    with_draft, without = plan_of(model, config, draft, **flags), plan_of(model, None, **flags)
    return with_draft.ranks[-1].weights.parameter_bytes - without.ranks[-1].weights.parameter_bytes


def codes(plan: Plan) -> list[str]:
    return [finding.code for finding in plan.findings if finding.field == "speculative_config"]


@pytest.mark.parametrize(
    ("model", "checkpoint_bytes", "kept_wider"),
    [
        # What the checkpoints hold beyond the target; vLLM keeps a few bf16 vectors of the target in float32.
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", 3_300_940_544, 36 * 32 * 2),
        ("Qwen/Qwen3.5-27B", 849_394_176, 48 * 48 * 2),
        ("Qwen/Qwen3.5-35B-A3B", 1_689_279_616, 30 * 32 * 2),
        ("Qwen/Qwen3.5-397B-A17B", 13_191_130_496, 45 * 64 * 2),
        ("deepseek-ai/DeepSeek-R1", 15_424_227_552 - 2 * 129_280 * 7168 * 2, 0),
    ],
)
def test_mtp_layers_hold_what_the_checkpoint_does(model: str, checkpoint_bytes: int, kept_wider: int) -> None:
    assert added_parameters(model, {"method": "mtp"}) == checkpoint_bytes + kept_wider


def test_mtp_layers_live_on_the_last_stage_with_an_embedding_of_their_own() -> None:
    whole = plan_of("Qwen/Qwen3.5-27B", {"method": "mtp"}, pipeline_parallel_size=2)
    without = plan_of("Qwen/Qwen3.5-27B", None, pipeline_parallel_size=2)
    first, last = (
        with_draft.weights.parameter_bytes - plain.weights.parameter_bytes
        for with_draft, plain in zip(whole.ranks, without.ranks, strict=True)
    )

    assert first == 0
    assert last == 849_394_176 + 48 * 48 * 2 + 248_320 * 5120 * 2


def test_mtp_heads_were_not_shared_in_0_14() -> None:
    new = added_parameters("deepseek-ai/DeepSeek-R1", {"method": "mtp"}, version="0.19.0", tensor_parallel_size=8)
    old = added_parameters("deepseek-ai/DeepSeek-R1", {"method": "mtp"}, version="0.14.0", tensor_parallel_size=8)

    assert old - new == 129_280 * 7168 * 2 // 8


def test_an_eagle3_draft_is_one_layer_a_projection_and_its_own_head() -> None:
    draft = make_documents(LLAMA_DRAFT)
    attention = 8192 * (4096 + 2 * 1024) + 4096 * 4096
    layer = attention + 3 * 4096 * 14336 + 3 * 4096
    expected = 2 * (layer + 3 * 4096 * 4096 + 4096 + 32000 * 4096) + 32000 * 8  # fc, norm, head; draft-to-target ids

    assert added_parameters(LLAMA, {"method": "eagle3"}, draft) == expected


def test_an_eagle_draft_shares_both_tables() -> None:
    layer = 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336 + 4096

    assert added_parameters(LLAMA, {"method": "eagle"}, make_documents(LLAMA_DRAFT)) == 2 * (layer + 2 * 4096 * 4096)


def test_a_short_drafts_rotary_cache_grows_to_the_served_length_in_0_33() -> None:
    def buffers(version: str) -> int:
        plan = plan_of(LLAMA, {"method": "eagle3"}, make_documents(LLAMA_DRAFT), version=version)
        return plan.ranks[0].weights.buffer_bytes

    assert buffers("0.33.0") - buffers("0.31.0") == (8192 - 2048) * 128 * 2


def test_a_speculators_config_is_read_flat() -> None:
    inner = {key: value for key, value in LLAMA_DRAFT.items() if key not in ("architectures", "draft_vocab_size")}
    wrapped = make_documents(
        {"speculators_model_type": "eagle3", "transformer_layer_config": inner, "draft_vocab_size": 32000}
    )

    assert added_parameters(LLAMA, {"method": "eagle3"}, wrapped) == added_parameters(
        LLAMA, {"method": "eagle3"}, make_documents(LLAMA_DRAFT)
    )


def test_an_unknown_eagle_head_is_assumed_and_widens_the_band() -> None:
    plan = plan_of(LLAMA, {"method": "eagle3", "model": "nobody/eagle3"})
    load, known = plan.ranks[0].weights.load, plan_of(LLAMA, {"method": "eagle3"}, make_documents(LLAMA_DRAFT))

    assert codes(plan) == ["draft-not-sized"]
    assert plan.ranks[0].weights.parameter_bytes == known.ranks[0].weights.parameter_bytes
    assert load.high_bytes - load.best_bytes > 0.8 * GIB


def test_an_unknown_draft_model_is_said_not_to_be_counted() -> None:
    plan, without = plan_of(LLAMA, {"method": "draft_model", "model": "nobody/small"}), plan_of(LLAMA, None)

    assert codes(plan) == ["draft-not-sized"]
    assert plan.ranks[0].weights.load.best_bytes == without.ranks[0].weights.load.best_bytes
    assert plan.ranks[0].weights.load.high_bytes > without.ranks[0].weights.load.high_bytes + GIB


def test_a_catalogue_draft_is_loaded_by_name() -> None:
    config = {"method": "draft_model", "model": "Qwen/Qwen3-0.6B"}
    plan = plan_of("Qwen/Qwen3-8B", config)

    assert added_parameters("Qwen/Qwen3-8B", config) == 1_192_099_840
    assert [group.num_layers for group in plan.pool.groups] == [36 + 28]
    assert codes(plan) == []


def test_a_prompt_lookup_adds_nothing() -> None:
    assert added_parameters(LLAMA, {"method": "ngram"}) == 0


def test_medusa_heads_are_blocks_and_tables() -> None:
    draft = make_documents(
        {
            "model_type": "medusa",
            "hidden_size": 4096,
            "num_heads": 3,
            "num_hidden_layers": 1,
            "vocab_size": 128256,
            "torch_dtype": "bfloat16",
        }
    )

    added = added_parameters(LLAMA, {"method": "medusa"}, draft, version="0.27.1")

    assert added == 2 * 3 * (4096 * 4096 + 128256 * 4096)


@pytest.mark.parametrize(
    ("config", "version", "words"),
    [
        ({"method": "medusa", "model": "x/y"}, "0.33.0", "Medusa"),
        ({"method": "draft_model", "model": "Qwen/Qwen3-0.6B"}, "0.33.0", "same vocabulary size"),
        ({"method": "draft_model", "model": "meta-llama/Llama-3.1-8B"}, "0.14.0", "before 0.15"),
        ({"method": "eagle3", "draft_tensor_parallel_size": 3}, "0.33.0", "must be 1 or"),
    ],
)
def test_what_vllm_refuses_is_a_refusal(config: dict[str, Any], version: str, words: str) -> None:
    plan = plan_of(LLAMA, config, version=version)

    assert not plan.will_start
    assert words in " ".join(finding.text for finding in plan.findings if finding.code == "draft-refused")


def test_drafting_may_leave_nothing_of_the_batch_up_to_0_30() -> None:
    config = {"method": "draft_model", "model": "Qwen/Qwen3-0.6B"}
    limits = {"max_num_seqs": 512, "max_num_batched_tokens": 512}

    assert "draft-slots" in [
        finding.code for finding in plan_of("Qwen/Qwen3-8B", config, version="0.27.1", **limits).findings
    ]
    assert plan_of("Qwen/Qwen3-8B", config, version="0.31.0", **limits).will_start
    assert plan_of("Qwen/Qwen3-8B", config, version="0.27.1").will_start


def _dflash(name: str) -> ModelDocuments:
    return wrapped_documents(json.loads((CONFIGS / name).read_text(encoding="utf-8")), source="test")


def test_a_dflash2_draft_brings_what_a_log_shows() -> None:
    # A 0.28 log: 54.84 GiB loaded (51.1 without the draft); 21.63 GiB needed for one request of 262,144 tokens, two
    # batches of 2,048 tokens in flight; pages of 832 tokens where the target alone has 784.
    documents = _dflash("Qwen3.8-27B-with-DFlash2.json")
    request = PlanRequest(
        model_id=documents.model_id,
        gpu="H100 80GB SXM",
        vllm_version="0.28.0",
        flags=EngineFlags(
            speculative_config=SpeculativeConfig(method="dflash", num_speculative_tokens=7),
            max_num_batched_tokens=2048,
            max_num_seqs=256,
        ),
    )
    plan, model = answer(request, documents)

    assert model.draft is not None
    assert round(plan.ranks[0].weights.load.best_bytes / GIB, 2) == pytest.approx(54.84, abs=0.02)
    assert plan.pool.block_size == 832
    assert [group.kind for group in plan.pool.groups] == ["mamba"] * 10 + ["full"] * 4 + ["sliding"]
    assert round(plan.pool.needed_bytes / GIB, 2) == 21.63


def test_without_speculation_the_draft_beside_a_config_is_left_alone() -> None:
    documents = _dflash("Qwen3.8-27B-with-DFlash2.json")

    assert facts_for(PlanRequest(model_id="x", gpu="H200"), documents).draft is None


def test_the_command_line_takes_a_drafts_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_DRAFT), encoding="utf-8")
    config = {"method": "eagle3", "model": str(tmp_path), "num_speculative_tokens": 3}

    status = main(["--model", LLAMA, "--gpu", "H200", "--speculative-config", json.dumps(config), "--json"])
    result = json.loads(capsys.readouterr().out)

    assert status == 0
    assert result["findings"] == []
    assert result["kv_groups"][0]["num_layers"] == 33


def test_the_command_line_refuses_a_folder_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    config = {"method": "eagle3", "model": "/nowhere/draft", "num_speculative_tokens": 3}

    assert main(["--model", LLAMA, "--gpu", "H200", "--speculative-config", json.dumps(config)]) == 2
    assert "/nowhere/draft" in capsys.readouterr().err


def test_an_mtp_layer_makes_groups_of_eleven_in_a_hybrid() -> None:
    # A 0.22 log: 73.13 GiB, "Add 3 padding layers", 6,312,658 tokens and 24.08 requests of 262,144; its fp8 cache and three
    # draft tokens are what both figures ask for (125 + 3 x 4 blocks a request).
    documents = catalogue_documents("nvidia/Qwen3.6-35B-A3B-NVFP4")
    request = PlanRequest(
        model_id=documents.model_id,
        gpu="DGX Spark (GB10)",
        vllm_version="0.22.1",
        flags=EngineFlags(
            speculative_config=SpeculativeConfig(method="mtp", num_speculative_tokens=3),
            kv_cache_dtype="fp8",
            kv_cache_memory_bytes=int(73.13 * GIB),
            max_model_len=262144,
        ),
    )
    pool = answer(request, documents)[0].pool

    assert [group.num_layers for group in pool.groups] == [10, 10, 10, 11]
    assert round(pool.max_concurrency, 2) == 24.08
    assert pool.tokens == pytest.approx(6_312_658, rel=5e-4)


def test_a_refusal_of_one_runner_is_not_kept_for_the_other() -> None:
    documents = catalogue_documents("Qwen/Qwen3-8B")
    config = SpeculativeConfig(
        method="draft_model", num_speculative_tokens=3, model="Qwen/Qwen3-0.6B", draft_tensor_parallel_size=1
    )
    flags = EngineFlags(speculative_config=config, tensor_parallel_size=2, max_model_len=8192)
    v1, v2 = (
        answer(PlanRequest(model_id="x", gpu="H200", model_runner=runner, flags=flags), documents)[0]
        for runner in ("v1", "v2")
    )

    assert codes(v1) == ["draft-refused"]
    assert codes(v2) == []
