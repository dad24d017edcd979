"""What a dishonest member can do to the others: rejected replies reach nobody, and sizes hold for a whole run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from small_run import SmallRun

from fedprognos.deployment.steps.signed_steps import (
    REPLY,
    StepHeader,
    open_step,
    read_reply,
    seal_reply,
    seal_step,
    sha256,
)
from fedprognos.federation.codec import decode, encode, ledger_line
from fedprognos.federation.exchanges.fit import FitReply

JUNK = b"for the others" * 9


def replying(run: SmallRun, name: str, change: Callable[[bytes], bytes]) -> list[bytes]:
    """Let a member sign something else than its trained weights; what it signed."""
    site, sent = run.sites[name], list[bytes]()
    honest = site.respond

    def respond(data: bytes) -> bytes:
        sealed = honest(data)
        if not sealed.startswith(REPLY) or ledger_line(read_reply(sealed)[1]).kind != FitReply.__name__:
            return sealed
        header, reply = read_reply(sealed)
        sent.append(change(reply))
        return seal_reply(site.identity, header.contract, header.step, name, sent[-1])

    site.respond = respond  # type: ignore[method-assign]
    return sent


def held_by(run: SmallRun, name: str) -> bytes:
    return b"".join(path.read_bytes() for path in (run.folder / name).rglob("*") if path.is_file())


def with_junk(reply: bytes) -> bytes:
    """A well-formed message with a tensor too many, which holds whatever its sender likes."""
    found = decode(reply, (FitReply,))
    more = np.frombuffer(JUNK.ljust(128), dtype=np.float32)
    return encode(replace(found, weights={**found.weights, "more": more}))


def test_what_a_member_sends_and_nobody_can_use_reaches_no_other_member(tmp_path: Path) -> None:
    run = SmallRun(tmp_path)
    signed = replying(run, "c", with_junk)
    run.perform()
    assert signed
    assert all(JUNK in one for one in signed)
    assert run.weights()
    assert not [data for site, data in run.mailbox.steps if site != "c" and JUNK in data]
    assert not [name for name in "ab" if JUNK in held_by(run, name)]
    assert any("left out c" in text for text in run.said)


def test_a_size_beyond_what_a_member_declared_is_refused_in_every_exchange(tmp_path: Path) -> None:
    run = SmallRun(tmp_path)
    replying(run, "c", lambda reply: encode(replace(decode(reply, (FitReply,)), windows=10**6)))
    run.perform()
    assert any("left out c" in text and "points" in text for text in run.said)


def test_junk_that_an_accomplice_signed_is_neither_kept_nor_followed(tmp_path: Path) -> None:
    """The coordinator relays what it should have rejected."""
    run, refused = SmallRun(tmp_path), list[bytes]()
    nan = np.float32("nan").tobytes()

    def relay(site: str, header: StepHeader, data: bytes) -> None:
        _, replies = open_step(data)
        if site != "a" or header.step != 4:
            return
        for junk in (JUNK, replies[header.notes[-1].step, header.notes[-1].site][:-4] + nan):
            notes = []
            for note in header.notes:
                reply, said = replies[note.step, note.site], note
                if note.site == "c" and note.step == header.step - 1:
                    key = run.sites["c"].identity
                    sealed = seal_reply(key, header.contract, note.step, "c", junk)
                    signature = read_reply(sealed)[0].signature
                    said = note.model_copy(update={"reply": sha256(junk), "size": len(junk), "signature": signature})
                    reply = junk
                notes.append((said, reply))
            frame = seal_step(run.identity, header.contract, header.step, header.fingerprint, notes)
            refused.append(run.sites["a"].respond(frame))

    run.mailbox.before = relay
    run.perform()
    assert len(refused) == 2
    assert all(not reply.startswith(REPLY) for reply in refused)
    assert JUNK not in held_by(run, "a")
    assert run.weights()
