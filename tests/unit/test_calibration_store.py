"""The file of calibrations: what it holds and never holds, who writes it, what it refuses."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from live.calibration_store import FILE_SETTING, CalibrationStore, calibrations_file, this_host
from live.monitor import FOLDER_SETTING
from planner.__main__ import main
from planner.calibration import CalibratedStart, Calibration, Evidence, constants_digest
from planner.calibration_file import LARGEST_FILE_BYTES, from_text, to_text
from planner.facts import PlanError
from planner.units import GIB

CARD, ERA = "H100 80GB SXM", "0.17 to 0.20"


def learned(source: str = "a.log", model_id: str = "Qwen/Qwen3-8B", measured_gib: float = 0.4) -> CalibratedStart:
    evidence = Evidence(
        term="non_torch",
        predicted_bytes=GIB // 4,
        low_bytes=GIB // 5,
        high_bytes=GIB // 3,
        measured_bytes=round(measured_gib * GIB),
        rounding_bytes=5_000_000,
    )
    return CalibratedStart(
        source=source,
        read_on="2026-11-29",
        model_id=model_id,
        vllm_version="0.19.0",
        tensor_parallel_size=1,
        pipeline_parallel_size=1,
        runner="v1",
        stage="sampler",
        batch="max_num_seqs=1024 max_num_batched_tokens=8192",
        flags="max_model_len=8192",
        total_bytes=None,
        general_constants=constants_digest(),
        evidence=(evidence,),
    )


def made(*starts: CalibratedStart) -> Calibration:
    return Calibration(host="node1", card=CARD, era=ERA, starts=starts or (learned(),))


@pytest.fixture
def store(tmp_path: Path) -> CalibrationStore:
    return CalibrationStore(tmp_path / "folder" / "calibrations.json")


def test_the_file_is_where_the_setting_says_else_among_the_recordings(tmp_path: Path) -> None:
    chosen = calibrations_file({FILE_SETTING: str(tmp_path / "mine.json"), FOLDER_SETTING: str(tmp_path)})
    beside = calibrations_file({FOLDER_SETTING: str(tmp_path)})

    assert chosen == tmp_path / "mine.json"
    assert beside == tmp_path / "calibrations.json"


def test_nothing_is_held_before_anything_is_kept(store: CalibrationStore) -> None:
    assert store.all() == ()
    assert store.of(CARD, ERA) is None
    assert not store.path.exists()


def test_what_is_kept_is_there_for_another_process(store: CalibrationStore) -> None:
    kept = store.add(CARD, ERA, [learned()], host="node1")

    again = CalibrationStore(store.path)
    assert again.all() == (kept,)
    assert again.named(kept.identity) == kept
    assert again.of(CARD, ERA, host="node1") == kept


def test_a_second_start_joins_the_first_and_the_same_log_again_replaces_itself(store: CalibrationStore) -> None:
    store.add(CARD, ERA, [learned("a.log")])
    store.add(CARD, ERA, [learned("b.log")])
    kept = store.add(CARD, ERA, [learned("a.log", measured_gib=0.5)])

    assert {start.source for start in kept.starts} == {"a.log", "b.log"}
    assert len(store.all()) == 1


def test_cards_eras_and_hosts_are_kept_apart(store: CalibrationStore) -> None:
    for host, card, era in (
        ("node1", CARD, ERA),
        ("node2", CARD, ERA),
        ("node1", "L40S", ERA),
        ("node1", CARD, "0.21 to 0.26"),
    ):
        store.add(card, era, [learned()], host=host)

    assert len(store.all()) == 4
    assert store.of("L40S", "0.21 to 0.26") is None


def test_the_hosts_own_comes_before_an_imported_one(store: CalibrationStore) -> None:
    own = store.add(CARD, ERA, [learned()])
    store.take(to_text([made(learned(measured_gib=0.9))]).encode(), "theirs.json")

    assert store.of(CARD, ERA) == own
    assert store.of(CARD, ERA, host="node1") != own


def test_starts_and_calibrations_are_forgotten(store: CalibrationStore) -> None:
    kept = store.add(CARD, ERA, [learned("a.log"), learned("b.log")])

    store.remove_start(kept.identity, "a.log")
    (left,) = store.all()
    store.remove_start(left.identity, "b.log")

    assert [start.source for start in left.starts] == ["b.log"]
    assert store.all() == ()


def test_two_writers_at_once_lose_nothing(store: CalibrationStore) -> None:
    writers = [
        threading.Thread(target=CalibrationStore(store.path).add, args=(CARD, ERA, [learned(f"{number}.log")]))
        for number in range(8)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    (kept,) = store.all()
    assert len(kept.starts) == 8


def test_the_file_is_readable_and_tells_where_each_constant_comes_from(store: CalibrationStore) -> None:
    store.add(CARD, ERA, [learned()])

    record = json.loads(store.path.read_text(encoding="utf-8"))

    (calibration,) = record["calibrations"]
    assert record["schema"] == 1
    assert calibration["starts"][0]["source"] == "a.log"
    assert calibration["learned"][0]["term"] == "non_torch"
    assert "1 start" in calibration["learned"][0]["from"]


def test_a_file_that_is_not_ours_is_said_and_never_overwritten(store: CalibrationStore) -> None:
    store.path.parent.mkdir()
    store.path.write_text("my shopping list", encoding="utf-8")

    with pytest.raises(PlanError, match="calibrations"):
        store.all()
    with pytest.raises(PlanError):
        store.add(CARD, ERA, [learned()])
    assert store.path.read_text(encoding="utf-8") == "my shopping list"


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")

    with pytest.raises(PlanError, match=FILE_SETTING):
        CalibrationStore(tmp_path / "file" / "calibrations.json").add(CARD, ERA, [learned()])


def test_this_hosts_name_is_one_that_a_request_takes() -> None:
    kept = replace(made(), host=this_host())

    (read,) = from_text(to_text([kept]), "any.json")
    assert read.host == this_host()


def changed(**fields: object) -> str:
    """A file of ours with some fields of its one calibration, start or evidence replaced."""
    record = json.loads(to_text([made()]))
    calibration = record["calibrations"][0]
    for place in (record, calibration, calibration["starts"][0], calibration["starts"][0]["evidence"][0]):
        place.update({name: value for name, value in fields.items() if name in place})
    return json.dumps(record)


@pytest.mark.parametrize(
    "fields",
    [
        {"schema": 2},
        {"host": "../../etc"},
        {"host": "<script>"},
        {"card": 7},
        {"card": "x" * 400},
        {"source": "a\x00b"},
        {"starts": []},
        {"starts": "none"},
        {"calibrations": [{}] * 300},
        {"tensor_parallel_size": 0},
        {"term": "pool"},
        {"measured_bytes": "much"},
        {"measured_bytes": 1e300},
        {"measured_bytes": True},
        {"low_bytes": GIB},
        {"rounding_bytes": -1},
        {"is_shared": "yes"},
        {"total_bytes": 1.5},
    ],
)
def test_an_import_that_is_not_whole_is_refused_with_one_sentence(fields: dict[str, object]) -> None:
    with pytest.raises(PlanError) as raised:
        from_text(changed(**fields), "theirs.json")

    assert raised.value.text.startswith("theirs.json cannot be read as calibrations:")


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff\xfe", b"{" * 5000, b"x" * (LARGEST_FILE_BYTES + 1)])
def test_what_is_no_file_of_ours_at_all_is_refused(content: bytes) -> None:
    with pytest.raises(PlanError):
        from_text(content, "theirs.json")


def test_the_command_line_plans_with_an_exported_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.json"
    path.write_text(to_text([made()]), encoding="utf-8")
    words = ["plan", "--model", "Qwen/Qwen3-8B", "--gpu", CARD, "--vllm-version", "0.19.0", "--json"]

    statuses = [main(words), main([*words, "--calibrations", str(path)])]

    general, calibrated = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert statuses == [0, 0]
    assert general["calibration"] is None
    assert calibrated["calibration"] == made().identity
    assert calibrated["non_torch_bytes"] > general["non_torch_bytes"]
    assert main([*words[:-3], "--vllm-version", "0.33.0", "--calibrations", str(path)]) == 2
