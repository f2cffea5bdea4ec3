"""The Hub path through the real huggingface_hub client, against a local server that speaks the Hub's API."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from live.__main__ import main
from live.hub import FetchOptions, fetch_model
from live.hub_cache import HubCache, default_cache_folder
from live.hub_client import chosen_endpoint, chosen_token
from live.hub_errors import HubError
from live.model_files import hub_documents
from live.model_folder import write_folder
from planner.facts import PlanError
from planner.model_folder import folder_documents
from tests.fakes.hub_server import COMMIT, OPENS_GATED, FakeRepo, HubServer, running_hub, safetensors_bytes

ROOT = Path(__file__).parents[2]
MODEL = "acme/tiny"
NOT_LET_IN = "hf_other"
CONFIG = json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64}).encode()
ONE_FILE = safetensors_bytes({"a.weight": ("BF16", [4, 8], 64), "b.weight": ("F32", [3], 12)}, data=b"\0" * 76)
FIRST = safetensors_bytes({"a.weight": ("BF16", [4, 8], 64)}, data=b"\0" * 64)
SECOND = safetensors_bytes({"b.weight": ("F8_E4M3", [16], 16)}, data=b"\0" * 16)
INDEX = json.dumps(
    {
        "metadata": {"total_size": 80},
        "weight_map": {"a.weight": "model-00001-of-00002.safetensors", "b.weight": "model-00002-of-00002.safetensors"},
    }
).encode()


@pytest.fixture
def hub():
    with running_hub() as server:
        yield server


@pytest.fixture(autouse=True)
def _no_outer_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for name in ("HF_TOKEN", "HF_ENDPOINT", "KVSCOPE_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))


@pytest.fixture
def options(hub: HubServer, tmp_path: Path) -> FetchOptions:
    return FetchOptions(endpoint=hub.endpoint, cache_folder=tmp_path / "cache", read_seconds=2.0, total_seconds=10.0)


def tiny(**changes) -> FakeRepo:
    return FakeRepo(**{"files": {"config.json": CONFIG, "model.safetensors": ONE_FILE}, **changes})


def failure(hub: HubServer, options: FetchOptions, repo: FakeRepo | None, revision: str | None = None) -> HubError:
    if repo is not None:
        hub.repos[MODEL] = repo
    with pytest.raises(HubError) as caught:
        fetch_model(MODEL, revision, options)
    assert "\n" not in caught.value.text
    assert caught.value.text.endswith(".")
    assert not (options.cache_folder / "hub").exists()  # failures are never kept
    return caught.value


def test_found_model_yields_config_headers_and_commit(hub, options):
    hub.repos[MODEL] = tiny()

    documents = hub_documents(MODEL, None, options)

    assert documents.config_json == CONFIG.decode()
    assert [(t.name, t.dtype, t.shape, t.num_bytes) for t in documents.tensors] == [
        ("a.weight", "BF16", (4, 8), 64),
        ("b.weight", "F32", (3,), 12),
    ]
    assert documents.checkpoint_total_bytes == 76
    assert documents.revision == COMMIT
    assert documents.source == f"Hugging Face Hub: {MODEL} at {COMMIT[:12]}"


def test_sharded_model_reads_only_ranges_of_its_shards(hub, options):
    files = {
        "config.json": CONFIG,
        "model.safetensors.index.json": INDEX,
        "model-00001-of-00002.safetensors": FIRST,
        "model-00002-of-00002.safetensors": SECOND,
        "consolidated.safetensors": ONE_FILE,
        "tokenizer_config.json": b'{"model_max_length": 4096}',
        "generation_config.json": b'{"max_length": 2048}',
        "hf_quant_config.json": b'{"quantization": {"quant_algo": "FP8"}}',
    }
    hub.repos[MODEL] = FakeRepo(files=files)
    seen: list[str] = []
    watching = replace(options, progress=lambda done, total, what: seen.append(f"{done}/{total} {what}"))

    documents = hub_documents(MODEL, "main", watching)

    assert {t.name for t in documents.tensors} == {"a.weight", "b.weight"}
    assert documents.tokenizer_max_length == 4096
    assert documents.generation_max_length == 2048
    assert json.loads(documents.hf_quant_config_json) == {"quantization": {"quant_algo": "FP8"}}
    shard_requests = [request for request in hub.requests if request.path.endswith(".safetensors")]
    assert len(shard_requests) == 2
    assert all(request.range == "bytes=0-99999" for request in shard_requests)
    assert seen[-1] == "2/2 model-00002-of-00002.safetensors"


def test_header_longer_than_the_first_range_is_read_by_a_second_one(hub, options):
    many = {f"model.layers.{number}.mlp.down_proj.weight": ("BF16", [2], 4) for number in range(2000)}
    hub.repos[MODEL] = tiny(files={"config.json": CONFIG, "model.safetensors": safetensors_bytes(many)})

    documents = hub_documents(MODEL, None, options)

    assert len(documents.tensors) == 2000
    assert documents.checkpoint_total_bytes == 8000
    assert len([request for request in hub.requests if request.range]) == 2


def test_server_that_ignores_ranges_is_cut_off_before_the_weights(hub, options):
    weights = ONE_FILE + b"\0" * 20_000_000
    hub.repos[MODEL] = tiny(
        files={"config.json": CONFIG, "model.safetensors": weights}, faults={"model.safetensors": "ignore_range"}
    )

    documents = hub_documents(MODEL, None, options)

    assert documents.checkpoint_total_bytes == 76


def test_redirected_header_is_followed_on_the_same_server(hub, options):
    hub.repos[MODEL] = tiny(faults={"model.safetensors": "redirect"})

    documents = hub_documents(MODEL, None, options)

    assert documents.checkpoint_total_bytes == 76
    assert any(request.path.startswith("/cdn/") for request in hub.requests)


def test_token_goes_to_the_endpoint_and_not_to_another_host(hub, options, tmp_path):
    with running_hub() as cdn:
        hub.repos[MODEL] = tiny(faults={"model.safetensors": "redirect"}, cdn=cdn.endpoint)
        cdn.repos[MODEL] = tiny()

        hub_documents(MODEL, None, replace(options, token=OPENS_GATED))

        assert {request.authorization for request in hub.requests} == {"Bearer hf_good"}
        assert [request.authorization for request in cdn.requests] == [None]
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert OPENS_GATED.encode() not in stored
    assert OPENS_GATED not in repr(replace(options, token=OPENS_GATED))


def test_without_a_token_none_is_sent(hub, options):
    hub.repos[MODEL] = tiny()

    hub_documents(MODEL, None, options)

    assert {request.authorization for request in hub.requests} == {None}


def test_only_the_model_asked_for_is_requested(hub, options):
    hub.repos[MODEL] = tiny()

    hub_documents(MODEL, None, options)

    assert [request.path.split("?")[0] for request in hub.requests] == [
        f"/api/models/{MODEL}",
        f"/{MODEL}/resolve/{COMMIT}/config.json",
        f"/{MODEL}/resolve/{COMMIT}/model.safetensors",
    ]


def test_missing_model_is_not_found(hub, options):
    error = failure(hub, options, None)

    assert error.kind == "not_found"
    assert "is not on the Hub" in error.text


def test_missing_model_without_an_error_code_is_not_found(hub, options):
    error = failure(hub, replace(options, endpoint=hub.endpoint + "/not-a-hub"), None)

    assert error.kind == "not_found"


def test_private_model_without_a_token_asks_for_one(hub, options):
    error = failure(hub, options, tiny(private=True))

    assert error.kind == "unauthorized"
    assert "HF_TOKEN" in error.text


def test_disabled_model_is_said_to_be(hub, options):
    assert "disabled" in failure(hub, options, tiny(disabled=True)).text


def test_missing_revision_is_named(hub, options):
    error = failure(hub, options, tiny(), revision="v9")

    assert error.kind == "revision_not_found"
    assert "'v9'" in error.text


def test_gated_model_asks_for_terms_and_token(hub, options):
    error = failure(hub, options, tiny(gated=True))

    assert error.kind == "gated"
    assert "accept its terms" in error.text


def test_gated_model_with_a_token_that_may_not_asks_for_access(hub, options):
    error = failure(hub, replace(options, token=NOT_LET_IN), tiny(gated=True))

    assert error.kind == "gated"
    assert "access for your token" in error.text
    assert NOT_LET_IN not in error.text


def test_gated_model_opens_with_the_token_of_the_environment(hub, options, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    hub.repos[MODEL] = tiny(gated=True)

    assert hub_documents(MODEL, None, options).checkpoint_total_bytes == 76


def test_kept_copy_of_a_gated_model_does_not_open_it_to_others(hub, options):
    hub.repos[MODEL] = tiny(gated=True)
    with_token = replace(options, token=OPENS_GATED)
    fetch_model(MODEL, None, with_token)

    assert fetch_model(MODEL, None, with_token).checkpoint_total_bytes == 76
    for revision in (None, COMMIT):
        with pytest.raises(HubError) as caught:
            fetch_model(MODEL, revision, options)
        assert caught.value.kind == "gated"


def test_slow_record_is_a_time_out(hub, options):
    hub.slow_seconds = 1.0

    error = failure(hub, replace(options, read_seconds=0.2), tiny(faults={"": "slow"}))

    assert error.kind == "slow"


@pytest.mark.parametrize("name", ["", "config.json", "model.safetensors"])
def test_answer_that_drips_is_a_time_out(hub, options, name):
    started = time.monotonic()

    error = failure(hub, replace(options, total_seconds=0.5), tiny(faults={name: "drip"}))

    assert error.kind == "slow"
    assert time.monotonic() - started < 3  # the whole answer would take longer


def test_record_stated_to_be_huge_is_refused(hub, options):
    assert failure(hub, options, tiny(stated_lengths={"": 2**30})).kind == "too_large"


def test_time_that_is_up_before_a_request_is_a_time_out(hub, options):
    ticks = iter([0.0, 1000.0])

    error = failure(hub, replace(options, clock=lambda: next(ticks)), tiny())

    assert error.kind == "slow"
    assert hub.requests == []


def test_unreachable_hub_is_no_network(hub, options):
    hub.stop()

    error = failure(hub, options, None)

    assert error.kind == "no_network"
    assert hub.endpoint in error.text


def test_unreachable_hub_shows_the_kept_copy_and_says_so(options):
    with running_hub() as server:
        server.repos[MODEL] = tiny()
        here = replace(options, endpoint=server.endpoint)
        fetch_model(MODEL, None, here)

    documents = hub_documents(MODEL, None, here)

    assert documents.checkpoint_total_bytes == 76
    assert "kept copy (the Hub was not reached)" in documents.source


def test_offline_setting_is_named(hub, options, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    error = failure(hub, options, tiny())

    assert error.kind == "no_network"
    assert "HF_HUB_OFFLINE" in error.text


@pytest.mark.parametrize(
    ("fault", "word"), [("error_500", "HTTP 500"), ("rate_limit", "slow down"), ("no_record", "does not answer")]
)
def test_failing_hub_is_a_server_error(hub, options, fault, word):
    error = failure(hub, options, tiny(faults={"": fault}))

    assert error.kind == "server_error"
    assert word in error.text


@pytest.mark.parametrize(
    "record",
    [
        b'{"sha": "../../etc", "siblings": []}',
        b'{"sha": 3, "siblings": []}',
        b'{"siblings": []}',
        b'{"sha": "%s", "siblings": [1]}' % COMMIT.encode(),
        b'{"sha": "%s"}' % COMMIT.encode(),
        b"[]",
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_record_that_is_none_is_a_server_error(hub, options, record):
    assert failure(hub, options, tiny(record=record)).kind == "server_error"


@pytest.mark.parametrize("fault", ["truncated", "drop"])
def test_connection_that_breaks_off_is_no_network(hub, options, fault):
    assert failure(hub, options, tiny(faults={"config.json": fault})).kind == "no_network"


def test_repository_without_safetensors_says_what_it_holds(hub, options):
    files = {"config.json": CONFIG, "pytorch_model.bin": b"", "tiny.Q8_0.gguf": b""}

    error = failure(hub, options, tiny(files=files))

    assert error.kind == "no_safetensors"
    assert "PyTorch .bin and GGUF" in error.text


def test_repository_without_safetensors_is_taken_by_its_config_on_request(hub, options):
    hub.repos[MODEL] = tiny(files={"config.json": CONFIG})

    documents = hub_documents(MODEL, None, replace(options, needs_headers=False))

    assert documents.tensors is None
    assert documents.checkpoint_total_bytes is None
    with pytest.raises(HubError, match="no safetensors"):  # the kept copy without headers does not answer for it
        hub_documents(MODEL, None, options)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("params.json", "Mistral"),
        ("adapter_config.json", "LoRA"),
        ("x.gguf", "GGUF"),
        ("README.md", "no model that vLLM loads"),
    ],
)
def test_repository_without_a_config_says_what_it_is(hub, options, name, word):
    error = failure(hub, options, tiny(files={name: b"{}"}))

    assert error.kind == "no_config"
    assert word in error.text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x01\x02",
        struct.pack("<Q", 2**62) + b"{}",
        struct.pack("<Q", 0),
        struct.pack("<Q", 500) + b'{"a": 1}',
        struct.pack("<Q", 4) + b"nope",
        struct.pack("<Q", 2) + b"[]",
        safetensors_bytes({"a": ("BF16", [4], 9)}),
        safetensors_bytes({"a": ("BF16", [-4], 8)}),
        b"version https://git-lfs.github.com/spec/v1\n",
    ],
)
def test_broken_header_is_named(hub, options, content):
    error = failure(hub, options, tiny(files={"config.json": CONFIG, "model.safetensors": content}))

    assert error.kind == "broken_header"
    assert "model.safetensors" in error.text


def test_range_that_the_server_refuses_is_a_broken_header(hub, options):
    hub.repos[MODEL] = tiny()
    hub.repos[MODEL].files["model.safetensors.index.json"] = INDEX

    error = failure(hub, options, None)

    assert error.kind == "broken_header"
    assert "does not hold" in error.text


def test_index_that_leaves_its_folder_is_refused(hub, options):
    index = json.dumps({"weight_map": {"a": "../../other/repo.safetensors"}}).encode()

    error = failure(hub, options, tiny(files={"config.json": CONFIG, "model.safetensors.index.json": index}))

    assert error.kind == "broken_header"


@pytest.mark.parametrize("content", [b"{", b"[1]", b'{"a": 1, "a": 2}', b"\xff\xfe{}"])
def test_broken_config_is_named(hub, options, content):
    error = failure(hub, options, tiny(files={"config.json": content, "model.safetensors": ONE_FILE}))

    assert error.kind == "broken_config"
    assert "config.json" in error.text


def test_config_stated_to_be_huge_is_refused_before_it_is_read(hub, options):
    error = failure(hub, options, tiny(stated_lengths={"config.json": 100 * 2**20}))

    assert error.kind == "too_large"
    assert "config.json" in error.text


def test_config_that_is_huge_is_refused(hub, options):
    huge = b'{"a": "' + b"x" * (11 * 2**20) + b'"}'

    error = failure(hub, options, tiny(files={"config.json": huge, "model.safetensors": ONE_FILE}))

    assert error.kind == "too_large"


@pytest.mark.parametrize(
    "model_id", ["", "a/b/c", "acme/ti ny", "-x", "acme/..", "https://example.org/acme/tiny", "x" * 200]
)
def test_bad_id_is_refused_without_a_request(hub, options, model_id):
    with pytest.raises(HubError) as caught:
        fetch_model(model_id, None, options)

    assert caught.value.kind == "bad_id"
    assert hub.requests == []


def test_second_fetch_of_a_commit_asks_for_nothing(hub, options):
    hub.repos[MODEL] = tiny()
    first = fetch_model(MODEL, None, options)
    hub.requests.clear()

    again = fetch_model(MODEL, COMMIT, options)

    assert again.tensors == first.tensors
    assert hub.requests == []


def test_second_fetch_of_a_branch_asks_only_what_it_means(hub, options):
    hub.repos[MODEL] = tiny()
    fetch_model(MODEL, "main", options)
    hub.requests.clear()

    fetch_model(MODEL, "main", options)

    assert len(hub.requests) == 1


def test_moved_branch_is_fetched_anew(hub, options):
    hub.repos[MODEL] = tiny()
    fetch_model(MODEL, None, options)
    hub.repos[MODEL] = tiny(files={"config.json": b'{"new": 1}', "model.safetensors": ONE_FILE}, commit="f" * 40)

    assert fetch_model(MODEL, None, options).config_json == '{"new": 1}'


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"format": 1}', '{"format": 0}', "nonsense", '{"format": 1, "endpoint": "x"}']
)
def test_broken_kept_copy_counts_as_none(hub, options, content):
    hub.repos[MODEL] = tiny()
    fetch_model(MODEL, None, options)
    for path in (options.cache_folder / "hub").glob("*.json"):
        path.write_text(content)

    assert fetch_model(MODEL, COMMIT, options).checkpoint_total_bytes == 76


def test_cache_that_cannot_be_written_only_costs_time(hub, options, tmp_path):
    (tmp_path / "file").write_text("")
    hub.repos[MODEL] = tiny()

    assert fetch_model(MODEL, None, replace(options, cache_folder=tmp_path / "file")).checkpoint_total_bytes == 76


def test_cache_folder_follows_setting_and_platform(monkeypatch, tmp_path):
    assert default_cache_folder() == tmp_path / "user-cache" / "kvscope"
    monkeypatch.setattr("sys.platform", "darwin")
    assert default_cache_folder().parts[-3:] == ("Library", "Caches", "kvscope")
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    assert default_cache_folder() == tmp_path / "kvscope" / "Cache"
    monkeypatch.setenv("KVSCOPE_CACHE", str(tmp_path / "own"))
    assert default_cache_folder() == tmp_path / "own"


def test_kept_copies_of_two_endpoints_are_apart(hub, options):
    hub.repos[MODEL] = tiny()
    fetch_model(MODEL, None, options)

    assert HubCache(folder=options.cache_folder).load("http://elsewhere", MODEL, COMMIT) is None
    assert HubCache(folder=options.cache_folder).last_commit("http://elsewhere", MODEL, None) is None


def test_endpoint_of_the_environment_is_honoured(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.example/")

    assert chosen_endpoint() == "http://mirror.example"


@pytest.mark.parametrize("address", ["file:///etc", "ftp://x", "nonsense", "http://"])
def test_endpoint_that_is_no_address_is_refused(address):
    with pytest.raises(HubError, match="no http address"):
        chosen_endpoint(address)


@pytest.mark.parametrize("token", ["two words", "läßt", "a\nb"])
def test_token_that_no_header_carries_is_refused_and_not_shown(token):
    with pytest.raises(HubError) as caught:
        chosen_token(token)

    assert caught.value.kind == "unauthorized"
    assert token not in caught.value.text


def run(*words: str) -> tuple[int, str, str]:
    output, errors = io.StringIO(), io.StringIO()
    status = main(words, output, errors)
    return status, output.getvalue(), errors.getvalue()


def test_fetch_command_writes_a_folder_that_model_dir_reads(hub, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    files = {
        "config.json": CONFIG,
        "model.safetensors": ONE_FILE,
        "tokenizer_config.json": b'{"model_max_length": 8192, "chat_template": "long"}',
        "generation_config.json": b'{"max_length": 100}',
        "hf_quant_config.json": b"{}",
    }
    hub.repos[MODEL] = FakeRepo(files=files)

    status, output, errors = run("fetch", MODEL, "--out", str(tmp_path / "out"))
    documents = folder_documents(tmp_path / "out")

    assert (status, errors) == (0, "")
    assert "--model-dir" in output
    assert documents.model_id == MODEL
    assert documents.revision == COMMIT
    assert documents.source.startswith("Hugging Face Hub: acme/tiny")
    assert [t.num_bytes for t in documents.tensors] == [64, 12]
    assert (documents.tokenizer_max_length, documents.generation_max_length) == (8192, 100)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_fetch_command_reads_the_token_from_the_named_variable(hub, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    monkeypatch.setenv("MY_TOKEN", "hf_good")
    hub.repos[MODEL] = tiny(gated=True)

    assert run("fetch", MODEL, "--out", str(tmp_path / "out"), "--token-env", "MY_TOKEN")[0] == 0


def test_fetch_command_says_what_is_wrong_in_one_line(hub, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)

    status, output, errors = run("fetch", "acme/none", "--out", str(tmp_path / "out"))

    assert (status, output) == (2, "")
    assert errors.count("\n") == 1
    assert "is not on the Hub" in errors
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("words", [[], ["fetch"], ["fetch", "x"], ["fetch", "x", "--out", "y", "--nope"], ["bring"]])
def test_bad_words_are_one_line_and_status_two(words, capsys):
    with pytest.raises(SystemExit) as caught:
        main(words)

    assert caught.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
def test_time_limit_must_be_positive(seconds, tmp_path):
    status, _, errors = run("fetch", MODEL, "--out", str(tmp_path / "o"), "--timeout", seconds)

    assert status == 2
    assert "--timeout" in errors


def test_folder_written_before_is_replaced_whole(hub, options, tmp_path):
    hub.repos[MODEL] = tiny(files={"config.json": CONFIG, "model.safetensors": ONE_FILE, "hf_quant_config.json": b"{}"})
    write_folder(fetch_model(MODEL, None, options), tmp_path / "out")
    hub.repos[MODEL] = tiny(commit="f" * 40)

    write_folder(fetch_model(MODEL, None, options), tmp_path / "out")

    assert folder_documents(tmp_path / "out").revision == "f" * 40
    assert not (tmp_path / "out" / "hf_quant_config.json").exists()


def test_folder_with_other_files_is_left_alone(hub, options, tmp_path):
    hub.repos[MODEL] = tiny()
    model = fetch_model(MODEL, None, options)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "config.json").write_text("mine")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")

    for name in ("full", "notes", "file"):
        with pytest.raises(PlanError, match="--out"):
            write_folder(model, tmp_path / name)
    with pytest.raises(PlanError, match="cannot be written"):
        write_folder(model, tmp_path / "file" / "below")

    assert (tmp_path / "full" / "config.json").read_text() == "mine"


def test_empty_folder_is_filled(hub, options, tmp_path):
    hub.repos[MODEL] = tiny()
    (tmp_path / "out").mkdir()

    write_folder(fetch_model(MODEL, None, options), tmp_path / "out")

    assert folder_documents(tmp_path / "out").checkpoint_total_bytes == 76


def test_fetch_command_shows_progress_on_a_terminal(hub, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    hub.repos[MODEL] = tiny()
    errors = io.StringIO()
    errors.isatty = lambda: True

    status = main(["fetch", MODEL, "--out", str(tmp_path / "out")], io.StringIO(), errors)

    assert status == 0
    assert "1/1 model.safetensors" in errors.getvalue()


def test_file_that_the_record_names_and_the_hub_lacks_is_said(hub, options):
    repo = tiny()
    repo.files["config.json"] = None

    error = failure(hub, options, repo)

    assert error.kind == "no_config"


def test_module_runs_as_a_command(hub, tmp_path):
    hub.repos[MODEL] = tiny()
    environment = {"HF_ENDPOINT": hub.endpoint, "KVSCOPE_CACHE": str(tmp_path / "cache"), "HOME": str(tmp_path)}

    command = [sys.executable, "-m", "live", "fetch", MODEL, "--out", str(tmp_path / "out"), "--config-only"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out" / "config.json").read_bytes() == CONFIG
