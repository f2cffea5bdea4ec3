"""A GGUF file's header, read within limits and without mapping the file: metadata and tensor list, never a weight."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

from planner.bounded_files import size_text
from planner.facts import PlanError
from planner.gguf_config import checkpoint_name
from planner.gguf_types import GGML_TYPES, tensor_bytes
from planner.inventory import CheckpointTensor
from planner.units import MIB

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MOST_ENTRIES = 65_536
_MOST_TENSORS = 1_000_000
_MOST_DIMENSIONS = 8
_LARGEST_HEADER_BYTES = 512 * MIB  # vocabularies of 262,144 entries with merges stay under 20 MiB
_LONGEST_KEPT_TEXT = 4096
_LONGEST_KEPT_ARRAY = 1024  # per-layer numbers; of longer arrays (a vocabulary) only the length is kept
_TEXT, _ARRAY = 8, 9
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}


class GgufReader:
    """Reads one header front to back; `name` and `field` go into its errors."""

    def __init__(self, file: BinaryIO, name: str, field: str) -> None:
        self._file = file
        self._name = name
        self._field = field
        self._bytes_left = _LARGEST_HEADER_BYTES

    def _broken(self, what: str) -> PlanError:
        return PlanError(self._field, self._name, f"{self._name}: {what}; download the file again.")

    def _take(self, num_bytes: int) -> bytes:
        if num_bytes > self._bytes_left:
            raise self._broken(f"its header is larger than {size_text(_LARGEST_HEADER_BYTES)}")
        self._bytes_left -= num_bytes
        content = self._file.read(num_bytes)
        if len(content) < num_bytes:
            raise self._broken("it ends inside its GGUF header (truncated)")
        return content

    def _number(self, layout: str) -> Any:  # struct decides the type by `layout`
        return struct.unpack(layout, self._take(struct.calcsize(layout)))[0]

    def _count(self, most: int, what: str) -> int:
        count: int = self._number("<Q")
        if count > most:
            raise self._broken(f"it states {count} {what}, more than any real file has")
        return count

    def _text(self) -> str:
        length = self._count(_LARGEST_HEADER_BYTES, "bytes of one text")
        return self._take(length).decode("utf-8", "replace")

    def _array(self, depth: int) -> Any:
        kind: int = self._number("<I")
        length = self._count(_LARGEST_HEADER_BYTES, "items of one array")
        if kind in _SCALARS:
            content = self._take(length * struct.calcsize(_SCALARS[kind]))
            keep = length <= _LONGEST_KEPT_ARRAY
            return [item[0] for item in struct.iter_unpack(_SCALARS[kind], content)] if keep else length
        if depth > 2 or kind not in {_TEXT, _ARRAY}:
            raise self._broken(f"its metadata has an array of unknown type {kind}")
        for _ in range(length):
            self._skip_item(kind, depth)
        return length

    def _skip_item(self, kind: int, depth: int) -> None:
        if kind == _TEXT:
            self._take(self._count(_LARGEST_HEADER_BYTES, "bytes of one text"))
        else:
            self._array(depth + 1)

    def _value(self, kind: int) -> Any:
        if kind in _SCALARS:
            return self._number(_SCALARS[kind])
        if kind == _TEXT:
            return self._text()[:_LONGEST_KEPT_TEXT]
        if kind == _ARRAY:
            return self._array(0)
        raise self._broken(f"its metadata has a value of unknown type {kind}")

    def _tensor(self) -> CheckpointTensor:
        name = self._text()
        num_dimensions: int = self._number("<I")
        if num_dimensions > _MOST_DIMENSIONS:
            raise self._broken(f"tensor {name[:80]!r} states {num_dimensions} dimensions")
        dimensions = tuple(self._count(2**48, "elements in one dimension") for _ in range(num_dimensions))
        kind = GGML_TYPES.get(self._number("<I"))
        self._number("<Q")  # where its data starts
        if kind is None:
            raise PlanError(
                self._field,
                name[:80],
                f"{self._name}: tensor {name[:80]!r} is of a type this version does not know; use a common one such as Q4_K or Q8_0.",
            )
        num_bytes = tensor_bytes(name, kind, dimensions, self._field)
        return CheckpointTensor(
            name=checkpoint_name(name), dtype=kind.name, shape=dimensions[::-1], num_bytes=num_bytes
        )

    def read(self) -> tuple[dict[str, Any], tuple[CheckpointTensor, ...]]:
        """The metadata by key (a long array as its length) and the tensors."""
        if self._take(4) != _MAGIC:
            raise PlanError(
                self._field,
                self._name,
                f"{self._name} does not start with GGUF, so it is no GGUF file; give another file.",
            )
        version: int = self._number("<I")
        if version not in _VERSIONS:
            raise self._broken(f"GGUF version {version} is not one of {_VERSIONS} (or the file is big-endian)")
        num_tensors = self._count(_MOST_TENSORS, "tensors")
        num_entries = self._count(_MOST_ENTRIES, "metadata entries")
        metadata = {}
        for _ in range(num_entries):
            key = self._text()
            metadata[key] = self._value(self._number("<I"))
        return metadata, tuple(self._tensor() for _ in range(num_tensors))


def read_gguf(path: Path, field: str) -> tuple[dict[str, Any], tuple[CheckpointTensor, ...]]:
    """The metadata and tensors of the GGUF file `path`."""
    try:
        with path.open("rb") as file:
            return GgufReader(file, path.name, field).read()
    except OSError as error:
        raise PlanError(
            field, str(path), f"{path} cannot be read ({error.strerror}); check its permissions and links."
        ) from None
