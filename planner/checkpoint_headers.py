"""Safetensors headers: names, dtypes and shapes of a checkpoint's tensors, read without touching a weight."""

from __future__ import annotations

import stat
from math import prod
from pathlib import Path
from typing import Any

from planner.bounded_files import LARGEST_INDEX_BYTES, parse_object, size_text
from planner.facts import PlanError
from planner.inventory import CheckpointTensor

LENGTH_BYTES = 8  # a safetensors file starts with its header's length as a little-endian 64-bit integer
_LARGEST_DIMENSION = 2**48
_LFS_START = b"version https://git-lfs"

# Bits per element by safetensors' own dtype names (format description, 2026).
DTYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip


def header_length(first_bytes: bytes, name: str, field: str) -> int:
    """The header's length in bytes that a file's first eight bytes state; nonsense is a `PlanError`."""
    if len(first_bytes) < LENGTH_BYTES:
        raise PlanError(
            field, name, f"{name} is shorter than the 8 bytes a safetensors file starts with; download it again."
        )
    length = int.from_bytes(first_bytes[:LENGTH_BYTES], "little")
    if length > LARGEST_INDEX_BYTES:
        limit = size_text(LARGEST_INDEX_BYTES)
        raise PlanError(
            field, name, f"{name} states a header larger than {limit}, so it is no safetensors file; download it again."
        )
    if length < 2:  # the shortest object is {}
        raise PlanError(
            field, name, f"{name} states a header of {length} bytes, so it is no safetensors file; download it again."
        )
    return length


def _dimensions(value: Any) -> tuple[int, ...] | None:  # parsed JSON, checked here
    if not isinstance(value, list) or len(value) > 16:
        return None
    if any(
        isinstance(item, bool) or not isinstance(item, int) or not 0 <= item <= _LARGEST_DIMENSION for item in value
    ):
        return None
    return tuple(value)


def checked_tensor(name: str, entry: Any, num_bytes: Any, where: str, field: str) -> CheckpointTensor:
    """One tensor from a header entry `{dtype, shape}` that fills `num_bytes`; an entry that contradicts itself is a `PlanError`."""
    shape = _dimensions(entry.get("shape")) if isinstance(entry, dict) else None
    dtype = entry.get("dtype") if isinstance(entry, dict) else None
    is_size_sane = isinstance(num_bytes, int) and not isinstance(num_bytes, bool) and num_bytes >= 0
    if shape is None or not isinstance(dtype, str) or not is_size_sane:
        raise PlanError(
            field, name[:80], f"{where}: the header's entry for {name[:80]!r} is broken; download the file again."
        )
    bits = DTYPE_BITS.get(dtype)
    if bits is not None and prod(shape) * bits != num_bytes * 8:
        text = f"{where}: tensor {name[:80]!r} of {prod(shape)} x {dtype} does not fill its {num_bytes} bytes; download the file again."
        raise PlanError(field, name[:80], text)
    return CheckpointTensor(name=name, dtype=dtype, shape=shape, num_bytes=num_bytes)


def _span(entry: Any) -> int | None:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not isinstance(offsets, list) or len(offsets) != 2:
        return None
    begin, end = offsets
    is_sane = all(isinstance(value, int) and not isinstance(value, bool) and value >= 0 for value in offsets)
    return end - begin if is_sane else None


def parse_header(text: bytes, name: str, field: str) -> tuple[CheckpointTensor, ...]:
    """The tensors that the header `text` of the file `name` lists."""
    entries = parse_object(text, f"the header of {name}", field)
    return tuple(
        checked_tensor(tensor, entry, _span(entry), name, field)
        for tensor, entry in entries.items()
        if tensor != "__metadata__"
    )


def read_header(path: Path, field: str) -> tuple[CheckpointTensor, ...] | None:
    """The tensors of the safetensors file `path`; None for a Git LFS pointer, which stands for a file not downloaded."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise PlanError(field, str(path), f"{path.name} is not a regular file; give the checkpoint's own folder.")
        with path.open("rb") as file:
            first = file.read(len(_LFS_START))
            if first == _LFS_START:
                return None
            length = header_length(first, path.name, field)
            file.seek(LENGTH_BYTES)
            text = file.read(length)
    except OSError as error:
        raise PlanError(
            field, str(path), f"{path} cannot be read ({error.strerror}); check its permissions and links."
        ) from None
    if len(text) < length:
        raise PlanError(field, str(path), f"{path.name} ends inside its header (truncated); download it again.")
    return parse_header(text, path.name, field)
