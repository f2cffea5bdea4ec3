"""NVML through a stand-in library: every absence is a named state with a remedy."""

# ruff: noqa: N802, N815 - NVML's own names
from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from live.nvml import detect

GIB = 2**30


class FakeError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


class FakeNvml:
    """Two calls' worth of NVML. `failing` names functions that answer with an error code."""

    NVMLError = FakeError
    nvmlMemory_v2 = 2

    def __init__(self, count: int = 1, **failing: int) -> None:
        self.count = count
        self.failing = failing
        self.is_open = False

    def __getattribute__(self, name: str):
        failing = object.__getattribute__(self, "__dict__").get("failing", {})
        if name in failing:
            code = failing[name]

            def fail(*_arguments: object) -> None:
                raise FakeError(code)

            return fail
        return object.__getattribute__(self, name)

    def nvmlInit(self) -> None:
        self.is_open = True

    def nvmlShutdown(self) -> None:
        self.is_open = False

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"570.1"

    def nvmlDeviceGetCount(self) -> int:
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, _handle: int) -> str:
        return "NVIDIA H200"

    def nvmlDeviceGetMemoryInfo(self, _handle: int, version: int | None = None) -> SimpleNamespace:
        return SimpleNamespace(total=140 * GIB, used=2 * GIB, free=138 * GIB, reserved=GIB if version else None)

    def nvmlDeviceGetEnforcedPowerLimit(self, _handle: int) -> int:
        return 575_500

    def nvmlDeviceGetPowerManagementLimit(self, _handle: int) -> int:
        return 600_000

    def nvmlDeviceGetCudaComputeCapability(self, _handle: int) -> tuple[int, int]:
        return (9, 0)

    def nvmlDeviceGetMigMode(self, _handle: int) -> list[int]:
        return [0, 0]

    def nvmlDeviceGetComputeRunningProcesses(self, _handle: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=7, usedGpuMemory=GIB), SimpleNamespace(pid=8, usedGpuMemory=None)]

    def nvmlDeviceGetGraphicsRunningProcesses(self, _handle: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=7, usedGpuMemory=None)]


def test_card_is_read_whole():
    nvml = FakeNvml()

    state = detect(lambda: nvml)

    (gpu,) = state.gpus
    assert (state.kind, state.driver_version) == ("ok", "570.1")
    assert (gpu.name, gpu.total_bytes, gpu.used_bytes, gpu.free_bytes) == ("NVIDIA H200", 140 * GIB, 2 * GIB, 138 * GIB)
    assert (gpu.reserved_bytes, gpu.compute_capability, gpu.is_mig_enabled) == (GIB, (9, 0), False)
    assert [(process.pid, process.used_bytes) for process in gpu.processes] == [(7, GIB), (8, None)]
    assert not nvml.is_open


def test_what_a_card_does_not_support_is_none():
    nvml = FakeNvml(
        nvmlDeviceGetCudaComputeCapability=3,
        nvmlDeviceGetMigMode=3,
        nvmlDeviceGetComputeRunningProcesses=3,
        nvmlDeviceGetGraphicsRunningProcesses=3,
        nvmlSystemGetDriverVersion=3,
        nvmlShutdown=1,
    )

    state = detect(lambda: nvml)

    (gpu,) = state.gpus
    assert state.driver_version is None
    assert (gpu.compute_capability, gpu.is_mig_enabled, gpu.processes) == (None, False, ())


def test_older_library_without_reserved_memory():
    class Older(FakeNvml):
        nvmlMemory_v2 = None

    (gpu,) = detect(Older).gpus

    assert gpu.reserved_bytes is None


def test_machine_without_the_package():
    def load():
        raise ImportError

    state = detect(load)

    assert state.kind == "library_absent"
    assert "nvidia-ml-py" in state.remedy


@pytest.mark.parametrize("code", [9, 12])
def test_machine_without_a_driver(code):
    state = detect(lambda: FakeNvml(nvmlInit=code))

    assert state.kind == "driver_absent"
    assert state.remedy


def test_machine_without_a_card():
    state = detect(lambda: FakeNvml(count=0))

    assert (state.kind, state.gpus, state.driver_version) == ("no_devices", (), "570.1")


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetName"])
def test_failing_library_is_a_state(call):
    nvml = FakeNvml(**{call: 999})

    state = detect(lambda: nvml)

    assert state.kind == "failed"
    assert "error 999" in state.remedy
    assert not nvml.is_open


def test_real_library_answers_at_once_with_a_state():
    started = time.monotonic()

    state = detect()

    assert state.kind in {"ok", "driver_absent", "no_devices"}
    assert bool(state.gpus) == (state.kind == "ok")
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("failing", "watts"),
    [
        ({}, 576),  # the limit in force, rounded up
        ({"nvmlDeviceGetEnforcedPowerLimit": 3}, 600),
        ({"nvmlDeviceGetEnforcedPowerLimit": 3, "nvmlDeviceGetPowerManagementLimit": 3}, None),
    ],
)
def test_the_power_limit_in_force_is_read_where_the_driver_tells(failing: dict[str, int], watts: int | None):
    (gpu,) = detect(lambda: FakeNvml(**failing)).gpus

    assert gpu.power_limit_watts == watts
