"""What a site has already is not sent again: layers matched earlier, its own weights, a model it has just examined.

A tensor's version is the digest of its bytes. The coordinator leaves out what a site has had in its hands and names the
versions instead; the site puts the message together again from its own disk, or says that it lacks something and
is sent the whole. What comes out are the very bytes of the message, so nothing else knows of this.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from fedprognos.errors import MessageError, OutputError
from fedprognos.files import replacing

MARK = b"fedprognos parcel 1\n"
LEAST_IN_BYTES = 1024
"""Smaller tensors are sent: naming them would cost as much."""
MAX_HEADER_IN_BYTES = 1 << 20


class LackingError(MessageError):
    """A parcel names a tensor that is not here."""

    code = "lacking"


class Sent:
    """What the coordinator knows that sites have, for one run.

    Parameters
    ----------
    bytes, saved
        Sent so far to all sites, and left out because they had it.
    """

    def __init__(self) -> None:
        self._had: dict[str, set[str]] = defaultdict(set)
        self.bytes = self.saved = 0

    def pack(self, site: str, message: bytes, *, whole: bool = False) -> bytes:
        """The message without what the site has, or as it is."""
        held = [] if whole else [(a, b, v) for a, b, v in _tensors(message) if v in self._had[site]]
        parcel = _parcel(message, held) if held else message
        self.bytes += len(parcel)
        self.saved += max(len(message) - len(parcel), 0)
        return parcel

    def answered(self, site: str, request: bytes, reply: bytes) -> None:
        """A site that answered has what it was sent and what it sent."""
        self._had[site] |= {version for part in (request, reply) for _, _, version in _tensors(part)}

    def forget(self, site: str) -> None:
        """A site lost what it had."""
        self._had[site].clear()


class Shelf:
    """Tensors on a site's disk, by version; the oldest go when there are too many."""

    def __init__(self, folder: Path, limit_in_bytes: int) -> None:
        self._folder, self._limit = folder, limit_in_bytes

    def unpack(self, data: bytes) -> bytes:
        """The whole message, put together from the parcel and the shelf.

        Raises
        ------
        LackingError
            Where something is not on the shelf, or not what was meant.
        """
        if not data.startswith(MARK):
            return data
        held, total, seal, rest = _opened(data, self._limit)
        parts, at, used = [], 0, 0
        for start, end, version in held:
            parts += [rest[used : used + start - at], self._read(version, end - start)]
            used, at = used + start - at, end
        whole = b"".join([*parts, rest[used:]])
        if len(whole) != total or hashlib.sha256(whole).hexdigest() != seal:
            raise LackingError("what is kept here is not what was meant")
        return whole

    def keep(self, *messages: bytes) -> None:
        """Put the tensors of messages on the shelf; a full disk only means that they will be sent again."""
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
        raise LackingError("a part of the message is not here any more")

    def _make_room(self) -> None:
        files = [path for path in self._folder.glob("*") if path.is_file()]
        files.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        total = 0
        for path in files:
            total += path.stat().st_size
            if total > 2 * self._limit:
                path.unlink()


def _tensors(message: bytes) -> Iterator[tuple[int, int, str]]:
    """Place and version of every tensor of an encoded message that is worth leaving out, in order."""
    begin = 8 + int.from_bytes(message[:8], "little")
    header = json.loads(message[8:begin])
    places = sorted(tuple(entry["data_offsets"]) for name, entry in header.items() if name != "__metadata__")
    for start, end in places:
        if end - start >= LEAST_IN_BYTES:
            part = message[begin + start : begin + end]
            yield begin + start, begin + end, hashlib.sha256(part).hexdigest()


def _parcel(message: bytes, held: list[tuple[int, int, str]]) -> bytes:
    header = {"held": held, "size": len(message), "sha256": hashlib.sha256(message).hexdigest()}
    text = json.dumps(header, separators=(",", ":")).encode()
    ends = [0, *(end for _, end, _ in held)]
    starts = [*(start for start, _, _ in held), len(message)]
    rest = b"".join(message[a:b] for a, b in zip(ends, starts, strict=True))
    return MARK + len(text).to_bytes(8, "little") + text + rest


def _opened(data: bytes, limit_in_bytes: int) -> tuple[list[tuple[int, int, str]], int, str, bytes]:
    """Header and rest of a parcel, checked: it comes from elsewhere and names files here."""
    begin = len(MARK) + 8
    size = int.from_bytes(data[len(MARK) : begin], "little")
    try:
        if size > MAX_HEADER_IN_BYTES:
            raise ValueError
        header = json.loads(data[begin : begin + size])
        held = [(int(a), int(b), str(v)) for a, b, v in header["held"]]
        total, seal = int(header["size"]), str(header["sha256"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise MessageError("malformed parcel") from None
    ends = [0, *(end for _, end, _ in held)]
    rising = all(a <= start < end for a, (start, end, _) in zip(ends, held, strict=False))
    if not rising or not ends[-1] <= total <= limit_in_bytes:
        raise MessageError("malformed parcel")
    if not all(re.fullmatch("[0-9a-f]{64}", version) for _, _, version in held):
        raise MessageError("malformed parcel")
    return held, total, seal, data[begin + size :]
