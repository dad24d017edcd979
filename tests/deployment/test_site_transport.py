"""Requests reach sites whatever happens to them, and what one site sends concerns that site only."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from sites_here import site_here

from fedprognos.deployment.carrier import CarrierError, Presence, SiteLostError
from fedprognos.deployment.coordinator import site_transport
from fedprognos.deployment.coordinator.site_transport import SiteTransport
from fedprognos.errors import MessageError
from fedprognos.features import SurveyTerms
from fedprognos.federation.client import Client
from fedprognos.federation.codec import LedgerLine, decode, encode
from fedprognos.federation.cohort import MessageCohort
from fedprognos.federation.exchanges import Failure, exchanges
from fedprognos.federation.exchanges.site_messages import OPENING, step_requests
from fedprognos.federation.exchanges.survey import SurveyReply, SurveyRequest

SURVEY = SurveyRequest(SurveyTerms())


class FakeMailbox:
    """Sites that answer with what they are told to; None never answers, an exception is raised."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers, self.pushed = answers, list[str]()
        self.sessions = dict.fromkeys(answers, "monday")

    def presence(self) -> dict[str, Presence]:
        return {name: Presence(True, None, session) for name, session in self.sessions.items()}

    def push(self, site: str, data: bytes, ttl_in_s: float) -> str:
        self.pushed.append(site)
        return site

    def wait(self, longest_in_s: float) -> None:
        time.sleep(longest_in_s)

    def pull(self, ticket: str) -> bytes | None:
        answer = self.answers[ticket]
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_transport, "POLL_IN_S", 0.01)
    monkeypatch.setattr(site_transport, "CHECK_IN_S", 0.02)


@pytest.fixture
def good(tmp_path: Path) -> bytes:
    client: Client = site_here(tmp_path / "good").client
    return client.respond(encode(SURVEY))


def cohort(mailbox: FakeMailbox, names: str, **more: Any) -> MessageCohort:
    options = {"limit_in_bytes": 100_000, "timeout_in_s": 0.3, "absent_in_s": 0.1, **more}
    return MessageCohort(SiteTransport(mailbox, tuple(names), **options))


def test_every_site_is_in_the_answer_whatever_it_does(good: bytes) -> None:
    spoilt = good.replace(b'"shape"', b'"shade"', 1)
    answers = {"a": good, "b": bytes(200_000), "c": b"nonsense", "d": None, "e": MessageError("broken"), "f": good}
    mailbox = FakeMailbox({**answers, "h": spoilt})
    activities: set[str] = set()
    lines: list[LedgerLine] = []
    told: dict[str, Any] = {
        "waiting": lambda activity, sites: activities.add(activity),
        "received": lambda site, line: lines.append(line),
    }
    replies = cohort(mailbox, "abcdegh", **told).ask(dict.fromkeys("abcdegh", SURVEY))  # g never came
    assert isinstance(replies["a"], SurveyReply)
    codes = {name: reply.code for name, reply in replies.items() if isinstance(reply, Failure)}
    broken = dict.fromkeys("bceh", "message")
    assert codes == {**broken, "d": "timeout", "g": "absent"}
    assert "100000" in replies["b"].text
    assert "f" not in mailbox.pushed  # not a member of this run
    assert activities == {"moments of the columns"}
    assert [line.kind for line in lines] == ["SurveyReply"]


def test_a_request_beyond_the_limit_is_not_sent(good: bytes) -> None:
    mailbox = FakeMailbox({"a": good})
    reply = cohort(mailbox, "a", limit_in_bytes=10).ask({"a": SURVEY})["a"]
    assert (reply.code, mailbox.pushed) == ("message", [])


def test_a_site_that_restarted_is_asked_again() -> None:
    mailbox = FakeMailbox({"a": None})

    def restart(*_: object) -> None:
        if mailbox.pushed:
            mailbox.sessions["a"] = "tuesday"

    assert cohort(mailbox, "a", waiting=restart).ask({"a": SURVEY})["a"].code == "timeout"
    assert mailbox.pushed == ["a", "a"]


def test_a_site_that_was_lost_and_comes_back_is_asked_again(good: bytes) -> None:
    mailbox = FakeMailbox({"a": SiteLostError("gone")})

    def back(*_: object) -> None:
        if len(mailbox.pushed) == 2:
            mailbox.answers["a"] = good

    replies = cohort(mailbox, "a", waiting=back, timeout_in_s=10.0).ask({"a": SURVEY})
    assert isinstance(replies["a"], SurveyReply)


def test_an_engine_that_fails_for_a_moment_does_no_harm(good: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    mailbox = FakeMailbox({"a": good})
    for name in ("presence", "push"):
        answers, work = iter([CarrierError("not now"), None]), getattr(mailbox, name)

        def at_second_try(*args: Any, answers: Any = answers, work: Any = work) -> Any:
            if (error := next(answers, None)) is not None:
                raise error
            return work(*args)

        monkeypatch.setattr(mailbox, name, at_second_try)
    assert isinstance(cohort(mailbox, "a", timeout_in_s=10.0).ask({"a": SURVEY})["a"], SurveyReply)


def test_a_message_that_cannot_be_sent_to_one_site_holds_up_no_other(
    good: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailbox = FakeMailbox({"a": good, "b": good})
    push = mailbox.push

    def not_to_a(site: str, *more: Any) -> str:
        if site == "a":
            raise CarrierError("too large for the engine")
        return push(site, *more)

    monkeypatch.setattr(mailbox, "push", not_to_a)
    replies = cohort(mailbox, "ab").ask(dict.fromkeys("ab", SURVEY))
    assert replies["a"].code == "absent"
    assert isinstance(replies["b"], SurveyReply)


def test_an_absent_site_is_waited_for_once(good: bytes) -> None:
    mailbox = FakeMailbox({"a": good})
    federation = cohort(mailbox, "ab", absent_in_s=0.5, timeout_in_s=10.0)
    for patience_in_s in (0.5, 0.0):
        begun = time.monotonic()
        replies = federation.ask(dict.fromkeys("ab", SURVEY))
        assert patience_in_s <= time.monotonic() - begun < patience_in_s + 0.4
        assert replies["b"] == Failure("b", "absent", "it is not connected")
    mailbox.answers["b"], mailbox.sessions["b"] = good, "tuesday"
    assert isinstance(federation.ask({"b": SURVEY})["b"], SurveyReply)


def test_where_everybody_is_needed_an_absent_site_is_waited_for_until_it_is_back(good: bytes) -> None:
    mailbox = FakeMailbox({"a": good})
    mailbox.answers["b"] = good

    missed: list[str] = []

    def back(*_: object) -> None:
        if missed:
            mailbox.sessions["b"] = "tuesday"

    options: dict[str, Any] = {"wait_for_all": True, "timeout_in_s": 30.0, "missed": missed.append}
    replies = cohort(mailbox, "ab", waiting=back, **options).ask(dict.fromkeys("ab", SURVEY))
    assert all(isinstance(reply, SurveyReply) for reply in replies.values())
    assert missed == ["b"]


def test_a_failure_is_the_site_s_own_and_short() -> None:
    sent = encode(Failure("somebody else", "c" * 1000, "t" * 1000))
    assert cohort(FakeMailbox({"a": sent}), "a").ask({"a": SURVEY})["a"] == Failure("a", "c" * 40, "t" * 400)


def test_every_request_says_in_words_what_it_is_about() -> None:
    assert set(exchanges) == {kind.__name__ for kind in (*OPENING, *step_requests())}
    assert all(exchange.words.activity and exchange.words.leaves for exchange in exchanges.values())
    assert decode(encode(SURVEY), step_requests()) == SURVEY
