"""The cards in this machine as NVML reports them. Absence of a library, a driver or a card is a state, never an exception."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

NvmlStateKind = Literal["ok", "library_absent", "driver_absent", "no_devices", "failed"]

# Of nvml.h: the errors that mean "no NVIDIA driver here".
_LIBRARY_NOT_FOUND = 12
_DRIVER_NOT_LOADED = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMemory:
    """What one process holds on a card; `used_bytes` is None where the driver does not say."""

    pid: int
    used_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectedGpu:
    """One card. `total_bytes` is the driver's total; a CUDA program sees somewhat less (`reserved_bytes`, where known)."""

    index: int
    name: str
    total_bytes: int
    used_bytes: int
    free_bytes: int
    reserved_bytes: int | None
    compute_capability: tuple[int, int] | None
    is_mig_enabled: bool
    processes: tuple[ProcessMemory, ...]
    power_limit_watts: int | None = None  # what the driver holds it to now


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlState:
    """What was found; `remedy` is one sentence for every kind but `ok`."""

    kind: NvmlStateKind
    remedy: str = ""
    driver_version: str | None = None
    gpus: tuple[DetectedGpu, ...] = ()


def _library() -> Any:  # pynvml ships no types
    return import_module("pynvml")


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


@dataclass(frozen=True, slots=True)
class _Reader:
    """Asks one NVML library; what a card or driver does not support is None."""

    nvml: Any  # pynvml, or a test's stand-in

    def _optional(self, ask: Callable[..., Any], *arguments: object) -> Any:
        try:
            return ask(*arguments)
        except self.nvml.NVMLError:
            return None

    def _memory(self, handle: Any) -> tuple[Any, int | None]:
        version = getattr(self.nvml, "nvmlMemory_v2", None)
        second = self._optional(self.nvml.nvmlDeviceGetMemoryInfo, handle, version) if version is not None else None
        return (
            (second, int(second.reserved)) if second is not None else (self.nvml.nvmlDeviceGetMemoryInfo(handle), None)
        )

    def _processes(self, handle: Any) -> tuple[ProcessMemory, ...]:
        by_pid: dict[int, int | None] = {}
        for ask in (self.nvml.nvmlDeviceGetComputeRunningProcesses, self.nvml.nvmlDeviceGetGraphicsRunningProcesses):
            for process in self._optional(ask, handle) or ():
                used = process.usedGpuMemory
                by_pid[process.pid] = int(used) if isinstance(used, int) else by_pid.get(process.pid)
        return tuple(ProcessMemory(pid=pid, used_bytes=used) for pid, used in sorted(by_pid.items()))

    def _power_limit_watts(self, handle: Any) -> int | None:
        """The limit in force, rounded up; the one that was set where the driver tells no more. NVML counts milliwatts."""
        for name in ("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"):
            ask = getattr(self.nvml, name, None)
            milliwatts = None if ask is None else self._optional(ask, handle)
            if milliwatts:
                return -(-int(milliwatts) // 1000)
        return None

    def gpu(self, index: int) -> DetectedGpu:
        """The card number `index`."""
        handle = self.nvml.nvmlDeviceGetHandleByIndex(index)
        memory, reserved_bytes = self._memory(handle)
        capability = self._optional(self.nvml.nvmlDeviceGetCudaComputeCapability, handle)
        mig = self._optional(self.nvml.nvmlDeviceGetMigMode, handle)
        return DetectedGpu(
            index=index,
            name=_text(self.nvml.nvmlDeviceGetName(handle)),
            total_bytes=int(memory.total),
            used_bytes=int(memory.used),
            free_bytes=int(memory.free),
            reserved_bytes=reserved_bytes,
            compute_capability=(int(capability[0]), int(capability[1])) if capability is not None else None,
            is_mig_enabled=bool(mig and mig[0]),
            processes=self._processes(handle),
            power_limit_watts=self._power_limit_watts(handle),
        )

    def state(self) -> NvmlState:
        """The state of a started library."""
        driver = self._optional(self.nvml.nvmlSystemGetDriverVersion)
        count = int(self.nvml.nvmlDeviceGetCount())
        version = _text(driver) if driver is not None else None
        if count == 0:
            remedy = "The NVIDIA driver sees no card; choose a card from the catalogue."
            return NvmlState(kind="no_devices", remedy=remedy, driver_version=version)
        return NvmlState(kind="ok", driver_version=version, gpus=tuple(self.gpu(index) for index in range(count)))


def _failure(error: Exception) -> NvmlState:
    code = getattr(error, "value", None)
    if code in {_LIBRARY_NOT_FOUND, _DRIVER_NOT_LOADED} or isinstance(error, OSError):
        remedy = "No NVIDIA driver answers on this machine; choose a card from the catalogue, or run where the card is."
        return NvmlState(kind="driver_absent", remedy=remedy)
    remedy = f"NVML failed ({error}); check nvidia-smi, or choose a card from the catalogue."
    return NvmlState(kind="failed", remedy=remedy)


def detect(load: Callable[[], Any] = _library) -> NvmlState:
    """The cards of this machine, or the named state that says why there are none to show."""
    try:
        nvml = load()
    except ImportError:
        remedy = "Package nvidia-ml-py is not installed; install it with pip, or choose a card from the catalogue."
        return NvmlState(kind="library_absent", remedy=remedy)
    try:
        nvml.nvmlInit()
    except (nvml.NVMLError, OSError) as error:
        return _failure(error)
    try:
        return _Reader(nvml).state()
    except nvml.NVMLError as error:
        return _failure(error)
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()
