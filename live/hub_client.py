"""Bounded requests to one Hub endpoint through huggingface_hub's own session, each failure turned into a `HubError`.

The token goes to the endpoint only: the session drops it on a redirect to another host. Nothing here stores or logs it.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2  # the transport that huggingface_hub 2 itself requires
from huggingface_hub import constants, get_session, hf_hub_url
from huggingface_hub.errors import (
    DisabledRepoError,
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import (  # type: ignore[attr-defined]  # documented there, not re-exported for type checkers
    build_hf_headers,
    hf_raise_for_status,
    validate_repo_id,
)

from live.hub_errors import HubError, HubErrorKind
from planner.bounded_files import LARGEST_INDEX_BYTES, size_text

_RECORD_NAME = "the record"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_CONNECT_SECONDS = 10.0


def chosen_endpoint(endpoint: str | None = None) -> str:
    """The Hub's address: `endpoint`, else HF_ENDPOINT, else the public Hub."""
    address = (endpoint or os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise HubError("no_network", f"HF_ENDPOINT is {address[:80]!r}, which is no http address; unset or correct it.")
    return address


def chosen_token(token: str | None = None, environment_name: str = "HF_TOKEN") -> str | None:
    """The access token given, else the one in the environment, else None; one that no header can carry is refused."""
    value = (token or os.environ.get(environment_name) or "").strip()
    if value and not (value.isascii() and value.isprintable() and " " not in value):
        raise HubError(
            "unauthorized", "The access token has characters no token has; copy it again from the Hub's settings."
        )
    return value or None


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoRecord:
    """What the Hub says of a repository at one commit. `is_restricted`: gated or private."""

    commit: str
    files: frozenset[str]
    is_restricted: bool


def _record(values: Any) -> RepoRecord:  # parsed JSON: a wrong form is a KeyError, TypeError or ValueError
    commit = values["sha"]
    if not _COMMIT.fullmatch(commit):
        raise ValueError(commit)
    files = frozenset(str(entry["rfilename"]) for entry in values["siblings"])
    return RepoRecord(
        commit=commit, files=files, is_restricted=bool(values.get("gated")) or bool(values.get("private"))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HubClient:
    """One model repository at one endpoint. `read_seconds` bounds each wait, `deadline` (a `clock` time) the whole fetch."""

    model_id: str
    endpoint: str
    token: str | None = field(repr=False)
    read_seconds: float
    deadline: float
    clock: Callable[[], float] = time.monotonic

    def check_id(self) -> None:
        """Raise a `bad_id` error unless the id has the Hub's form."""
        try:
            validate_repo_id(self.model_id)
        except HFValidationError:
            text = f"{self.model_id[:100]!r} is no Hub id; write ORGANISATION/NAME, such as Qwen/Qwen3-8B."
            raise HubError("bad_id", text) from None

    def record(self, revision: str | None) -> RepoRecord:
        """The Hub's record of the repository at `revision`."""
        url = f"{self.endpoint}/api/models/{self.model_id}"
        if revision is not None:
            url += f"/revision/{quote(revision, safe='')}"
        with self._named_errors(revision=revision):
            return _record(json.loads(self._get(url, _RECORD_NAME, limit_bytes=LARGEST_INDEX_BYTES)))

    def read(self, file_name: str, commit: str, *, limit_bytes: int, span: tuple[int, int] | None = None) -> bytes:
        """A file's content, or its bytes `[first, last)` with `span`; more than `limit_bytes` is a `too_large` error."""
        with self._named_errors(file_name=file_name):
            url = hf_hub_url(self.model_id, file_name, revision=commit, endpoint=self.endpoint)
            return self._get(url, file_name, limit_bytes=limit_bytes, span=span)

    def _get(self, url: str, name: str, *, limit_bytes: int, span: tuple[int, int] | None = None) -> bytes:
        headers = {**build_hf_headers(token=self.token or False), "Accept-Encoding": "identity"}
        if span is not None:
            headers["Range"] = f"bytes={span[0]}-{span[1] - 1}"
        timeout = httpx2.Timeout(self.read_seconds, connect=min(self.read_seconds, _CONNECT_SECONDS))
        with get_session().stream("GET", url, headers=headers, timeout=timeout) as response:
            hf_raise_for_status(response)
            skip = span[0] if span is not None and response.status_code != httpx2.codes.PARTIAL_CONTENT else 0
            wanted = span[1] - span[0] if span is not None else None
            return self._body(response, name, limit_bytes=limit_bytes, skip=skip, wanted=wanted)

    def _body(
        self, response: httpx2.Response, file_name: str, *, limit_bytes: int, skip: int, wanted: int | None
    ) -> bytes:
        """The body from byte `skip` on; stops reading at `wanted` bytes, so a server that ignores ranges sends no weights."""
        stated = response.headers.get("Content-Length", "")
        if wanted is None and stated.isdigit() and int(stated) > limit_bytes:
            raise self._too_large(file_name, limit_bytes)
        content = bytearray()
        for chunk in response.iter_bytes():  # as they arrive, so that a server that drips is noticed
            content += chunk
            if self.clock() > self.deadline:
                raise self._slow()
            if wanted is not None and len(content) >= skip + wanted:
                break
            if len(content) > limit_bytes + skip:
                raise self._too_large(file_name, limit_bytes)
        return bytes(content[skip:] if wanted is None else content[skip : skip + wanted])

    def _too_large(self, file_name: str, limit_bytes: int) -> HubError:
        text = (
            f"{file_name} of {self.model_id} is larger than {size_text(limit_bytes)}, so it is not what its name says."
        )
        return HubError("too_large", f"{text} Check the id, or give a local folder.")

    def _slow(self) -> HubError:
        text = f"The Hub at {self.endpoint} did not answer in time; try again, or use a local folder or the offline catalogue."
        return HubError("slow", text)

    def _unreachable(self, why: str) -> HubError:
        text = f"The Hub at {self.endpoint} cannot be reached ({why}); check the network and HF_ENDPOINT, or use the offline catalogue."
        return HubError("no_network", text)

    @contextmanager
    def _named_errors(self, *, revision: str | None = None, file_name: str = "config.json") -> Iterator[None]:
        constants.HF_HUB_DISABLE_TELEMETRY = True  # without it the client asks the Hub for more than was asked for
        if self.clock() > self.deadline:
            raise self._slow()
        try:
            yield
        except HfHubHTTPError as error:
            raise self._refused(error, revision, file_name) from None
        except httpx2.TimeoutException:
            raise self._slow() from None
        except OfflineModeIsEnabled:
            raise HubError(
                "no_network", "HF_HUB_OFFLINE is set, so the Hub is not asked; unset it, or use the offline catalogue."
            ) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
            raise self._unreachable(type(error).__name__) from None
        except (ValueError, KeyError, TypeError, RecursionError):  # an answer that is no record of a model
            text = f"{self.endpoint} does not answer as a Hub does; check HF_ENDPOINT."
            raise HubError("server_error", text) from None

    def _refused(self, error: HfHubHTTPError, revision: str | None, file_name: str) -> HubError:
        model = self.model_id
        if isinstance(error, GatedRepoError):
            remedy = (
                "ask its owners for access for your token"
                if self.token
                else "accept its terms on its Hub page and give a token (HF_TOKEN)"
            )
            return HubError("gated", f"{model} is gated; {remedy}.")
        if isinstance(error, DisabledRepoError):
            return HubError("not_found", f"{model} has been disabled by the Hub; choose another model.")
        if isinstance(error, RevisionNotFoundError):
            return HubError(
                "revision_not_found",
                f"{model} has no revision {str(revision)[:80]!r}; give a branch, tag or commit it has.",
            )
        if isinstance(error, RepositoryNotFoundError):
            return HubError(
                "not_found",
                f"{model} is not on the Hub, or is private; check the spelling, or give a token (HF_TOKEN) that may read it.",
            )
        if isinstance(error, EntryNotFoundError):
            kind: HubErrorKind = "no_config" if file_name == "config.json" else "broken_header"
            text = f"{model} has no file {file_name}; choose another revision, or give a local folder."
            return HubError(kind, text)
        return self._refused_by_status(error.response.status_code, file_name)

    def _refused_by_status(self, status: int, file_name: str) -> HubError:
        if status in {401, 403}:
            remedy = "the token is not valid for it; give another" if self.token else "give a token (HF_TOKEN)"
            return HubError("unauthorized", f"The Hub refuses to show {self.model_id} ({status}): {remedy}.")
        if status == httpx2.codes.NOT_FOUND:
            return HubError(
                "not_found",
                f"{self.model_id} is not on the Hub at {self.endpoint}; check the spelling and HF_ENDPOINT.",
            )
        if status == httpx2.codes.RANGE_NOT_SATISFIABLE:
            return HubError(
                "broken_header",
                f"{file_name} of {self.model_id} is shorter than its header says; choose another revision.",
            )
        later = "asks to slow down" if status == httpx2.codes.TOO_MANY_REQUESTS else "failed"
        return HubError("server_error", f"The Hub at {self.endpoint} {later} (HTTP {status}); try again later.")
