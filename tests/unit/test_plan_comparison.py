"""A running engine's pool beside a plan: each difference has a cause that makes the number right, or is unexplained."""

from dataclasses import replace
from functools import lru_cache

import pytest

from live.cache_config import cache_config_from_labels
from live.plan_causes import cause_of_version, with_causes
from live.plan_comparison import EngineFacts, PlanComparison, compare_with_plan, served_length
from live.samples import EngineIdentity, EngineSample, ServedModel
from planner.answer import Plan
from planner.facts import PlanError
from planner.model_catalog import catalogue_documents
from planner.planning import answer
from planner.request import EngineFlags, PlanRequest

DENSE, HYBRID = "meta-llama/Llama-3.1-8B-Instruct", "google/gemma-3-27b-it"


@lru_cache(maxsize=64)
def replan(request: PlanRequest) -> Plan:
    return answer(request, catalogue_documents(request.model_id))[0]


def plan_of(model: str = DENSE, *, version: str = "0.33.0", **flags: object) -> Plan:
    return replan(PlanRequest(model_id=model, gpu="H100 SXM5 80GB", vllm_version=version, flags=EngineFlags(**flags)))


def sample(**labels: object) -> EngineSample:
    config = cache_config_from_labels([(name, str(value)) for name, value in labels.items()])
    return EngineSample(time_unix_ns=0, identity=EngineIdentity(model_name="M", engine="0"), cache_config=config)


def pool_labels(plan: Plan) -> dict[str, object]:
    pool = plan.pool
    return {
        "block_size": pool.block_size,
        "num_gpu_blocks": pool.num_blocks,
        "kv_cache_size_tokens": pool.tokens,
        "kv_cache_max_concurrency": pool.max_concurrency,
    }


def states(comparison: PlanComparison) -> dict[str, str]:
    return {number.name: number.state for number in comparison.numbers}


def compare(plan: Plan, labels: dict[str, object], facts: EngineFacts | None = None) -> PlanComparison:
    return compare_with_plan(sample(**labels), plan, facts, replan)


def test_an_engine_as_planned_is_equal():
    comparison = compare(plan_of(), pool_labels(plan_of()))

    assert set(states(comparison).values()) == {"equal"}
    assert comparison.causes == ()
    assert comparison.numbers[1].error_fraction == 0


def test_a_pool_within_the_band_needs_no_cause():
    plan = plan_of()
    near = (plan.pool.num_blocks + plan.pool_high.num_blocks) // 2

    comparison = compare(plan, {"num_gpu_blocks": near})

    assert states(comparison)["num_gpu_blocks"] == "in_band"


def test_what_the_version_does_not_export_is_said_so():
    plan = plan_of()

    comparison = compare(plan, {"num_gpu_blocks": "None", "block_size": 16})

    assert states(comparison) == {
        "block_size": "equal",
        "num_gpu_blocks": "not_exported",
        "kv_cache_tokens": "not_exported",
        "max_concurrency": "not_exported",
    }
    assert comparison.numbers[1].error_fraction is None


def test_a_sample_without_a_config_compares_nothing():
    bare = EngineSample(time_unix_ns=0, identity=EngineIdentity())

    assert set(states(compare_with_plan(bare, plan_of())).values()) == {"not_exported"}


@pytest.mark.parametrize(
    ("flags", "labels", "kind"),
    [
        ({"gpu_memory_utilization": 0.5}, {"gpu_memory_utilization": "0.5"}, "flag"),
        ({"kv_cache_dtype": "fp8_e5m2"}, {"cache_dtype": "fp8_e5m2"}, "flag"),
        ({"num_gpu_blocks_override": 777}, {"num_gpu_blocks_override": "777"}, "override"),
        ({"kv_cache_memory_bytes": 2**33}, {"kv_cache_memory_bytes": str(2**33)}, "override"),
        ({"block_size": 64}, {"user_specified_block_size": "True"}, "flag"),
    ],
)
def test_a_setting_that_differs_explains_the_pool(flags, labels, kind):
    actual = plan_of(**flags)

    comparison = compare(plan_of(), pool_labels(actual) | labels)

    assert [cause.kind for cause in comparison.causes] == [kind]
    assert states(comparison)["num_gpu_blocks"] == "explained"
    assert next(iter(flags)) in comparison.numbers[1].text
    assert comparison.adjusted is not None


def test_several_settings_explain_together():
    actual = plan_of(gpu_memory_utilization=0.7, kv_cache_dtype="fp8")
    labels = pool_labels(actual) | {"gpu_memory_utilization": "0.7", "cache_dtype": "fp8_e4m3"}

    comparison = compare(plan_of(), labels)

    assert comparison.unexplained == ()
    assert len(comparison.causes) == 2


def test_the_era_explains_what_its_rules_change():
    actual = plan_of(HYBRID, version="0.19.0")
    facts = EngineFacts(vllm_version="0.19.0")

    comparison = compare(plan_of(HYBRID), pool_labels(actual), facts)

    assert [cause.kind for cause in comparison.causes] == ["era"]
    assert states(comparison)["kv_cache_tokens"] == "explained"


def test_another_release_of_the_same_rules_is_named_as_that():
    (cause,) = cause_of_version("0.32.0", plan_of())

    assert cause.kind == "release"
    assert cause_of_version("0.33.0+cu129", plan_of()) == []
    assert cause_of_version("dev", plan_of()) == []


def test_the_served_length_explains_the_concurrency():
    actual = plan_of(max_model_len=8192)
    facts = EngineFacts(models=(ServedModel(model_id="M", max_model_len=8192), ServedModel(model_id="l", parent="M")))

    comparison = compare(plan_of(), pool_labels(actual), facts)

    assert [cause.kind for cause in comparison.causes] == ["length"]
    assert states(comparison)["max_concurrency"] == "explained"


def test_the_length_is_the_named_models_or_the_only_ones():
    one, two = ServedModel(model_id="A", max_model_len=1), ServedModel(model_id="B", max_model_len=2)

    assert served_length(sample(), [one, two]) is None
    assert served_length(sample(), [two]) == 2
    assert served_length(sample(), [replace(one, model_id="M"), two]) == 1


def test_the_hybrid_manager_explains_a_pool_of_one_group():
    actual = plan_of(HYBRID, disable_hybrid_kv_cache_manager=True)

    comparison = compare(plan_of(HYBRID), pool_labels(actual))

    assert comparison.unexplained == ()
    assert "hybrid KV cache manager off" in comparison.numbers[1].text


def test_data_parallel_engines_explain_a_sum_of_blocks():
    plan = plan_of()
    labels = pool_labels(plan) | {"num_gpu_blocks": 4 * plan.pool.num_blocks}

    comparison = compare(plan, labels, EngineFacts(num_engines=4))

    assert states(comparison)["num_gpu_blocks"] == "explained"
    assert "4 data-parallel engines" in comparison.numbers[1].text


def test_another_ranks_pool_is_recognised():
    plan = plan_of(HYBRID, pipeline_parallel_size=2)
    bounding, other = plan.ranks[plan.bounding_rank], plan.ranks[1 - plan.bounding_rank]
    share = other.kv_pool.best_bytes * bounding.num_layers / (bounding.kv_pool.best_bytes * other.num_layers)
    tight = replace(plan, pool_low=plan.pool, pool_high=plan.pool)

    comparison = compare_with_plan(sample(num_gpu_blocks=int(plan.pool.num_blocks * share)), tight)

    assert f"rank {other.pp_rank} alone" in comparison.numbers[1].text


def test_a_difference_without_a_cause_is_unexplained_with_its_size():
    plan = plan_of()

    comparison = compare(plan, {"num_gpu_blocks": plan.pool.num_blocks // 3})

    (number,) = comparison.unexplained
    assert number.name == "num_gpu_blocks"
    assert number.text.startswith("Unexplained")
    assert "+200" in number.text


def test_a_cause_that_does_not_make_it_right_is_named_but_not_believed():
    plan = plan_of()

    comparison = compare(plan, {"num_gpu_blocks": 5, "gpu_memory_utilization": "0.91"})

    (number,) = comparison.unexplained
    assert "gpu_memory_utilization=0.91" in number.text


def test_settings_that_cannot_be_planned_leave_the_number_unexplained():
    def refuse(_request: PlanRequest) -> Plan:
        raise PlanError("kv_cache_dtype", "odd", "no such dtype")

    comparison = compare_with_plan(sample(num_gpu_blocks=5, cache_dtype="odd"), plan_of(), None, refuse)

    assert comparison.adjusted is None
    assert [number.name for number in comparison.unexplained] == ["num_gpu_blocks"]


def test_labels_that_say_none_mean_not_given():
    plan = plan_of(num_gpu_blocks_override=99)

    comparison = compare(plan, pool_labels(plan_of()) | {"num_gpu_blocks_override": "None"})

    assert comparison.causes[0].changes == (("num_gpu_blocks_override", None),)
    assert states(comparison)["num_gpu_blocks"] == "explained"


def test_offloading_and_prefix_caching_are_named():
    labels = {"enable_prefix_caching": "False", "kv_offloading_size": "8.0"}

    causes = compare(plan_of(), pool_labels(plan_of()) | labels).causes

    assert [name for cause in causes for name, _ in cause.changes] == ["enable_prefix_caching", "kv_offloading_size"]
    assert with_causes(plan_of().request, causes).flags.kv_offloading_size == 8


@pytest.mark.parametrize(("version", "is_named"), [("0.6.6", True), ("0.33.0", False)])
def test_swap_space_counts_in_v0_alone(version, is_named):
    plan = plan_of(version=version)

    causes = compare(plan, {"swap_space_bytes": str(8 * 2**30)}).causes

    assert [cause.changes for cause in causes] == [(("swap_space", 8.0),)] * is_named
