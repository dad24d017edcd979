"""A site's side of a contract: it runs the agreed loop itself, so it knows what it must be asked next.

The loop needs every member's reply to a step before it comes to the next one. The coordinator relays them with the
members' signatures. A request that is not the one the loop came to is refused: so nobody can craft a network, ask a
step twice with other parameters, invent members, or leave the agreed experiment.
"""

from __future__ import annotations

import json
import math
import queue
import shutil
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors

from fedprognos.deployment.contract import Contract
from fedprognos.deployment.keys import verify
from fedprognos.deployment.site_messages import ANSWERS
from fedprognos.deployment.steps.agreed_run import AgreedRun
from fedprognos.deployment.steps.signed_steps import Note, Outcome, Transcript, read_reply, reply_text, sha256
from fedprognos.errors import MessageError
from fedprognos.federation.codec import decode, envelope_of, wire_of
from fedprognos.federation.messages import Failure
from fedprognos.federation.precision import widened
from fedprognos.files import replacing

TOLERANCES = {"float32": 1e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
"""How far a tensor may be from the one computed here, as a share of its largest value, by the precision it came in."""
SOLVED = 1e-3
"""The same for what is solved from sums: other processors round such solutions differently."""
COMPUTED = (".body.recipe", ".body.calibration", ".body.metrics", ".body.provenance")
"""Where a message holds numbers that were computed; all others are the contract's own."""
NEXT_IN_S = 3600.0
"""Longest time that the loop may take from one request to the next."""


class RefusedError(MessageError):
    """A request that is not a step of the agreed run."""

    code = "refused"


class StepsMissingError(MessageError):
    """The outcomes of a step that the request builds on are not here; `first` is the first such step."""

    def __init__(self, first: int) -> None:
        super().__init__(f"the outcomes of step {first} are missing")
        self.first = first


class _Stopped(BaseException):
    """Ends the loop's thread."""


class Replay:
    """Follows one run; everything it was given is on disk, so that a restarted site continues where it was.

    Parameters
    ----------
    folder
        Where outcomes of steps and the site's own replies are kept.
    """

    def __init__(self, contract: Contract, site: str, folder: Path) -> None:
        self.contract, self.site, self.folder = contract, site, folder
        self.transcript = Transcript(folder / "steps")
        self.step, self.finished = 0, False
        self.expected: Mapping[str, bytes] = {}
        self._requests: queue.Queue[Mapping[str, bytes] | BaseException | None] = queue.Queue()
        self._outcomes: queue.Queue[Mapping[str, bytes | Failure] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    # --- the loop's side ----------------------------------------------------------------------

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(sorted(self.contract.members))

    def send(self, requests: Mapping[str, bytes]) -> Mapping[str, bytes | Failure]:
        """Where the loop waits until a step's outcomes are known."""
        self._requests.put(dict(requests))
        outcomes = self._outcomes.get()
        if outcomes is None:
            raise _Stopped
        return outcomes

    def _loop(self) -> None:
        try:
            AgreedRun(self.contract, self, lambda event: None).perform()
            self._requests.put(None)
        except _Stopped:
            pass
        except Exception as error:
            self._requests.put(error)

    def stop(self) -> None:
        """End the loop."""
        self._outcomes.put(None)

    # --- the site's side ----------------------------------------------------------------------

    def known_reply(self, step: int, request: str) -> bytes | None:
        """The sealed reply that this site gave in a step, to the very same request only."""
        path = self.folder / "own" / f"{step:06d}"
        if not path.is_file():
            return None
        sealed = path.read_bytes()
        if read_reply(sealed)[0].request != request:
            raise RefusedError(f"step {step} was asked before, with another request")
        return sealed

    def keep_reply(self, step: int, sealed: bytes) -> None:
        """Keep a reply before it leaves."""
        with replacing(self.folder / "own" / f"{step:06d}") as temporary:
            temporary.write_bytes(sealed)

    def check(
        self, step: int, request: bytes, notes: Sequence[Note], replies: Mapping[tuple[int, str], bytes]
    ) -> bytes:
        """Follow the run to a step; the request that the step asks of this site. Raise unless this one is like it.

        What is returned was made here: nothing in it is a coordinator's choice, not even a number's last digit.
        """
        if self.finished:
            raise RefusedError("the agreed run has ended; approve its contract again to run it once more")
        if step < self.step:
            raise RefusedError(f"step {step} is over")
        while self.step < step:
            self._settle(notes, replies)
            self._advance()
        if self.site not in self.expected:
            raise RefusedError(f"step {step} asks nothing of this site")
        if difference := compare(self.expected[self.site], request):
            raise RefusedError(f"step {step} is not the one agreed on: {difference}")
        return self.expected[self.site]

    def _advance(self) -> None:
        """Let the loop come to its next request."""
        if not self._thread.is_alive():
            if self.step:
                raise RefusedError("the agreed run has ended")
            self._thread.start()
        try:
            found = self._requests.get(timeout=NEXT_IN_S)
        except queue.Empty:
            raise RefusedError("the agreed run did not come to another request in time") from None
        if found is None or isinstance(found, BaseException):
            self._thread.join()
            raise RefusedError("the agreed run has ended" + (f": {found}" if found is not None else ""))
        self.step, self.expected = self.step + 1, found

    def _settle(self, notes: Sequence[Note], replies: Mapping[tuple[int, str], bytes]) -> None:
        """Give the loop the outcomes of the step it is at; they are checked and kept when they first come."""
        if self.step == 0:
            return
        outcomes = self.transcript.read(self.step)
        if outcomes is None:
            said = {note.site: note for note in notes if note.step == self.step}
            if not said:
                raise StepsMissingError(self.step)
            if set(said) != set(self.expected):
                raise RefusedError(f"the outcomes of step {self.step} are not those of the members asked")
            outcomes = {name: self._checked(note, replies[note.step, name]) for name, note in said.items()}
            self.transcript.write(self.step, outcomes)
        self._outcomes.put({name: one.failure or one.reply for name, one in outcomes.items()})

    def _checked(self, note: Note, reply: bytes) -> Outcome:
        if note.code:
            return Outcome(failure=Failure(note.site, note.code[:40], note.text[:400]))
        if note.site == self.site and not reply:
            path = self.folder / "own" / f"{note.step:06d}"
            reply = read_reply(path.read_bytes())[1] if path.is_file() else b""
        if sha256(reply) != note.reply:
            raise RefusedError(f"the reply of {note.site} in step {note.step} is not the one signed")
        text = reply_text(self.contract.digest, note.step, note.request, note.reply)
        verify(self.contract.members[note.site], note.signature, text, note.site)
        decode(reply, ANSWERS, f"the reply of {note.site} in step {note.step}")  # else it would have been rejected
        return Outcome(reply, note.request, note.signature)

    def tidy(self) -> None:
        """Remove the outcomes: the run is over. The site's own last reply stays, for a coordinator that asks again."""
        self.stop()
        shutil.rmtree(self.folder / "steps", ignore_errors=True)
        for path in sorted((self.folder / "own").glob("*"))[:-1]:
            path.unlink(missing_ok=True)


def compare(expected: bytes, found: bytes) -> str:
    """How a request differs from the expected one; empty where it does not.

    Numbers computed on another machine may differ in their last digits, so tensors are compared to a share of their
    scale and other computed numbers to as many digits. Everything else must be the same.
    """
    if expected == found:
        return ""
    ours, theirs = envelope_of(expected), envelope_of(found)
    tolerance = TOLERANCES[wire_of(expected)]
    if difference := _difference(ours, theirs, "", tolerance):
        return difference
    try:
        mine, other = load_tensors(expected), load_tensors(found)
    except (SafetensorError, ValueError):
        return "malformed tensors"
    if mine.keys() != other.keys():
        return "other tensors"
    for name, tensor in mine.items():
        if tensor.shape != other[name].shape or tensor.dtype != other[name].dtype:
            return f"tensor {name} has another shape"
        a, b = _numbers(tensor), _numbers(other[name])
        allowed = max(tolerance, SOLVED if any(part in name for part in ("head.", "/slopes/")) else 0.0)
        if a.size and not float(np.abs(a - b).max()) <= allowed * max(float(np.abs(a).max()), 1e-30):
            return f"tensor {name} holds other numbers"
    return ""


def _numbers(tensor: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return widened(tensor).astype(np.float64)


def _difference(ours: Any, theirs: Any, path: str, tolerance: float) -> str:
    if isinstance(ours, float) and isinstance(theirs, float):
        allowed = tolerance * max(abs(ours), 1e-30) if path.startswith(COMPUTED) else 0.0
        close = math.isfinite(theirs) and abs(ours - theirs) <= allowed
        return "" if close else f"{path or 'a number'} is {theirs!r} instead of {ours!r}"
    if type(ours) is not type(theirs):
        return f"{path or 'it'} is of another kind"
    if isinstance(ours, dict):
        if ours.keys() != theirs.keys():
            return f"{path or 'it'} has other fields"
        return next((d for k in ours if (d := _difference(ours[k], theirs[k], f"{path}.{k}", tolerance))), "")
    if isinstance(ours, list):
        if len(ours) != len(theirs):
            return f"{path or 'it'} has another length"
        pairs = enumerate(zip(ours, theirs, strict=True))
        return next((d for k, (a, b) in pairs if (d := _difference(a, b, f"{path}.{k}", tolerance))), "")
    if ours == theirs:
        return ""
    if isinstance(ours, str) and ours.startswith("{") and theirs.startswith("{"):
        try:
            return _difference(json.loads(ours), json.loads(theirs), path, tolerance)
        except (ValueError, RecursionError):
            return f"{path or 'a text'} is another one"
    return f"{path or 'it'} is {str(theirs)[:80]!r} instead of {str(ours)[:80]!r}"
