"""What a site has already is not sent again: layers matched earlier, its own weights, a model it has just evaluated.

A tensor's version is the digest of its bytes. The coordinator leaves out the tensors that a site has and names their
versions instead. The site completes the message from its own disk, or replies that something is missing and is sent the
whole message. What comes out are the exact bytes of the message, so nothing else knows of this.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from fedprognos.errors import MessageError, OutputError
from fedprognos.files import parse_json, replacing

MARK = b"fedprognos shortened message 1\n"
MIN_TENSOR_IN_BYTES = 1024
"""Smaller tensors are sent: naming them would cost as much."""
MAX_HEADER_IN_BYTES = 1 << 20
Version = Annotated[str, Field(pattern="^([0-9a-f]{64})?$")]


class Header(BaseModel):
    """Size of every part of a message in order, the version of those left out, and the digest of the whole."""

    parts: list[tuple[Annotated[int, Field(ge=0)], Version]]
    sha256: Version


@dataclass(frozen=True)
class TensorsMissing:
    """A site's reply to a shortened message that it cannot complete: send the whole one."""


class TensorsMissingError(MessageError):
    """A shortened message names a tensor that is not here."""


class SentTensors:
    """The coordinator's side: what every site has, for one run; bytes sent to all sites, and saved."""

    def __init__(self) -> None:
        self._had: dict[str, set[str]] = defaultdict(set)
        self.bytes = self.saved = 0

    def shorten(self, site: str, message: bytes) -> bytes:
        """The message without what the site has."""
        parts = [(part, version if version in self._had[site] else "") for part, version in _parts(message)]
        shortened = message
        if any(version for _, version in parts):
            named = [(len(part), version) for part, version in parts]
            header = Header(parts=named, sha256=hashlib.sha256(message).hexdigest()).model_dump_json().encode()
            rest = [part for part, version in parts if not version]
            shortened = b"".join([MARK, len(header).to_bytes(8, "little"), header, *rest])
        self.bytes += len(shortened)
        self.saved += max(len(message) - len(shortened), 0)
        return shortened

    def answered(self, site: str, request: bytes, reply: bytes) -> None:
        """A site that answered has what it was sent and what it sent."""
        self._had[site] |= {version for message in (request, reply) for _, version in _parts(message)} - {""}

    def forget(self, site: str) -> None:
        """A site lost what it had."""
        self._had[site].clear()


class TensorCache:
    """A site's side: tensors on its disk, by version; the oldest go when there are too many."""

    def __init__(self, folder: Path, limit_in_bytes: int) -> None:
        self._folder, self._limit = folder, limit_in_bytes

    def complete(self, data: bytes) -> bytes:
        """The whole message; raises :class:`TensorsMissingError` where a tensor is missing or damaged."""
        if not data.startswith(MARK):
            return data
        at = len(MARK) + 8
        size = int.from_bytes(data[len(MARK) : at], "little")
        try:
            header = Header.model_validate_json(data[at : at + min(size, MAX_HEADER_IN_BYTES)])
        except ValueError:
            raise MessageError("malformed shortened message") from None
        if sum(size for size, _ in header.parts) > self._limit:
            raise MessageError("malformed shortened message")
        at, parts = at + size, []
        for size, version in header.parts:
            parts.append(self._read(version, size) if version else data[at : at + size])
            at += 0 if version else size
        whole = b"".join(parts)
        if at != len(data) or hashlib.sha256(whole).hexdigest() != header.sha256:
            raise TensorsMissingError("a tensor in the cache is damaged")
        return whole

    def keep(self, *messages: bytes) -> None:
        """Keep the tensors of messages; a full disk only means that they will be sent again."""
        with contextlib.suppress(OSError, OutputError):
            for part, version in (found for message in messages for found in _parts(message) if found[1]):
                path = self._folder / version
                if path.is_file():
                    path.touch()
                else:
                    with replacing(path) as temporary:
                        temporary.write_bytes(part)
            self._make_room()

    def clear(self) -> None:
        """Remove everything: the run is over."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _read(self, version: str, size: int) -> bytes:
        path = self._folder / version
        if path.is_file() and path.stat().st_size == size:
            return path.read_bytes()
        raise TensorsMissingError("a tensor is no longer in the cache")

    def _make_room(self) -> None:
        files = [path for path in self._folder.glob("*") if path.is_file()]
        total = 0
        for path in sorted(files, key=lambda path: path.stat().st_mtime, reverse=True):
            total += path.stat().st_size
            if total > 2 * self._limit:
                path.unlink()


def _parts(message: bytes) -> list[tuple[bytes, str]]:
    """An encoded message in parts: large tensors with their versions, the rest without; a malformed one is one part."""
    parts, at, begin = [], 0, 8 + int.from_bytes(message[:8], "little")
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        header = parse_json(message[8:begin])
        places = sorted(tuple(entry["data_offsets"]) for name, entry in header.items() if name != "__metadata__")
        for start, end in ((begin + start, begin + end) for start, end in places if end - start >= MIN_TENSOR_IN_BYTES):
            tensor = message[start:end]
            parts += [(message[at:start], ""), (tensor, hashlib.sha256(tensor).hexdigest())]
            at = end
        return [*parts, (message[at:], "")]
    return [(message, "")]
