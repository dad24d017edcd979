"""The journal of replies: nobody is asked twice for what was answered before.

A run on one machine names a reply by a digest of what was asked. Strategies are plain loops that do the same for the
same replies. So a killed run is started again, gets from the journal what was answered before, bit for bit, and asks
only the rest. Methods that ask the same, such as local training, share the replies.

A deployed run names replies by the number of the step (:mod:`fedprognos.deployment.steps.signed_steps`): two processors
make the same request with other last digits, so its digest would not be the same at coordinator and sites.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedprognos.federation.exchanges import Failure
from fedprognos.files import replacing

SUFFIX = ".message"


@dataclass(frozen=True, eq=False)
class Received:
    """A decoded reply or failure, and the size of the message it came in."""

    reply: Any
    bytes: int


Ask = Callable[[list[str]], Iterable[tuple[str, bytes, Received]]]
"""Asks some clients; encoded and decoded replies."""
Decode = Callable[[str, bytes], Received]
"""Decodes what a client sent; whatever is malformed becomes a failure."""


class ReplyJournal:
    """Encoded messages by key, each written as a whole or not at all.

    Parameters
    ----------
    folder
        Where they are kept; without a folder they are kept in memory, as long as the journal lives.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._in_memory: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._asked: dict[str, threading.Event] = {}

    def read(self, key: str) -> bytes | None:
        """A message kept earlier, or None."""
        if self._folder is None:
            return self._in_memory.get(key)
        path = self._folder / f"{key}{SUFFIX}"
        return path.read_bytes() if path.is_file() else None

    def keep(self, key: str, data: bytes) -> None:
        """Keep a message."""
        if self._folder is None:
            self._in_memory[key] = data
            return
        with replacing(self._folder / f"{key}{SUFFIX}") as temporary:
            temporary.write_bytes(data)

    def clear(self, *, but: str = "") -> None:
        """Forget everything, except the message with the key `but`."""
        self._in_memory = {key: data for key, data in self._in_memory.items() if key == but}
        if self._folder is not None:
            for path in self._folder.rglob(f"*{SUFFIX}"):
                if path != self._folder / f"{but}{SUFFIX}":
                    path.unlink(missing_ok=True)

    def ask_once(self, keys: Mapping[str, str], ask: Ask, decode: Decode) -> dict[str, Received]:
        """The replies of some clients, by their keys: from the journal, or else by asking. Failures are not kept.

        If another thread is asking for the same reply, wait for its answer instead of asking again.
        """
        replies: dict[str, Received] = {}
        mine: list[str] = []
        elsewhere: dict[str, threading.Event] = {}
        for name, key in keys.items():
            if (earlier := self._decoded(name, key, decode)) is not None:
                replies[name] = earlier
            elif (event := self._claim(key)) is not None:
                elsewhere[name] = event
            else:
                mine.append(name)
        try:
            replies |= self._asked_now(mine, keys, ask)
        finally:
            for name in mine:
                self._release(keys[name])
        for name, event in elsewhere.items():
            event.wait()
            if (earlier := self._decoded(name, keys[name], decode)) is not None:
                replies[name] = earlier
        return replies | self._asked_now([name for name in elsewhere if name not in replies], keys, ask)

    def _asked_now(self, names: list[str], keys: Mapping[str, str], ask: Ask) -> dict[str, Received]:
        replies: dict[str, Received] = {}
        for name, data, received in ask(names) if names else ():
            if not isinstance(received.reply, Failure):
                self.keep(keys[name], data)
            replies[name] = received
        return replies

    def _decoded(self, name: str, key: str, decode: Decode) -> Received | None:
        if (data := self.read(key)) is None:
            return None
        received = decode(name, data)
        return None if isinstance(received.reply, Failure) else received

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
