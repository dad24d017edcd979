"""The steps of a deployed run, on the wire and on disk.

A step holds no request: coordinator and sites follow the same agreed run, so a site makes the request itself
(:mod:`fedprognos.deployment.steps.replay`). What travels is

* to a site: contract, step number, the fingerprint of the request, and what each member replied in earlier steps with
  that member's signature. The coordinator signs all of it.
* from a site: its reply, signed together with contract, step and the site's name.

No signature covers a computed request, whose last digits differ from processor to processor.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedprognos.deployment.steps.fingerprint import Fingerprint
from fedprognos.errors import MessageError
from fedprognos.federation import ReplyJournal
from fedprognos.federation.exchanges import Failure
from fedprognos.files import parse_json
from fedprognos.identity import Identity, verify

STEP, REPLY, OUTCOMES = b"fedprognos step 2\n", b"fedprognos step reply 2\n", b"fedprognos outcomes 2\n"
MAX_HEADER_IN_BYTES = 4 << 20
M = TypeVar("M", bound=BaseModel)


class _Header(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Note(_Header):
    """One member's outcome of a step: a signed reply of `size` bytes that follow the header, or a failure.

    A site's own reply is named by its digest and not sent back to it: its size is then 0. A member that fails signs
    that, too. `code` and `text` are of failures that the member has not signed: the coordinator says that it did not
    answer, or sent what nobody can use.
    """

    step: int = Field(ge=1)
    site: str
    reply: str = ""
    size: int = Field(default=0, ge=0)
    signature: str = ""
    code: str = ""
    text: str = ""


class StepHeader(_Header):
    """What a coordinator sends to a site: answer this step of this contract."""

    contract: str
    step: int = Field(ge=1)
    fingerprint: Fingerprint
    notes: list[Note]
    signature: str = ""

    @property
    def signed_text(self) -> bytes:
        """What the coordinator signs: all of it. Replies are covered by their digests in the notes."""
        return b"fedprognos step|" + json.dumps(self.model_dump(exclude={"signature"}), sort_keys=True).encode()


class ReplyHeader(_Header):
    """Which step a reply answers, and the signature of its site."""

    contract: str
    step: int
    signature: str


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a step at one member: a reply with its signature, or a failure that the member has not signed."""

    reply: bytes = b""
    signature: str = ""
    failure: Failure | None = None

    def note(self, step: int, site: str, *, with_reply: bool) -> tuple[Note, bytes]:
        """As it is sent, and the bytes that follow."""
        if self.failure is not None:
            return Note(step=step, site=site, code=self.failure.code, text=self.failure.text), b""
        data = self.reply if with_reply else b""
        digest = sha256(self.reply)
        return Note(step=step, site=site, reply=digest, size=len(data), signature=self.signature), data


def sha256(data: bytes) -> str:
    """The digest of a message."""
    return hashlib.sha256(data).hexdigest()


def reply_text(contract: str, step: int, site: str, digest: str) -> bytes:
    """What a site signs of a reply: it cannot be shown for another contract, step or site."""
    return f"fedprognos reply|{contract}|{step}|{site}|{digest}".encode()


def seal_step(
    identity: Identity, contract: str, step: int, fingerprint: Fingerprint, notes: Sequence[tuple[Note, bytes]]
) -> bytes:
    """A step as it travels: the signed header, then the replies that its notes name."""
    unsigned = StepHeader(contract=contract, step=step, fingerprint=fingerprint, notes=[note for note, _ in notes])
    header = unsigned.model_copy(update={"signature": identity.sign(unsigned.signed_text)})
    return _packed(STEP, header.model_dump(), [data for _, data in notes])


def open_step(data: bytes) -> tuple[StepHeader, dict[tuple[int, str], bytes]]:
    """Header and replies, by step and site, of a step; its signature is not checked yet."""
    document, rest = _unpacked(STEP, data)
    header = _validated(StepHeader, document)
    replies, start = {}, 0
    for note in header.notes:
        replies[note.step, note.site] = rest[start : start + note.size]
        start += note.size
    if start != len(rest):
        raise MessageError(f"a step with {len(rest)} bytes of replies where its header names {start}")
    return header, replies


def seal_reply(identity: Identity, contract: str, step: int, site: str, reply: bytes) -> bytes:
    """A reply with its site's signature."""
    signature = identity.sign(reply_text(contract, step, site, sha256(reply)))
    return _packed(REPLY, ReplyHeader(contract=contract, step=step, signature=signature).model_dump(), [reply])


def open_reply(data: bytes, contract: str, step: int, site: str, public: str) -> Outcome:
    """A reply whose signature is that of its site, for this step of this contract."""
    header, reply = read_reply(data)
    if (header.contract, header.step) != (contract, step):
        raise MessageError(f"a reply to step {header.step} instead of step {step}")
    verify(public, header.signature, reply_text(contract, step, site, sha256(reply)), site)
    return Outcome(reply, header.signature)


def read_reply(sealed: bytes) -> tuple[ReplyHeader, bytes]:
    """Header and message of a sealed reply; its signature is not checked."""
    document, reply = _unpacked(REPLY, sealed)
    return _validated(ReplyHeader, document), reply


def own_reply(step: int) -> str:
    """The key of a site's own sealed reply in its journal.

    The reply is on disk before it leaves, so that a step asked twice gets the same bytes twice.
    """
    return f"replies/{step:06d}"


def keep_outcomes(journal: ReplyJournal, step: int, outcomes: Mapping[str, Outcome]) -> None:
    """Keep what came of a step at each member."""
    notes = [outcome.note(step, site, with_reply=True) for site, outcome in sorted(outcomes.items())]
    document = {"notes": [note.model_dump() for note, _ in notes]}
    journal.keep(f"steps/{step:06d}", _packed(OUTCOMES, document, [data for _, data in notes]))


def read_outcomes(journal: ReplyJournal, step: int) -> dict[str, Outcome] | None:
    """What came of a step, by member; None where it is not kept."""
    if (data := journal.read(f"steps/{step:06d}")) is None:
        return None
    document, rest = _unpacked(OUTCOMES, data)
    outcomes, start = {}, 0
    for note in (_validated(Note, entry) for entry in document.get("notes", [])):
        failure = Failure(note.site, note.code, note.text) if note.code else None
        outcomes[note.site] = Outcome(rest[start : start + note.size], note.signature, failure)
        start += note.size
    return outcomes


def _packed(mark: bytes, document: Mapping[str, Any], parts: Sequence[bytes]) -> bytes:
    header = json.dumps(document, allow_nan=False).encode()
    return b"".join([mark, len(header).to_bytes(8, "little"), header, *parts])


def _unpacked(mark: bytes, data: bytes) -> tuple[dict[str, Any], bytes]:
    start = len(mark) + 8
    size = int.from_bytes(data[len(mark) : start], "little")
    if not data.startswith(mark) or len(data) < start or size > min(len(data) - start, MAX_HEADER_IN_BYTES):
        raise MessageError("not a step of a run")
    try:
        document = parse_json(data[start : start + size])
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise MessageError("not a step of a run")
    return document, data[start + size :]


def _validated(kind: type[M], document: Any) -> M:
    try:
        return kind.model_validate(document)
    except ValidationError:
        raise MessageError("malformed header of a step") from None
