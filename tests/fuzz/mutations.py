"""Seeded damage to bytes, texts and messages, and the bounds that nothing fed with them may cross."""

from __future__ import annotations

import contextlib
import json
import random
import re
import resource
import signal
from collections.abc import Callable, Iterator
from typing import Any

MAX_CPU_IN_S = 20.0
MAX_GROWTH_IN_MB = 400
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
WORD = re.compile(rb"[A-Za-z_][A-Za-z_0-9-]{1,30}")
NUMBERS = (
    b"0",
    b"-1",
    b"1e308",
    b"1e999",
    b"NaN",
    b"1" + b"0" * 400,
    b"0.1",
    b"9223372036854775808",
    b"[]",
    b"null",
    b'""',
)
WORDS = (b"", b"\x1b[2J", b"\xff\xfe", b"../../x", b"null", b"true", b"[" * 2000, b"\x00", b"__class__", b"a" * 5000)
VALUES = (None, -1, 0, 1e308, 10**400, 2**63, "", "\x1b[2J", "../../x", [], {}, True, [[]], "a" * 5000, 0.5)


class TooLongError(BaseException):
    """Something took too much of the processor; not an `Exception`, so that nobody swallows it."""


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """End what takes too much of the processor, and fail where memory grew too much."""

    def stop(*_: object) -> None:
        raise TooLongError

    before, grown_from = signal.signal(signal.SIGPROF, stop), peak_in_mb()
    signal.setitimer(signal.ITIMER_PROF, MAX_CPU_IN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    assert peak_in_mb() - grown_from < MAX_GROWTH_IN_MB


def peak_in_mb() -> float:
    """The most memory that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def damaged(whole: bytes, rng: random.Random) -> bytes:
    """Bytes with one to four things wrong."""
    for _ in range(rng.randint(1, 4)):
        whole = rng.choice(KINDS)(whole, rng)
    return whole


def _flip(whole: bytes, rng: random.Random) -> bytes:
    spoilt = bytearray(whole)
    for _ in range(rng.randint(1, 8) if spoilt else 0):
        spoilt[rng.randrange(len(spoilt))] = rng.randrange(256)
    return bytes(spoilt)


def _cut(whole: bytes, rng: random.Random) -> bytes:
    return whole[: rng.randint(0, len(whole))]


def _drop(whole: bytes, rng: random.Random) -> bytes:
    at = rng.randint(0, len(whole))
    return whole[:at] + whole[at + rng.randint(1, 200) :]


def _repeat(whole: bytes, rng: random.Random) -> bytes:
    at, size = rng.randint(0, len(whole)), rng.randint(1, 300)
    return whole[:at] + whole[at : at + size] * rng.choice((2, 3, 50)) + whole[at + size :]


def _insert(whole: bytes, rng: random.Random) -> bytes:
    at = rng.randint(0, len(whole))
    return whole[:at] + rng.choice((*WORDS, rng.randbytes(20))) + whole[at:]


def _swap(pattern: re.Pattern[bytes], values: tuple[bytes, ...]) -> Callable[[bytes, random.Random], bytes]:
    def swap(whole: bytes, rng: random.Random) -> bytes:
        places = list(pattern.finditer(whole))
        if not places:
            return whole
        place = rng.choice(places)
        return whole[: place.start()] + rng.choice(values) + whole[place.end() :]

    return swap


KINDS = (_flip, _cut, _drop, _repeat, _insert, _swap(NUMBER, NUMBERS), _swap(NUMBER, NUMBERS), _swap(WORD, WORDS))


def damaged_message(whole: bytes, rng: random.Random) -> bytes:
    """An encoded message that is damaged as bytes, or whose content is another than it should be."""
    if rng.random() < 0.4:
        return damaged(whole, rng)
    size = int.from_bytes(whole[:8], "little")
    header: dict[str, Any] = json.loads(whole[8 : 8 + size])
    envelope = json.loads(header["__metadata__"]["fedprognos"])
    for _ in range(rng.randint(1, 3)):
        if rng.random() < 0.8:
            _spoil(envelope, rng)
        else:
            _spoil(header, rng)
    if isinstance(header.get("__metadata__"), dict):
        header["__metadata__"]["fedprognos"] = json.dumps(envelope)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + whole[8 + size :]


def _spoil(content: Any, rng: random.Random) -> None:
    """Change, drop or add one thing, somewhere inside."""
    inner = [
        v for v in (content.values() if isinstance(content, dict) else content) if isinstance(v, dict | list) and v
    ]
    if inner and rng.random() < 0.8:
        _spoil(rng.choice(inner), rng)
        return
    places = list(content) if isinstance(content, dict) else list(range(len(content)))
    if not places:
        return
    place = rng.choice(places)
    what = rng.random()
    if what < 0.7:
        content[place] = rng.choice(VALUES)
    elif what < 0.85:
        del content[place]
    elif isinstance(content, dict):
        content[f"{place}x"] = content.pop(place)
    else:
        content.append(content[place])
