"""Debian's own Prometheus, scraping one target on loopback; where it is not installed the test is skipped, in CI it fails."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CI_INSTALLS = "prometheus" in (Path(__file__).parents[2] / ".ci" / "run").read_text()


def need_prometheus() -> None:
    """Skip the test on a machine without it, unless CI has promised to install it."""
    if shutil.which("prometheus") is None and not (os.environ.get("CI") == "true" and CI_INSTALLS):
        pytest.skip("no prometheus on this machine: apt-get install prometheus")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def real_prometheus(folder: Path, *targets: str, scrape: str = "200ms") -> Iterator[str]:
    """The address of its web page's graph, as a person would paste it."""
    config = folder / "prometheus.yml"
    listed = ", ".join(f"'{target}'" for target in targets)
    config.write_text(
        "scrape_configs:\n"
        "- job_name: vllm\n"
        f"  scrape_interval: {scrape}\n"
        f"  scrape_timeout: {scrape}\n"
        f"  static_configs: [{{targets: [{listed}]}}]\n"
    )
    port = free_port()
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
        try:
            yield f"http://127.0.0.1:{port}/graph"
        finally:
            process.terminate()
            process.wait(20)
