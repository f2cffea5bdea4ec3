"""One reading of a server: what it offers, what it leaves out, and the ports of this machine."""

import json
from pathlib import Path

import pytest
from fakes import engine_server as fake

from live.__main__ import main
from live.engine_snapshot import ServerFacts, read_server, read_text
from live.http_reader import HttpReader
from live.local_engines import find_local_engines, listening_ports
from live.scrape_address import parse_address

METRICS = fake.text(
    'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1.0\n'
    'vllm:kv_cache_usage_perc{engine="0",model_name="M"} 0.5\n'
    "process_start_time_seconds 1.5e+09\n"
)
MODELS = {
    "data": [
        {"id": "M", "root": "org/M", "parent": None, "max_model_len": 4096},
        {"id": "lora", "parent": "M", "max_model_len": True},
        {"id": None},
        "junk",
    ]
}
INFO = {
    "vllm_config": {
        "cache_config": {"block_size": 16, "kv_cache_metrics": None},
        "parallel_config": {"tensor_parallel_size": 2, "nested": {"a": 1}},
        "model_config": {"model": "org/M", "hf_token": "sesame", "max_model_len": 4096},
        "scheduler_config": {"api_key": "sesame", "max_num_seqs": 64},
    },
    "vllm_env": {"VLLM_SECRET": "sesame"},
    "system_env": {"os": "sesame"},
}
WHOLE = {
    "/metrics": METRICS,
    "/version": fake.text('{"version": "0.25.1"}'),
    "/v1/models": fake.text(json.dumps(MODELS)),
    "/server_info": fake.text(json.dumps(INFO)),
}


def read(routes, **options):
    with fake.engine_server(routes) as server:
        return read_server(HttpReader(), parse_address(server.url), **options), server


def test_a_whole_server_is_read_by_gets_alone():
    reading, server = read(WHOLE, wall_clock_ns=lambda: 42)

    snapshot = reading.snapshot
    assert (reading.state, snapshot.vllm_version, snapshot.time_unix_ns) == ("ok", "0.25.1", 42)
    assert [(one.model_id, one.parent, one.max_model_len) for one in snapshot.models] == [
        ("M", None, 4096),
        ("lora", "M", None),
    ]
    assert snapshot.process_start_unix_seconds == 1.5e9
    assert {(method, path.split("?")[0]) for method, path, _ in server.seen} == {("GET", path) for path in WHOLE}


def test_server_info_keeps_no_environment_and_no_secret():
    reading, _ = read(WHOLE)

    kept = json.loads(reading.snapshot.server_info)
    assert "sesame" not in reading.snapshot.server_info
    assert kept["parallel_config"] == {"tensor_parallel_size": 2}
    assert kept["model_config"] == {"max_model_len": 4096, "model": "org/M"}


def test_what_a_server_does_not_offer_is_none():
    reading, _ = read({"/metrics": METRICS, "/version": fake.text("[" * 5000), "/v1/models": fake.text('{"data": 3}')})

    snapshot = reading.snapshot
    assert (snapshot.vllm_version, snapshot.models, snapshot.server_info) == (None, (), None)
    assert snapshot.engines[0].kv_usage_fraction == 0.5


def test_known_facts_are_not_asked_for_again():
    reading, server = read(WHOLE, facts=ServerFacts(vllm_version="0.25.1"))

    assert reading.snapshot.vllm_version == "0.25.1"
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("route", "state", "word"),
    [
        (fake.text("<html>hello</html>"), "not_vllm", "no metrics text"),
        (fake.text("up 1\n"), "not_vllm", "none of vLLM's"),
        (fake.text("", status=503), "http_error", "503"),
    ],
)
def test_a_server_that_is_no_engine_is_a_named_state(route, state, word):
    reading, _ = read({"/metrics": route})

    assert (reading.state, reading.snapshot) == (state, None)
    assert word in reading.text


def test_a_saved_text_is_a_snapshot_of_its_file():
    snapshot = read_text(b"vllm:num_requests_running 3.0\n", "saved.txt", 5)

    assert (snapshot.source, snapshot.time_unix_ns, snapshot.engines[0].num_requests_running) == ("saved.txt", 5, 3)


# -- this machine ---------------------------------------------------------------------------------------------------------


def test_an_engine_on_any_listening_port_is_found():
    with fake.engine_server(WHOLE) as engine, fake.engine_server({}) as stranger:
        ports = (engine.server_port, stranger.server_port, 1)
        found = find_local_engines(find_ports=lambda: ports)
        left_out = find_local_engines(find_ports=lambda: ports, own_ports=[engine.server_port])

    assert engine.server_port in [server.port for server, _ in found]
    assert engine.server_port not in [server.port for server, _ in left_out]
    assert len(stranger.seen) == 2


def test_the_kernels_table_tells_the_listening_ports(tmp_path):
    table = tmp_path / "tcp"
    table.write_text(
        "  sl  local_address rem_address   st\n"
        "   0: 0100007F:1F40 00000000:0000 0A 0\n"
        "   1: 0100007F:1F41 0100007F:0050 01 0\n"
        "junk\n"
    )

    assert listening_ports([table, tmp_path / "absent"]) == (8000,)


# -- the command ----------------------------------------------------------------------------------------------------------


def test_the_command_writes_the_snapshot_as_json(capsys):
    with fake.engine_server(WHOLE) as server:
        status = main(["snapshot", server.url, "--json"])

    answer = json.loads(capsys.readouterr().out)
    assert status == 0
    assert set(answer) == {"vllm_version", "engines", "findings"}
    assert answer["engines"][0]["num_gpu_blocks"] == 100
    assert answer["engines"][0]["num_requests_running"] is None


def test_the_command_writes_lines_that_say_what_is_not_exported(capsys):
    with fake.engine_server(WHOLE) as server:
        main(["snapshot", server.url])

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("vLLM 0.25.1")
    assert "  num_requests_running: not exported" in lines
    assert "  kv_usage_fraction: 0.5" in lines
    assert "serves M, max_model_len 4,096 tokens" in lines


def test_the_key_for_the_models_comes_from_the_environment_and_is_not_printed(capsys, monkeypatch):
    monkeypatch.setenv("ENGINE_KEY", "sesame")
    with fake.engine_server(WHOLE) as server:
        main(["snapshot", server.url, "--token-env", "ENGINE_KEY"])

    assert server.seen[-1][2]["Authorization"] == "Bearer sesame"
    assert "sesame" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["http://127.0.0.1:1"], "Nothing answers"),
        (["http://gpu1.invalid:8000"], "KVSCOPE_ALLOW_SCRAPE"),
        (["file:///etc/passwd"], "http://"),
        (["--file", "absent.txt"], "absent.txt"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_status_two(words, text, capsys):
    status = main(["snapshot", *words])

    errors = capsys.readouterr().err
    assert status == 2
    assert text in errors
    assert errors.count("\n") == 1


def test_a_huge_file_is_refused(tmp_path, capsys):
    huge = tmp_path / "huge.txt"
    huge.write_bytes(b"#" * 16_000_001)

    assert main(["snapshot", "--file", str(huge)]) == 2
    assert "16 MB" in capsys.readouterr().err


def test_finding_no_engine_says_where_was_looked(capsys, monkeypatch):
    monkeypatch.setattr("live.live_cli.find_local_engines", lambda: ())

    assert main(["snapshot", "--find"]) == 2
    assert "8000 to 8010" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, ("HTTP status 401", "asks for a key", "--token-env")),
        (403, ("HTTP status 403", "asks for a key", "--token-env")),
        (404, ("HTTP status 404", "no /metrics", "--port", "gateway")),
        (503, ("HTTP status 503", "log says why")),
    ],
)
def test_an_error_status_says_what_to_do(status: int, words: tuple[str, ...]) -> None:
    with fake.engine_server({"/metrics": fake.text("", status=status)}) as server:
        reading = read_server(HttpReader(), parse_address(server.url))

    assert reading.state == "http_error"
    assert not [word for word in words if word not in reading.text]


@pytest.mark.parametrize("content", [b"up 1\n", b"", b"<html>hello</html>", b"\xff\0"])
def test_a_file_without_vllms_metrics_was_read_and_says_so(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "metrics.txt"
    saved.write_bytes(content)

    status = main(["snapshot", "--file", str(saved), "--json"])

    printed = capsys.readouterr()
    record = json.loads(printed.out)
    assert (status, printed.err, record["engines"]) == (0, "", [])
    assert "no-vllm-metrics" in [finding["code"] for finding in record["findings"]]


def test_a_server_without_vllms_metrics_could_not_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    with fake.engine_server({"/metrics": fake.text("up 1\n")}) as server:
        status = main(["snapshot", server.url, "--json"])

    printed = capsys.readouterr()
    assert (status, printed.out) == (2, "")
    assert "none of vLLM's" in printed.err
