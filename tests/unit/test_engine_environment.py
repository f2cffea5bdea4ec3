from __future__ import annotations

import shutil
import sys
from typing import NamedTuple

import pytest

from live.engine import environment
from live.engine.environment import engine_folder, find_engine, make_engine
from planner.facts import PlanError


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture(autouse=True)
def plenty_of_space(monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, 10**12))
    monkeypatch.setattr(environment, "_python_3_11", lambda: "python3.11")


def recorder(calls, folder, failing=None):
    def run(command):
        calls.append([str(word) for word in command])
        if "venv" in command:
            (folder / "bin").mkdir(parents=True, exist_ok=True)
            (folder / "bin" / "python").touch()
        return int(failing is not None and failing in command)

    return run


def test_the_folder_is_the_one_that_the_environment_names(tmp_path):
    assert engine_folder({"KVSCOPE_ENGINE": str(tmp_path)}) == tmp_path
    assert engine_folder({"XDG_CACHE_HOME": "/cache"}).as_posix() == "/cache/kvscope/engine-0.32.0"


def test_an_absent_environment_says_how_to_make_it(tmp_path):
    found = find_engine({"KVSCOPE_ENGINE": str(tmp_path / "none")})

    assert (found.state, "make engine" in found.text) == ("absent", True)


def test_making_it_removes_what_does_not_match_and_marks_it_ready_last(tmp_path):
    calls: list[list[str]] = []
    folder = tmp_path / "engine"

    made = make_engine({"KVSCOPE_ENGINE": str(folder)}, recorder(calls, folder))

    assert made.state == "ready"
    assert [call[3:5] for call in calls[1:3]] == [
        ["--disable-pip-version-check", "install"],
        ["--disable-pip-version-check", "uninstall"],
    ]
    assert calls[2][-3:] == ["torchvision", "torchaudio", "torchcodec"]


def test_making_it_again_runs_nothing(tmp_path):
    calls: list[list[str]] = []
    folder = tmp_path / "engine"
    make_engine({"KVSCOPE_ENGINE": str(folder)}, recorder([], folder))

    make_engine({"KVSCOPE_ENGINE": str(folder)}, recorder(calls, folder))

    assert calls == []


def test_a_failed_installation_is_one_sentence_and_not_ready(tmp_path):
    folder = tmp_path / "engine"

    with pytest.raises(PlanError, match=r"torch 2\.13\.0\+cpu"):
        make_engine({"KVSCOPE_ENGINE": str(folder)}, recorder([], folder, failing="install"))

    assert find_engine({"KVSCOPE_ENGINE": str(folder)}).state == "incomplete"


def test_a_full_disk_is_said_before_anything_runs(tmp_path, monkeypatch):
    calls: list[list[str]] = []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, 2**30))

    with pytest.raises(PlanError, match=r"8 GiB free.*has 1\.0 GiB"):
        make_engine({"KVSCOPE_ENGINE": str(tmp_path / "engine")}, recorder(calls, tmp_path))

    assert calls == []


def test_a_missing_python_is_named(tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(sys, "version_info", (3, 13, 0))
    monkeypatch.setattr(shutil, "which", lambda _: None)

    with pytest.raises(PlanError, match=r"needs Python 3\.11"):
        make_engine({"KVSCOPE_ENGINE": str(tmp_path / "engine")}, lambda _: 0)
