"""How a site follows a run: it runs the agreed loop itself and makes the requests that it answers.

The loop needs every member's reply to a step before it comes to the next one. The coordinator relays them with the
members' signatures; that is all it contributes. So nobody can craft a network for this site, ask a step twice with
other parameters, invent members, or leave the agreed experiment.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping

from fedprognos.deployment.carrier import Tell
from fedprognos.deployment.contract import Contract
from fedprognos.deployment.steps.agreed_run import AgreedRun
from fedprognos.deployment.steps.fingerprint import divergence
from fedprognos.deployment.steps.signed_steps import (
    Note,
    Outcome,
    StepHeader,
    keep_outcomes,
    own_reply,
    read_outcomes,
    read_reply,
    reply_text,
    sha256,
)
from fedprognos.errors import MessageError
from fedprognos.federation import ReplyJournal, decode, step_replies
from fedprognos.federation.exchanges import Failure
from fedprognos.identity import verify

NEXT_IN_S = 3600.0
"""Longest time that the loop may take from one request to the next."""


class StepRefusedError(MessageError):
    """A request that is not a step of the agreed run."""

    code = "refused"


class DivergedError(MessageError):
    """The coordinator's run and this site's run of the same contract have come to different requests."""

    code = "diverged"


class StepsMissingError(MessageError):
    """The outcomes of a step that this one builds on are not here; `first` is the first such step."""

    def __init__(self, first: int) -> None:
        super().__init__(f"the outcomes of step {first} are missing")
        self.first = first


class _Stopped(BaseException):
    """Ends the loop's thread."""


class Replay:
    """Follows one run; everything it was given is on disk, so that a restarted site continues where it was.

    Parameters
    ----------
    journal
        The members' outcomes and this site's own replies so far.
    tell
        Shows the site's engineer which failures of other members rest on the coordinator's word alone.
    """

    def __init__(self, contract: Contract, site: str, journal: ReplyJournal, tell: Tell) -> None:
        self.contract, self.site, self.journal, self.tell = contract, site, journal, tell
        self.clients = tuple(sorted(contract.members))
        self.step, self.finished = 0, False
        self.requests: Mapping[str, bytes] = {}
        """What the current step asks, by member, as made here."""
        self._next_requests: queue.Queue[Mapping[str, bytes] | BaseException | None] = queue.Queue()
        self._outcomes: queue.Queue[Mapping[str, bytes | Failure] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    # --- the loop's thread: to the loop, this is a transport ---------------------------------------

    def keep_only(self, members: tuple[str, ...]) -> None:
        """Ask no members but these from now on."""
        self.clients = members

    def send(self, requests: Mapping[str, bytes]) -> Mapping[str, bytes | Failure]:
        """Where the loop waits until the outcomes of its step are there."""
        self._next_requests.put(dict(requests))
        outcomes = self._outcomes.get()
        if outcomes is None:
            raise _Stopped
        return outcomes

    def _loop(self) -> None:
        try:
            AgreedRun(self.contract, self, lambda event: None).perform()
            self._next_requests.put(None)
        except _Stopped:
            pass
        except Exception as error:
            self._next_requests.put(error)

    def stop(self) -> None:
        """End the loop."""
        self._outcomes.put(None)

    # --- the site's thread -------------------------------------------------------------------------

    def follow(self, header: StepHeader, replies: Mapping[tuple[int, str], bytes]) -> bytes:
        """Follow the run to a step; the request that this step asks of this site, made here.

        Raises
        ------
        StepRefusedError
            The step is not the one that comes now, or outcomes of earlier steps are not what members signed.
        DivergedError
            The coordinator came to another request.
        """
        step = header.step
        if self.finished:
            raise StepRefusedError("the agreed run has ended; approve its contract again to run it once more")
        if step < self.step:
            raise StepRefusedError(f"step {step} is over")
        while self.step < step:
            self._give_outcomes(header, replies)
            self._advance()
        if self.site not in self.requests:
            raise StepRefusedError(f"step {step} asks nothing of this site")
        request = self.requests[self.site]
        if difference := divergence(request, header.fingerprint):
            raise DivergedError(
                f"coordinator and site disagree about step {step}: the coordinator has {difference}",
                hint="Install the same versions of fedprognos, NumPy, SciPy and torch on both, then begin a new run.",
            )
        return request

    def _advance(self) -> None:
        """Let the loop come to its next request."""
        if not self._thread.is_alive():
            if self.step:
                raise StepRefusedError("the agreed run has ended")
            self._thread.start()
        try:
            requests = self._next_requests.get(timeout=NEXT_IN_S)
        except queue.Empty:
            raise StepRefusedError("the agreed run did not come to another request in time") from None
        if requests is None or isinstance(requests, BaseException):
            self._thread.join()
            raise StepRefusedError("the agreed run has ended" + ("" if requests is None else f": {requests}"))
        self.step, self.requests = self.step + 1, requests

    def _give_outcomes(self, header: StepHeader, replies: Mapping[tuple[int, str], bytes]) -> None:
        """Give the loop the outcomes of the step it is at. The first ones that come are kept: no others count later."""
        if self.step == 0:
            return
        outcomes = read_outcomes(self.journal, self.step)
        if outcomes is None:
            notes = {note.site: note for note in header.notes if note.step == self.step}
            if not notes:
                raise StepsMissingError(self.step)
            if set(notes) != set(self.requests):
                raise StepRefusedError(f"the outcomes of step {self.step} are not those of the members asked")
            outcomes = {name: self._checked(note, replies[note.step, name]) for name, note in notes.items()}
            keep_outcomes(self.journal, self.step, outcomes)
        self._outcomes.put({name: outcome.failure or outcome.reply for name, outcome in outcomes.items()})

    def _checked(self, note: Note, reply: bytes) -> Outcome:
        if note.code:
            self.tell(
                f"step {note.step}: the coordinator says that {note.site} failed ({note.code[:40]}: "
                f"{note.text[:200]}). {note.site} has not signed this. If it was there, ask the coordinator why."
            )
            return Outcome(failure=Failure(note.site, note.code[:40], note.text[:400]))
        if note.site == self.site and not reply:
            sealed = self.journal.read(own_reply(note.step))
            reply = b"" if sealed is None else read_reply(sealed)[1]
        if sha256(reply) != note.reply:
            raise StepRefusedError(f"the reply of {note.site} in step {note.step} is not the one signed")
        text = reply_text(self.contract.digest, note.step, note.site, note.reply)
        verify(self.contract.members[note.site], note.signature, text, note.site)
        # An honest coordinator rejects a malformed reply and says so in a note: here it cannot come up.
        decode(reply, step_replies(), f"the reply of {note.site} in step {note.step}")
        return Outcome(reply, note.signature)

    def tidy(self) -> None:
        """The run is over: only the site's last reply stays, for a coordinator that missed it."""
        self.stop()
        self.journal.clear(but=own_reply(self.step))
