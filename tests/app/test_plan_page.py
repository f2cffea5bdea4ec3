"""The Plan page: what a reader does, and what the page then says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from live import nvml
from pages.parts import card_input, model_input
from planner.inventory import ModelDocuments
from planner.model_catalog import catalogue_documents
from planner.units import GIB

SMALL_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
FIT_ERROR = (
    "ValueError: To serve at least one request with the model's max seq len (131072), (16.00 GiB KV cache is needed, "
    "which is larger than the available KV cache memory (9.50 GiB). Based on the available memory, the estimated "
    "maximum model length is 77824. Try increasing `gpu_memory_utilization` or decreasing `max_model_len`."
)


def headers(app: AppTest) -> str:
    return " ".join(header.value for header in app.header)


def all_text(app: AppTest) -> str:
    kinds = (app.header, app.subheader, app.markdown, app.caption, app.error, app.warning, app.info)
    return "\n".join(element.value for kind in kinds for element in kind)


def metric(app: AppTest, label: str) -> str:
    return next(each.value for each in app.metric if each.label.startswith(label))


def test_the_first_visit_shows_a_plan_that_starts(open_plan) -> None:
    app = open_plan()

    assert not app.exception
    assert "vLLM will start" in headers(app)
    assert metric(app, "KV cache pool").endswith("GiB")


def test_the_address_always_holds_the_request(open_plan) -> None:
    app = open_plan()

    app.text_input(key="plan_max_model_len").set_value("8k").run()

    assert app.query_params["model"] == "Qwen/Qwen3-8B"
    assert app.query_params["max_model_len"] == "8000"


def test_a_link_reproduces_the_plan_in_another_session(open_plan) -> None:
    first = open_plan()
    first.selectbox(key="plan_model_id").set_value("Qwen/Qwen3-32B").run()
    first.number_input(key="plan_tensor_parallel_size").set_value(2).run()
    first.selectbox(key="plan_enforce_eager").set_value("on").run()
    first.number_input(key="plan_other_processes_gib").set_value(1.25).run()

    second = open_plan(**first.query_params)

    assert [each.value for each in second.metric] == [each.value for each in first.metric]
    assert second.number_input(key="plan_tensor_parallel_size").value == 2
    assert second.selectbox(key="plan_enforce_eager").value == "on"
    assert second.number_input(key="plan_other_processes_gib").value == 1.25


@pytest.mark.parametrize(
    "query",
    [
        {"model": "Qwen/Qwen3-8B", "gpu": "H100 80GB SXM", "tensor_parallel_size": "-1"},
        {"model": "Qwen/Qwen3-8B", "gpu": "H100 80GB SXM", "gpu_memory_utilization": "7"},
        {"model": "Qwen/Qwen3-8B", "gpu": "no such card"},
        {"model": "Qwen/Qwen3-8B", "nonsense": "1"},
        {"config": "broken"},
        {"gpu": "H100 80GB SXM"},
    ],
)
def test_a_link_that_cannot_be_read_says_so(open_plan, query: dict[str, str]) -> None:
    app = open_plan(**query)

    assert not app.exception
    assert app.warning[0].value.startswith("This link cannot be read:")


def test_a_link_may_hold_values_that_no_list_offers(open_plan) -> None:
    app = open_plan(model="Qwen/Qwen3-8B", gpu="H100", vllm_version="0.22.1", attention_backend="FLEX_ATTENTION")

    assert not app.exception
    assert app.selectbox(key="plan_gpu").value == "H100 80GB SXM"
    assert app.selectbox(key="plan_vllm_version").value == "0.22.1"


def test_an_empty_field_shows_what_vllm_chooses(open_plan) -> None:
    app = open_plan()

    assert app.text_input(key="plan_max_model_len").placeholder == "default: 40,960"
    assert app.number_input(key="plan_tensor_parallel_size").placeholder == "default: 1"


def test_a_mistake_is_said_at_its_field_and_no_plan_is_shown(open_plan) -> None:
    app = open_plan()

    app.text_input(key="plan_max_model_len").set_value("long").run()

    assert not app.exception
    assert "This cannot be planned" in headers(app)
    assert len(app.error) == 2  # at the field and in the plan's place
    assert all("max\\_model\\_len" in error.value for error in app.error)
    assert not app.metric


def test_a_corrected_mistake_brings_the_plan_back(open_plan) -> None:
    app = open_plan()
    app.number_input(key="plan_tensor_parallel_size").set_value(3).run()
    assert "This cannot be planned" in headers(app)

    app.number_input(key="plan_tensor_parallel_size").set_value(2).run()

    assert "vLLM will start" in headers(app)
    assert not app.error


def test_advice_is_applied_by_its_button(open_plan) -> None:
    app = open_plan(model="Qwen/Qwen3-32B", gpu="A100 40GB SXM", tensor_parallel_size="2")
    assert "vLLM will not start" in headers(app)

    app.button(key="plan_apply_0").click().run()

    assert "vLLM will start" in headers(app)


def test_a_custom_card_needs_its_size(open_plan) -> None:
    app = open_plan()

    app.selectbox(key="plan_gpu").set_value("Custom size").run()
    assert "Give the card's memory" in app.error[0].value
    app.number_input(key="plan_gpu_memory_gib").set_value(48.0).run()

    assert "vLLM will start" in headers(app)
    assert app.query_params["gpu_memory_gib"] == "48"


def test_a_mean_length_gives_its_own_concurrency(open_plan) -> None:
    app = open_plan()

    app.number_input(key="plan_mean_length_tokens").set_value(2048).run()

    at_longest = float(metric(app, "Requests of 40,960").rstrip("×"))
    at_mean = float(metric(app, "Requests of 2,048").rstrip("×"))
    assert at_mean == pytest.approx(20 * at_longest, rel=0.01)


def test_stages_that_differ_are_shown_one_by_one(open_plan) -> None:
    app = open_plan(model="Qwen/Qwen3-8B", gpu="L4", pipeline_parallel_size="2")

    assert len(app.get("plotly_chart")) >= 2
    assert app.segmented_control(key="plan_stage_of_2").options == ["Stage 0", "Stage 1"]


def test_a_hybrid_model_shows_its_state_and_groups(open_plan) -> None:
    app = open_plan(model="Qwen/Qwen3-Next-80B-A3B-Instruct", gpu="H100", tensor_parallel_size="4")

    tables = [table.value.to_string() for table in app.table]
    assert any("Recurrent state of one request" in text for text in tables)
    assert any("Full attention" in text and "Recurrent state" in text for text in tables)


def test_charts_tell_their_finding_to_those_who_do_not_see_them(open_plan) -> None:
    app = open_plan()

    chart = app.get("plotly_chart")[0]
    assert "left for the KV cache" in str(chart.proto)


def test_the_command_of_the_plan_is_shown(open_plan) -> None:
    app = open_plan(model="Qwen/Qwen3-8B", gpu="H100", max_model_len="16384")

    assert app.code[0].value == "vllm serve Qwen/Qwen3-8B --max-model-len 16384"
    assert "max_model_len=16384" in app.code[1].value


def paste(app: AppTest, text: str) -> AppTest:
    app.text_area(key="plan_paste").set_value(text).run()
    return app.button(key="plan_paste_read").click().run()


def test_a_pasted_command_fills_the_form(open_plan) -> None:
    app = paste(
        open_plan(),
        "vllm serve Qwen/Qwen3-32B -tp 4 --max-model-len 32k --enforce-eager --swap-space 8 --never-heard-of 3",
    )

    assert not app.exception
    assert app.selectbox(key="plan_model_id").value == "Qwen/Qwen3-32B"
    assert app.number_input(key="plan_tensor_parallel_size").value == 4
    assert app.text_input(key="plan_max_model_len").value == "32000"
    assert app.selectbox(key="plan_enforce_eager").value == "on"
    assert "never-heard-of" in all_text(app).replace("\\", "")


def test_a_pasted_container_line_takes_the_release_of_its_image(open_plan) -> None:
    app = paste(open_plan(), "docker run --gpus all vllm/vllm-openai:v0.19.0 --model Qwen/Qwen3-8B --max-num-seqs 64")

    assert app.selectbox(key="plan_vllm_version").value == "0.19.0"
    assert app.number_input(key="plan_max_num_seqs").value == 64


def test_a_pasted_command_of_an_unknown_model_asks_to_load_it(open_plan) -> None:
    app = paste(open_plan(), "vllm serve some-org/some-model")

    assert "Nothing to plan yet" in headers(app)
    assert "Press Load to read some" in app.info[0].value
    assert app.text_input(key="plan_hub_id").value == "some-org/some-model"


def test_text_that_is_no_command_leaves_the_form_alone(open_plan) -> None:
    app = paste(open_plan(), "hello world")

    assert app.selectbox(key="plan_model_id").value == "Qwen/Qwen3-8B"
    assert "From what you pasted" in all_text(app)


def test_a_command_with_an_impossible_value_is_refused_in_a_sentence(open_plan) -> None:
    app = paste(open_plan(), "vllm serve Qwen/Qwen3-8B -tp 0")

    assert not app.exception
    assert "tensor\\_parallel\\_size is 0" in all_text(app)


def test_a_pasted_error_line_is_explained_against_the_plan(open_plan) -> None:
    app = paste(open_plan(), FIT_ERROR)

    assert "16.00 GiB by vLLM" in all_text(app)
    app.button(key="plan_paste_dismiss").click().run()
    assert "16.00 GiB by vLLM" not in all_text(app)


def test_a_path_to_a_config_is_planned(open_plan, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL_CONFIG), encoding="utf-8")
    app = open_plan()

    app.segmented_control(key="plan_source").set_value("File").run()
    assert "Nothing to plan yet" in headers(app)
    app.text_input(key="plan_path").set_value(str(tmp_path)).run()

    assert "vLLM will start" in headers(app)
    assert "config" in app.query_params


def test_an_uploaded_config_is_planned_and_travels_in_the_link(open_plan) -> None:
    app = open_plan()
    app.segmented_control(key="plan_source").set_value("File").run()

    app.file_uploader(key="plan_upload").upload("config.json", json.dumps(SMALL_CONFIG).encode(), "application/json")
    app.run()
    second = open_plan(**app.query_params)

    assert "vLLM will start" in headers(app)
    assert [each.value for each in second.metric] == [each.value for each in app.metric]


@pytest.mark.parametrize("content", ["", "{", "[]", "\u0000", '{"a": 1}', "plain text"])
def test_a_broken_upload_is_one_sentence(open_plan, content: str) -> None:
    app = open_plan()
    app.segmented_control(key="plan_source").set_value("File").run()

    app.file_uploader(key="plan_upload").upload("config.json", content.encode(), "application/json")
    app.run()

    assert not app.exception
    assert app.error or app.info
    assert not app.metric


def test_a_failed_file_does_not_leave_the_model_before_it(open_plan, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL_CONFIG), encoding="utf-8")
    app = open_plan()
    app.segmented_control(key="plan_source").set_value("File").run()
    app.text_input(key="plan_path").set_value(str(tmp_path)).run()

    app.text_input(key="plan_path").set_value(str(tmp_path / "absent")).run()

    assert "does not exist" in app.error[0].value
    assert not app.metric


class FakeHub:
    """Stands in for the Hub: yields a catalogue model's documents, or fails in a named way."""

    def __init__(self, error: model_input.HubError | None = None) -> None:
        self.error = error
        self.asked: list[tuple[str, str | None]] = []

    def __call__(self, model_id: str, revision: str | None, options: model_input.FetchOptions) -> FakeHub:
        self.asked.append((model_id, revision))
        options.progress(1, 2, "config.json")
        if self.error is not None:
            raise self.error
        return self

    def to_documents(self) -> ModelDocuments:
        return catalogue_documents("Qwen/Qwen3-8B")


def test_a_hub_model_is_asked_for_only_when_load_is_pressed(open_plan, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = FakeHub()
    monkeypatch.setattr(model_input, "fetch_model", hub)
    app = open_plan(model="some-org/some-model", gpu="H100", revision="abc")
    assert hub.asked == []

    app.button(key="plan_hub_load").click().run()

    assert hub.asked == [("some-org/some-model", "abc")]
    assert "vLLM will start" in headers(app)
    assert app.query_params["model"] == "some-org/some-model"


def test_a_token_stays_out_of_the_link(open_plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_input, "fetch_model", FakeHub())
    app = open_plan(model="some-org/some-model", gpu="H100")

    app.text_input(key="plan_hub_token").set_value("hf_secret").run()
    app.button(key="plan_hub_load").click().run()

    assert "hf_secret" not in str(app.query_params)
    assert not any("hf_secret" in code.value for code in app.code)


@pytest.mark.parametrize("kind", sorted(model_input._HUB_TITLES))
def test_each_failure_of_the_hub_has_its_own_title(open_plan, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    error = model_input.HubError(kind, "What happened, and what to do.")  # type: ignore[arg-type]
    monkeypatch.setattr(model_input, "fetch_model", FakeHub(error))
    app = open_plan(model="some-org/some-model", gpu="H100")

    app.button(key="plan_hub_load").click().run()

    assert model_input._HUB_TITLES[kind] in app.error[0].value
    assert not app.metric


def gpu(name: str, *, used_bytes: int = 0) -> nvml.DetectedGpu:
    return nvml.DetectedGpu(
        index=0,
        name=name,
        total_bytes=80 * GIB,
        used_bytes=used_bytes,
        free_bytes=80 * GIB - used_bytes,
        reserved_bytes=GIB,
        compute_capability=(9, 0),
        is_mig_enabled=False,
        processes=(),
    )


@pytest.mark.parametrize(
    ("found", "card", "sentence"),
    [
        (nvml.NvmlState(kind="driver_absent", remedy="No driver here."), "H100 80GB SXM", "No driver here."),
        (nvml.NvmlState(kind="ok", gpus=(gpu("NVIDIA L4"),)), "L4", "Found 1 × NVIDIA L4"),
        (nvml.NvmlState(kind="ok", gpus=(gpu("Odd Card", used_bytes=2 * GIB),)), "Custom size", "2.00 GiB held"),
    ],
)
def test_detection_fills_the_card_or_says_why_not(
    open_plan, monkeypatch: pytest.MonkeyPatch, found: nvml.NvmlState, card: str, sentence: str
) -> None:
    monkeypatch.setattr(card_input, "detect", lambda: found)
    app = open_plan()

    app.button(key="plan_detect").click().run()

    assert app.selectbox(key="plan_gpu").value == card
    assert any(sentence in caption.value.replace("\\", "") for caption in app.caption)


def test_a_model_without_a_cache_says_so(open_plan, tmp_path: Path) -> None:
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "vocab_size": 30522,
        "max_position_embeddings": 512,
        "torch_dtype": "float32",
    }
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    app = open_plan()
    app.segmented_control(key="plan_source").set_value("File").run()

    app.text_input(key="plan_path").set_value(str(tmp_path)).run()

    assert not app.exception
    assert "keeps no KV cache" in all_text(app)


def test_offloaded_weights_are_shown_in_the_hosts_memory(open_plan) -> None:
    app = open_plan(model="Qwen/Qwen3-8B", gpu="L4", cpu_offload_gb="6")

    assert "In the host's memory" in [subheader.value for subheader in app.subheader]
    assert any("Offloaded weights" in table.value.to_string() for table in app.table)
