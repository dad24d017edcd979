"""Replies kept on disk by a digest of what was asked: a killed run is simply started again.

Strategies are plain loops that do the same for the same replies, so all that was answered before is answered at
once, bit for bit, and the rest is asked. Methods that ask the same, local training say, share the replies.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedprognos.federation.exchanges import Failure
from fedprognos.files import replacing


@dataclass(frozen=True, eq=False)
class Received:
    """A decoded reply or failure, and the size of the message it came in."""

    reply: Any
    bytes: int


Ask = Callable[[list[str]], Mapping[str, tuple[bytes, Received]]]
"""Asks some clients; encoded and decoded replies."""
Decode = Callable[[str, bytes], Received]
"""Decodes what a client sent; whatever is malformed becomes a failure."""


class ReplyCache:
    """A folder of encoded replies, shared by the jobs of a run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._asked: dict[str, threading.Event] = {}

    def through(self, keys: Mapping[str, str], ask: Ask, decode: Decode) -> dict[str, Received]:
        """Replies for the keys of some clients: from disk if they are there, else by asking. Failures are not kept.

        If another thread is asking for the same reply, wait for its answer instead of asking again.
        """
        replies: dict[str, Received] = {}
        mine: list[str] = []
        elsewhere: dict[str, threading.Event] = {}
        for name, key in keys.items():
            if (cached := self._read(name, key, decode)) is not None:
                replies[name] = cached
            elif (event := self._claim(key)) is not None:
                elsewhere[name] = event
            else:
                mine.append(name)
        try:
            replies |= self._new(mine, keys, ask)
        finally:
            for name in mine:
                self._release(keys[name])
        for name, event in elsewhere.items():
            event.wait()
            if (cached := self._read(name, keys[name], decode)) is not None:
                replies[name] = cached
        return replies | self._new([name for name in elsewhere if name not in replies], keys, ask)

    def _new(self, names: list[str], keys: Mapping[str, str], ask: Ask) -> dict[str, Received]:
        answers = ask(names) if names else {}
        for name, (data, received) in answers.items():
            if not isinstance(received.reply, Failure):
                self.keep(keys[name], data)
        return {name: received for name, (_, received) in answers.items()}

    def _read(self, name: str, key: str, decode: Decode) -> Received | None:
        if (data := self.read(key)) is None:
            return None
        received = decode(name, data)
        return None if isinstance(received.reply, Failure) else received

    def read(self, key: str) -> bytes | None:
        """A reply kept earlier, encoded, or None."""
        path = self._folder / f"{key}.message"
        return path.read_bytes() if path.is_file() else None

    def keep(self, key: str, data: bytes) -> None:
        """Keep an encoded reply, as a whole or not at all."""
        with replacing(self._folder / f"{key}.message") as temporary:
            temporary.write_bytes(data)

    def _claim(self, key: str) -> threading.Event | None:
        """Announce that this thread asks; if another thread is asking already, return the event of its answer."""
        with self._lock:
            if key in self._asked:
                return self._asked[key]
            self._asked[key] = threading.Event()
            return None

    def _release(self, key: str) -> None:
        with self._lock:
            self._asked.pop(key).set()
