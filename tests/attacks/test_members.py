"""What a dishonest member can do to the others: rejected replies reach nobody, and sizes hold for a whole run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from small_run import SmallRun

from fedprognos.deployment.carrier import CarrierError
from fedprognos.deployment.steps.signed_steps import (
    REPLY,
    Note,
    StepHeader,
    open_step,
    read_reply,
    seal_reply,
    seal_step,
    sha256,
)
from fedprognos.federation.codec import decode, encode, ledger_line
from fedprognos.federation.exchanges import Failure
from fedprognos.federation.exchanges.fit import FitReply
from fedprognos.privacy.floors import Floors

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
    trained = decode(reply, (FitReply,))
    more = np.frombuffer(JUNK.ljust(128), dtype=np.float32)
    return encode(replace(trained, weights={**trained.weights, "more": more}))


def test_what_a_member_sends_and_nobody_can_use_reaches_no_other_member(tmp_path: Path) -> None:
    run = SmallRun(tmp_path)
    signed = replying(run, "c", with_junk)
    run.perform()
    assert signed
    assert all(JUNK in reply for reply in signed)
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
                reply, shown = replies[note.step, note.site], note
                if note.site == "c" and note.step == header.step - 1:
                    key = run.sites["c"].identity
                    sealed = seal_reply(key, header.contract, note.step, "c", junk)
                    signature = read_reply(sealed)[0].signature
                    shown = note.model_copy(update={"reply": sha256(junk), "size": len(junk), "signature": signature})
                    reply = junk
                notes.append((shown, reply))
            frame = seal_step(run.identity, header.contract, header.step, header.fingerprint, notes)
            refused.append(run.sites["a"].respond(frame))

    run.mailbox.before = relay
    run.perform()
    assert len(refused) == 2
    assert all(not reply.startswith(REPLY) for reply in refused)
    assert JUNK not in held_by(run, "a")
    assert run.weights()


def test_a_member_that_fails_signs_it_and_the_others_check_the_signature(tmp_path: Path) -> None:
    run, shown = SmallRun(tmp_path), dict[str, list[Note]]()
    run.sites["c"].client.floors = Floors(rows=10**6)  # nothing has so many rows behind it: c refuses every question

    def watch(site: str, header: StepHeader, data: bytes) -> None:
        shown.setdefault(site, []).extend(note for note in header.notes if note.site == "c" and note.step > 1)

    run.mailbox.before = watch
    run.perform()
    assert any("left out c" in text for text in run.said)
    for site in "ab":
        assert shown[site]
        assert all(note.signature and not note.code for note in shown[site])
    assert not [text for text in run.said if "has not signed" in text]
    assert run.weights()


def test_a_failure_that_only_the_coordinator_claims_is_shown_as_such(tmp_path: Path) -> None:
    """The coordinator drops a member that answered: the run continues, and the others learn whose word it is."""
    run = SmallRun(tmp_path)

    def drop(site: str, header: StepHeader, data: bytes) -> None:
        if site == "c" and header.step == 4:
            raise CarrierError("the coordinator pretends that c is not there")

    run.absent_in_s, run.mailbox.before = 0.0, drop
    run.perform()
    claims = [text for text in run.said if "c has not signed" in text]
    assert len(claims) >= 2  # at a and at b
    assert all("absent" in text for text in claims)


def test_a_failure_in_another_member_s_name_is_refused(tmp_path: Path) -> None:
    """A signature of one step or member is of no use for another."""
    run, refused = SmallRun(tmp_path), list[bytes]()

    def forge(site: str, header: StepHeader, data: bytes) -> None:
        _, replies = open_step(data)
        if site != "a" or header.step != 4:
            return
        failure = encode(Failure("c", "floor", "too few rows"))
        sealed = seal_reply(run.sites["b"].identity, header.contract, header.step - 1, "c", failure)
        signature = read_reply(sealed)[0].signature
        notes = []
        for note in header.notes:
            if note.site == "c" and note.step == header.step - 1:
                forged = {"reply": sha256(failure), "size": len(failure), "signature": signature}
                notes.append((note.model_copy(update=forged), failure))
            else:
                notes.append((note, replies[note.step, note.site]))
        frame = seal_step(run.identity, header.contract, header.step, header.fingerprint, notes)
        refused.append(run.sites["a"].respond(frame))

    run.mailbox.before = forge
    run.perform()
    assert len(refused) == 1
    assert not refused[0].startswith(REPLY)
    assert run.weights()
