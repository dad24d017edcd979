"""The steps of a deployed run: every request names its step and is signed, every reply is signed by its site.

With a request come the outcomes of earlier steps: what each member replied, with its signature, or that it failed. From
them a site can follow the run by itself (:mod:`fedprognos.deployment.steps.replay`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedprognos.deployment.keys import Identity, verify
from fedprognos.errors import MessageError
from fedprognos.federation.messages import Failure
from fedprognos.files import replacing

REQUEST, REPLY, OUTCOMES = b"fedprognos step request 1\n", b"fedprognos step reply 1\n", b"fedprognos outcomes 1\n"
MAX_HEADER_IN_BYTES = 4 << 20
M = TypeVar("M", bound=BaseModel)


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Note(_Wire):
    """One member's outcome of a step: a signed reply of so many bytes that follow, or a failure.

    A site's own reply is named by its digest and not sent back to it.
    """

    step: int = Field(ge=1)
    site: str
    request: str = ""
    reply: str = ""
    size: int = Field(default=0, ge=0)
    signature: str = ""
    code: str = ""
    text: str = ""


class RequestHeader(_Wire):
    """What is said about a request; `request` is the digest of the whole message."""

    contract: str
    step: int = Field(ge=1)
    request: str
    notes: list[Note]
    signature: str


class ReplyHeader(_Wire):
    """What is said about a reply."""

    contract: str
    step: int
    request: str
    signature: str


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a step at one member: a reply with the digest of its request and a signature, or a failure."""

    reply: bytes = b""
    request: str = ""
    signature: str = ""
    failure: Failure | None = None

    def note(self, step: int, site: str, *, whole: bool) -> tuple[Note, bytes]:
        """As it is sent, and the bytes that follow."""
        if self.failure is not None:
            return Note(step=step, site=site, code=self.failure.code, text=self.failure.text), b""
        data = self.reply if whole else b""
        known = sha256(self.reply)
        note = Note(step=step, site=site, request=self.request, reply=known, size=len(data), signature=self.signature)
        return note, data


def sha256(data: bytes) -> str:
    """The digest of a message."""
    return hashlib.sha256(data).hexdigest()


def request_text(contract: str, step: int, request: str, notes: Sequence[Note]) -> bytes:
    """What a coordinator signs of a request: contract, step, digest, and all that it says of earlier steps."""
    said = sha256(json.dumps([note.model_dump() for note in notes], sort_keys=True).encode())
    return f"fedprognos request|{contract}|{step}|{request}|{said}".encode()


def reply_text(contract: str, step: int, request: str, reply: str) -> bytes:
    """What a site signs of a reply."""
    return f"fedprognos reply|{contract}|{step}|{request}|{reply}".encode()


def seal_request(
    identity: Identity, contract: str, step: int, whole: bytes, sent: bytes, notes: Sequence[tuple[Note, bytes]]
) -> bytes:
    """A request with its step and what came of earlier ones; `sent` is the message without what the site has."""
    said = [note for note, _ in notes]
    signature = identity.sign(request_text(contract, step, sha256(whole), said))
    header = RequestHeader(contract=contract, step=step, request=sha256(whole), notes=said, signature=signature)
    return _packed(REQUEST, header.model_dump(), [data for _, data in notes if data] + [sent])


def open_request(data: bytes) -> tuple[RequestHeader, dict[tuple[int, str], bytes], bytes]:
    """Header, replies by step and site, and the message of a sealed request; its signature is not checked yet."""
    document, rest = _unpacked(REQUEST, data)
    header = _validated(RequestHeader, document)
    replies, at = {}, 0
    for note in header.notes:
        replies[note.step, note.site] = rest[at : at + note.size]
        at += note.size
    return header, replies, rest[at:]


def seal_reply(identity: Identity, contract: str, step: int, request: str, reply: bytes) -> bytes:
    """A reply with its site's signature."""
    signature = identity.sign(reply_text(contract, step, request, sha256(reply)))
    header = ReplyHeader(contract=contract, step=step, request=request, signature=signature)
    return _packed(REPLY, header.model_dump(), [reply])


def open_reply(data: bytes, contract: str, step: int, request: str, public: str, site: str) -> Outcome:
    """A reply whose signature is that of its site."""
    document, reply = _unpacked(REPLY, data)
    header = _validated(ReplyHeader, document)
    if (header.contract, header.step, header.request) != (contract, step, request):
        raise MessageError("a reply to another request")
    verify(public, header.signature, reply_text(contract, step, request, sha256(reply)), site)
    return Outcome(reply, request, header.signature)


def read_reply(sealed: bytes) -> tuple[ReplyHeader, bytes]:
    """Header and message of a sealed reply that is one's own."""
    document, reply = _unpacked(REPLY, sealed)
    return _validated(ReplyHeader, document), reply


class Transcript:
    """The outcomes of a run's steps on disk, one file a step, each written as a whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, step: int) -> dict[str, Outcome] | None:
        """The outcomes of a step, None where it has none."""
        path = self._folder / f"{step:06d}"
        if not path.is_file():
            return None
        document, rest = _unpacked(OUTCOMES, path.read_bytes())
        found, at = {}, 0
        for note in (_validated(Note, one) for one in document.get("notes", [])):
            failure = Failure(note.site, note.code, note.text) if note.code else None
            found[note.site] = Outcome(rest[at : at + note.size], note.request, note.signature, failure)
            at += note.size
        return found

    def write(self, step: int, outcomes: Mapping[str, Outcome]) -> None:
        """Keep the outcomes of a step."""
        notes = [outcome.note(step, site, whole=True) for site, outcome in sorted(outcomes.items())]
        document = {"notes": [note.model_dump() for note, _ in notes]}
        with replacing(self._folder / f"{step:06d}") as temporary:
            temporary.write_bytes(_packed(OUTCOMES, document, [data for _, data in notes]))


def _packed(mark: bytes, document: Mapping[str, Any], parts: Sequence[bytes]) -> bytes:
    header = json.dumps(document, allow_nan=False).encode()
    return b"".join([mark, len(header).to_bytes(8, "little"), header, *parts])


def _unpacked(mark: bytes, data: bytes) -> tuple[dict[str, Any], bytes]:
    at = len(mark) + 8
    size = int.from_bytes(data[len(mark) : at], "little")
    if not data.startswith(mark) or len(data) < at or size > min(len(data) - at, MAX_HEADER_IN_BYTES):
        raise MessageError("not a step of a run")
    try:
        document = json.loads(data[at : at + size])
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise MessageError("not a step of a run")
    return document, data[at + size :]


def _validated(kind: type[M], document: Any) -> M:
    try:
        return kind.model_validate(document)
    except ValidationError:
        raise MessageError("malformed header of a step") from None
