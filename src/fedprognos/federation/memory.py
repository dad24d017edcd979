"""Answers kept on disk by what was asked: a killed run is simply started again.

Strategies are plain loops that do the same for the same answers, so all that was answered before is answered at
once, bit for bit, and the rest is asked. Methods that ask the same, local training say, share the answers.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedprognos.errors import MessageError
from fedprognos.federation.client import digest
from fedprognos.federation.codec import decode, encode
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.messages import ANSWERS, Failure, Reply, Request
from fedprognos.federation.options import Wire
from fedprognos.files import replacing


class Memory:
    """A folder of answers, shared by the jobs of a run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._asked: dict[str, threading.Event] = {}

    def recall(self, key: str) -> Reply | None:
        """An answer given earlier, or None."""
        path = self._folder / f"{key}.message"
        if not path.is_file():
            return None
        try:
            reply: Reply | Failure = decode(path.read_bytes(), ANSWERS)
        except MessageError:
            return None
        return None if isinstance(reply, Failure) else reply

    def keep(self, key: str, reply: Reply) -> None:
        """Remember an answer; written as a whole or not at all."""
        with replacing(self._folder / f"{key}.message") as temporary:
            temporary.write_bytes(encode(reply))

    def claim(self, key: str) -> threading.Event | None:
        """Say that one is about to ask; where somebody else is asking just this, the event of their answer."""
        with self._lock:
            if key in self._asked:
                return self._asked[key]
            self._asked[key] = threading.Event()
            return None

    def release(self, key: str) -> None:
        """Say that the answer came, or will not."""
        with self._lock:
            self._asked.pop(key).set()


@dataclass
class Traffic:
    """What went between the coordinator and the clients."""

    messages: int = 0
    bytes_up: int = 0
    bytes_down: int = 0

    @property
    def bytes(self) -> int:
        return self.bytes_up + self.bytes_down


class RememberingCohort:
    """A cohort whose answers are remembered and whose traffic is counted, remembered answers included.

    Parameters
    ----------
    scope
        What decides an answer besides the request and the client's name: the data behind it.
    """

    def __init__(self, cohort: Cohort, memory: Memory, scope: str) -> None:
        self._cohort, self._memory, self._scope = cohort, memory, scope
        self.traffic = Traffic()

    @property
    def clients(self) -> tuple[str, ...]:
        return self._cohort.clients

    @property
    def wire(self) -> Wire:
        return self._cohort.wire

    def ask(self, requests: Mapping[str, Request]) -> dict[str, Reply | Failure]:
        encoded = {name: encode(request, self.wire) for name, request in requests.items()}
        keys = {name: digest(f"{self._scope}\x1f{name}\x1f".encode() + data) for name, data in encoded.items()}
        replies: dict[str, Reply | Failure] = {}
        mine, elsewhere = [], {}
        for name, key in keys.items():
            if (known := self._memory.recall(key)) is not None:
                replies[name] = known
            elif (event := self._memory.claim(key)) is not None:
                elsewhere[name] = event
            else:
                mine.append(name)
        try:
            self._ask(mine, requests, keys, replies)
        finally:
            for name in mine:
                self._memory.release(keys[name])
        for name, event in elsewhere.items():
            event.wait()
            if (known := self._memory.recall(keys[name])) is not None:
                replies[name] = known
        self._ask([name for name in elsewhere if name not in replies], requests, keys, replies)
        for name in requests:
            self.traffic.messages += 1
            self.traffic.bytes_down += len(encoded[name])
            self.traffic.bytes_up += len(encode(replies[name], self.wire))
        return {name: replies[name] for name in requests}

    def _ask(
        self,
        names: list[str],
        requests: Mapping[str, Request],
        keys: Mapping[str, str],
        replies: dict[str, Reply | Failure],
    ) -> None:
        if not names:
            return
        for name, reply in self._cohort.ask({name: requests[name] for name in names}).items():
            if not isinstance(reply, Failure):
                self._memory.keep(keys[name], reply)
            replies[name] = reply
