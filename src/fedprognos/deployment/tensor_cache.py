"""What a site has already is not sent again: layers matched earlier, its own weights, a model it has just evaluated.

A tensor's version is the digest of its bytes. The coordinator leaves out the tensors that a site has and names their
versions instead. The site completes the message from its own disk, or replies that something is missing and is sent the
whole message. What comes out are the exact bytes of the message, so nothing else knows of this.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field

from fedprognos.errors import MessageError, OutputError
from fedprognos.files import replacing

MARK = b"fedprognos shortened message 1\n"
MIN_TENSOR_IN_BYTES = 1024
"""Smaller tensors are sent: naming them would cost as much."""
MAX_HEADER_IN_BYTES = 1 << 20
Place = Annotated[int, Field(ge=0)]
Version = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Tensor(NamedTuple):
    """Where a tensor begins and ends in an encoded message, and its version."""

    start: Place
    end: Place
    version: Version


class Header(BaseModel):
    """What was left out of a message of so many bytes, in order, and the digest of the whole."""

    held: list[Tensor]
    size: Place
    sha256: Version


@dataclass(frozen=True)
class TensorsMissing:
    """A site's reply to a shortened message that it cannot complete: send the whole one."""


class TensorsMissingError(MessageError):
    """A shortened message names a tensor that is not here."""


class SentTensors:
    """The coordinator's side: what every site has, for one run.

    Parameters
    ----------
    bytes, saved
        Sent so far to all sites, and left out because they had it.
    """

    def __init__(self) -> None:
        self._had: dict[str, set[str]] = defaultdict(set)
        self.bytes = self.saved = 0

    def shorten(self, site: str, message: bytes) -> bytes:
        """The message without what the site has."""
        held = [tensor for tensor in _tensors(message) if tensor.version in self._had[site]]
        shortened = _without(message, held) if held else message
        self.bytes += len(shortened)
        self.saved += max(len(message) - len(shortened), 0)
        return shortened

    def answered(self, site: str, request: bytes, reply: bytes) -> None:
        """A site that answered has what it was sent and what it sent."""
        self._had[site] |= {tensor.version for part in (request, reply) for tensor in _tensors(part)}

    def forget(self, site: str) -> None:
        """A site lost what it had."""
        self._had[site].clear()


class TensorCache:
    """A site's side: tensors on its disk, by version; the oldest go when there are too many."""

    def __init__(self, folder: Path, limit_in_bytes: int) -> None:
        self._folder, self._limit = folder, limit_in_bytes

    def complete(self, data: bytes) -> bytes:
        """The whole message.

        Raises
        ------
        TensorsMissingError
            Where a tensor is not in the cache, or is damaged.
        """
        if not data.startswith(MARK):
            return data
        header, rest = _opened(data, self._limit)
        parts, at, used = [], 0, 0
        for start, end, version in header.held:
            parts += [rest[used : used + start - at], self._read(version, end - start)]
            used, at = used + start - at, end
        whole = b"".join([*parts, rest[used:]])
        if len(whole) != header.size or hashlib.sha256(whole).hexdigest() != header.sha256:
            raise TensorsMissingError("a tensor in the cache is damaged")
        return whole

    def keep(self, *messages: bytes) -> None:
        """Keep the tensors of messages; a full disk only means that they will be sent again."""
        with contextlib.suppress(OSError, OutputError):
            for message in messages:
                for start, end, version in _tensors(message):
                    path = self._folder / version
                    if path.is_file():
                        path.touch()
                    else:
                        with replacing(path) as temporary:
                            temporary.write_bytes(message[start:end])
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
        files.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        total = 0
        for path in files:
            total += path.stat().st_size
            if total > 2 * self._limit:
                path.unlink()


def _tensors(message: bytes) -> list[Tensor]:
    """Every tensor of an encoded message that is worth leaving out, in order; none of a malformed one."""
    begin = 8 + int.from_bytes(message[:8], "little")
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        header = json.loads(message[8:begin])
        places = sorted(tuple(entry["data_offsets"]) for name, entry in header.items() if name != "__metadata__")
        large = [(begin + start, begin + end) for start, end in places if end - start >= MIN_TENSOR_IN_BYTES]
        return [Tensor(start, end, hashlib.sha256(message[start:end]).hexdigest()) for start, end in large]
    return []


def _without(message: bytes, held: list[Tensor]) -> bytes:
    header = Header(held=held, size=len(message), sha256=hashlib.sha256(message).hexdigest())
    text = header.model_dump_json().encode()
    ends, starts = [0, *(t.end for t in held)], [*(t.start for t in held), len(message)]
    rest = b"".join(message[a:b] for a, b in zip(ends, starts, strict=True))
    return MARK + len(text).to_bytes(8, "little") + text + rest


def _opened(data: bytes, limit_in_bytes: int) -> tuple[Header, bytes]:
    """Header and rest of a shortened message, checked: it comes from elsewhere and names files here."""
    begin = len(MARK) + 8
    end = begin + int.from_bytes(data[len(MARK) : begin], "little")
    try:
        if end - begin > MAX_HEADER_IN_BYTES:
            raise ValueError("the header is too long")
        header = Header.model_validate_json(data[begin:end])
        places = [0, *(place for tensor in header.held for place in tensor[:2]), header.size]
        if places != sorted(places) or header.size > limit_in_bytes:
            raise ValueError("the tensors are not in order")
    except ValueError:
        raise MessageError("malformed shortened message") from None
    return header, data[end:]
