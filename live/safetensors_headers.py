"""Safetensors headers read from afar: a ranged read a file, never a weight."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from live.hub_errors import HubError
from planner.checkpoint_headers import LENGTH_BYTES, header_length, parse_header
from planner.facts import PlanError
from planner.inventory import CheckpointTensor

ReadRange = Callable[[str, int, int], bytes]  # (file name, first, last) -> bytes of [first, last)
Progress = Callable[[int, int, str], None]  # (done, total, what)

_FIRST_BYTES = 100_000  # holds the whole header of nearly every shard, so one request is enough
_REQUESTS_AT_ONCE = 8
_FIELD = "model"


def _header_text(file_name: str, read_range: ReadRange) -> bytes:
    start = read_range(file_name, 0, _FIRST_BYTES)
    length = header_length(start[:LENGTH_BYTES], file_name, _FIELD)
    end = LENGTH_BYTES + length
    text = start[LENGTH_BYTES:end] if end <= len(start) else read_range(file_name, LENGTH_BYTES, end)
    if len(text) < length:
        raise PlanError(_FIELD, file_name, f"{file_name} ends inside its header (truncated); choose another revision.")
    return text


def remote_header(file_name: str, read_range: ReadRange) -> tuple[CheckpointTensor, ...]:
    """The tensors of the remote safetensors file `file_name`; nonsense is a `broken_header` error."""
    try:
        return parse_header(_header_text(file_name, read_range), file_name, _FIELD)
    except PlanError as error:
        raise HubError("broken_header", error.text) from None


def remote_headers(files: Iterable[str], read_range: ReadRange, progress: Progress) -> tuple[CheckpointTensor, ...]:
    """The tensors of all `files`, each name once, several files read at a time."""
    names = tuple(files)
    by_name: dict[str, CheckpointTensor] = {}
    with ThreadPoolExecutor(max_workers=_REQUESTS_AT_ONCE) as pool:
        futures = [pool.submit(remote_header, name, read_range) for name in names]
        try:
            for done, (name, future) in enumerate(zip(names, futures, strict=True), start=1):
                by_name.update((tensor.name, tensor) for tensor in future.result())
                progress(done, len(names), name)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return tuple(by_name.values())
