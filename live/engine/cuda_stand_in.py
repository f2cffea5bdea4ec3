"""Makes a CPU build of vLLM believe that it runs on one CUDA card, so that it builds what it would build there.

Nothing that decides a size is changed: vLLM's own CUDA platform class answers, and only what it would ask the driver, the
compiled extensions and the kernels is answered here. Used by the oracle's child process alone; it never computes anything.
"""

# vLLM and torch are imported step by step, each once what it asks for stands in
# ruff: noqa: PLC0415
from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

Capability = tuple[int, int]

_CARD_BYTES = 80 * 2**30
_NUM_PROCESSORS = 132
# compiled extensions that a CPU wheel lacks and that are imported for what they register
_EXTENSIONS = (
    "vllm._C_stable_libtorch",
    "vllm._moe_C_stable_libtorch",
    "vllm._flashmla_C",
    "vllm._flashmla_extension_C",
    "vllm.third_party.flashmla.flash_mla_interface",
)
_FLASH_ATTENTION = tuple(
    f"vllm.vllm_flash_attn{tail}"
    for tail in (
        "",
        ".flash_attn_interface",
        ".cute",
        ".cute.utils",
        ".cute.interface",
        ".layers",
        ".layers.rotary",
    )
)
_FLASH_VERSIONS = (2, 3, 4)
_ASKS_FOR_SUPPORT = re.compile(r"support|available")
_OUR_OPERATORS = re.compile(r"_\w*C(_|$)")  # the namespaces of vLLM's extensions


class _AnyClass(type):
    """A class of which every attribute is a class again: enough for annotations and base classes."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _class_named(name)


def _class_named(name: str) -> Any:
    return _AnyClass(name, (), {"__init__": lambda _self, *_args, **_kwargs: None})


class _AnyModule(types.ModuleType):
    """A module of which every name is there."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _class_named(name) if name[0].isupper() else _nothing


def _nothing(*_args: object, **_kwargs: object) -> None:
    return None


def _yes(*_args: object, **_kwargs: object) -> bool:
    return True


class _AbsentPackages:
    """Finds any module of the packages that are not installed here and are in a CUDA environment."""

    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = {name for name in packages if importlib.util.find_spec(name) is None}

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> Any:
        if name.partition(".")[0] not in self._packages:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]  # a loader by its methods

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = _AnyModule(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__dict__["__version__"] = "0.0"


class _Stream:
    """A stream, or an event: it does nothing."""

    cuda_stream = 0

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        return

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing


class _Operator:
    """An operator of an absent extension: it can be looked up and asked whether it supports something."""

    def __init__(self, name: str) -> None:
        self.__name__ = self._qualname_ = name

    def __call__(self, *_args: object, **_kwargs: object) -> bool | None:
        return True if _ASKS_FOR_SUPPORT.search(self.__name__) else None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


def install(capability: Capability) -> None:
    """Stand in for the card; before anything of vLLM but its packages' names is imported."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    for name in _EXTENSIONS:
        sys.modules.setdefault(name, _AnyModule(name))
    _install_flash_attention()
    # FlashInfer comes with the CUDA wheel; Blackwell's choice of backends relies on it
    packages = ["torchvision", *(["flashinfer"] if capability >= (10, 0) else [])]
    sys.meta_path.append(_AbsentPackages(packages))
    _install_platform(capability)
    _install_torch(capability)


def finish() -> None:
    """What needs vLLM imported: kernels of a CUDA wheel are said to be there, and classes are inspected in this process."""
    import vllm._custom_ops as operators
    import vllm.distributed.device_communicators.shm_broadcast as broadcast
    import vllm.utils.import_utils as imports
    from vllm.model_executor.models import registry
    from vllm.utils import deep_gemm

    for name in dir(operators):
        if re.search(r"supports|_is_available|_supported", name) and callable(getattr(operators, name)):
            setattr(operators, name, _yes)
    imports.has_deep_gemm = deep_gemm.has_deep_gemm = _yes
    # vLLM would start a fresh interpreter for each class, so as not to start CUDA
    registry._LazyRegisteredModel.inspect_model_cls = lambda self: registry._ModelInfo.from_model_cls(  # noqa: SLF001 - its own hooks
        self.load_model_cls()
    )
    broadcast.MessageQueue.create_from_process_group = staticmethod(_nothing)
    _allow_cuda_bindings()


def _allow_cuda_bindings() -> None:
    """CUDA's Python bindings, for fused norms; after xgrammar, whose import looks whether they are real."""
    import xgrammar  # noqa: F401 - for what its import looks at

    sys.meta_path.append(_AbsentPackages(["cuda"]))


def _install_flash_attention() -> None:
    for name in _FLASH_ATTENTION:
        module = _AnyModule(name)
        module.__path__ = []
        module.__dict__.update(
            is_fa_version_supported=lambda version, device=None: version in _FLASH_VERSIONS,  # noqa: ARG005 - its names
            fa_version_unsupported_reason=lambda version, device=None: "not built here",  # noqa: ARG005 - its names
            FA2_AVAILABLE=True,
            FA3_AVAILABLE=True,
        )
        sys.modules[name] = module


def _install_platform(capability: Capability) -> None:
    from vllm import platforms

    platforms.vllm_version_matches_substr = lambda _: False  # "cpu" in the version would switch Triton off
    from vllm.platforms.cuda import CudaPlatformBase
    from vllm.platforms.interface import DeviceCapability

    def answering(value: object) -> Any:
        return classmethod(lambda _cls, *_args, **_kwargs: value)

    answers = {
        "get_device_capability": DeviceCapability(*capability),
        "get_device_name": _card_name(capability),
        "get_device_uuid": "GPU-stand-in",
        "get_device_total_memory": _CARD_BYTES,
        "is_fully_connected": True,
        "is_integrated_gpu": False,
        "num_compute_units": _NUM_PROCESSORS,
        "get_cuda_runtime_major": 13,
        "device_count": 1024,
        "set_device": None,
        "manual_seed_all": None,
        "get_device_numa_node": None,
        "get_all_device_numa_nodes": None,
        "get_device_communicator_cls": (
            "vllm.distributed.device_communicators.base_device_communicator.DeviceCommunicatorBase"
        ),
    }
    members = {name: answering(value) for name, value in answers.items()}
    platforms._current_platform = type("StandInPlatform", (CudaPlatformBase,), members)()  # noqa: SLF001 - its one slot


def _card_name(capability: Capability) -> str:
    return "NVIDIA H100 80GB HBM3" if capability < (10, 0) else "NVIDIA B200"


def _install_torch(capability: Capability) -> None:
    import torch

    properties = types.SimpleNamespace(
        name=_card_name(capability),
        major=capability[0],
        minor=capability[1],
        total_memory=_CARD_BYTES,
        multi_processor_count=_NUM_PROCESSORS,
        warp_size=32,
        max_threads_per_multi_processor=2048,
        shared_memory_per_block_optin=232_448,
        shared_memory_per_multiprocessor=233_472,
        L2_cache_size=50 * 2**20,
        gcnArchName="",
    )
    cuda_answers: dict[str, object] = {
        "get_device_capability": capability,
        "get_device_properties": properties,
        "get_device_name": properties.name,
        "device_count": 8,
        "current_device": 0,
        "mem_get_info": (_CARD_BYTES - 2**30, _CARD_BYTES),
        "current_stream": _Stream(),
        "default_stream": _Stream(),
    }
    accelerator_answers: dict[str, object] = {
        "current_accelerator": torch.device("cuda"),
        "is_available": True,
        "device_count": 8,
        "current_device_index": 0,
        "current_device_idx": 0,
        "current_stream": _Stream(),
    }
    silent = ("set_device", "synchronize", "empty_cache", "manual_seed_all")
    silent_too = ("set_device_index", "set_device_idx", "synchronize", "empty_cache", "set_stream")
    _answer(torch.cuda, cuda_answers | dict.fromkeys(silent))
    _answer(torch.accelerator, accelerator_answers | dict.fromkeys(silent_too))
    torch.cuda.Stream = torch.cuda.Event = torch.Event = _Stream
    torch.compile = _identity
    _install_operators(torch)


def _answer(module: Any, answers: dict[str, object]) -> None:
    for name, value in answers.items():
        setattr(module, name, lambda *_args, _value=value, **_kwargs: _value)


def _identity(function: Any = None, *_args: object, **_kwargs: object) -> Any:
    return function if function is not None else (lambda wrapped: wrapped)


def _install_operators(torch: Any) -> None:
    """Operators of absent extensions can be looked up, and a shape rule for one that does not exist is let go."""
    namespace = torch._ops._OpNamespace  # noqa: SLF001 - offered nowhere else
    real_lookup = namespace.__getattr__

    def lookup(self: Any, name: str) -> Any:
        try:
            return real_lookup(self, name)
        except AttributeError:
            if name.startswith("__") or not _OUR_OPERATORS.match(self.name):
                raise
        operator = _Operator(f"{self.name}.{name}")
        setattr(self, name, operator)
        return operator

    namespace.__getattr__ = lookup
    real_register = torch.library.register_fake

    def register_fake(operator: Any, function: Any = None, /, **options: Any) -> Any:
        def register(rule: Callable[..., Any]) -> Any:
            try:
                return real_register(operator, **options)(rule)
            except RuntimeError as error:
                if "does not exist" not in str(error):
                    raise
                return rule

        return register if function is None else register(function)

    torch.library.register_fake = register_fake


@contextmanager
def meta_device() -> Iterator[None]:
    """Inside, tensors have shape and dtype but no memory, also where code asks for a CUDA device by name or number."""
    import torch
    from torch.overrides import TorchFunctionMode

    def is_cuda(value: object) -> bool:
        if isinstance(value, torch.device):
            return bool(value.type == "cuda")
        if isinstance(value, str):
            return value.startswith("cuda")
        return isinstance(value, int) and not isinstance(value, bool)

    class OnMeta(TorchFunctionMode):  # type: ignore[misc]  # torch has no types here
        def __torch_function__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            options = dict(kwargs or {})
            if is_cuda(options.get("device")):
                options["device"] = torch.device("meta")
            if function is torch.Tensor.cuda:
                return args[0].to("meta")
            if function is torch.Tensor.to:
                args = tuple(
                    torch.device("meta") if not isinstance(arg, torch.Tensor) and is_cuda(arg) else arg for arg in args
                )
            return function(*args, **options)

    with torch.device("meta"), OnMeta():
        yield
