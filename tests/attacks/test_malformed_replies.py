"""Malformed replies over the whole shelf of exchanges, in both modes: they cost their sender its place at most."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cohorts import HereCohort, cohort_of, plan_of
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from every_message import KINDS, Replying, client_here, deployed_messages, every_request, secure_messages
from malformed import malformed

from fedprognos.errors import FederationError, MessageError
from fedprognos.federation.client import Client
from fedprognos.federation.codec import decode, encode, ledger_line
from fedprognos.federation.cohort import MessageCohort
from fedprognos.federation.exchanges import Failure, exchange_for, exchanges
from fedprognos.federation.exchanges.evaluate import EvaluateReply, EvaluateRequest
from fedprognos.federation.exchanges.survey import MomentsRequest
from fedprognos.federation.masked_sums import MaskedSums
from fedprognos.federation.totals import OpenSums, masked_total, total
from fedprognos.privacy.masked_member import Member

REQUESTS = {f"{k} {type(request).__name__}": request for k, request in enumerate(every_request())}
PROTOCOL = ("KeysReply", "SharesReply", "BeginReply", "MaskedReply", "SurvivorsReply", "UnmaskReply")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Sums of impossible numbers overflow; what counts is that nothing of them is used."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Client:
    return client_here(tmp_path_factory.mktemp("client"))


def test_every_exchange_that_a_client_answers_is_tried() -> None:
    """A new exchange needs a request in `every_message`, and is then tried here, too."""
    asked = {type(request) for request in REQUESTS.values()}
    answered = {e.request for e in exchanges.values() if e.answer is not None and e.request.__module__ != _MASKS}
    assert answered <= asked


_MASKS = "fedprognos.privacy.mask_messages"


@pytest.mark.parametrize("name", REQUESTS)
def test_a_malformed_reply_costs_its_sender_its_place_and_nobody_else(client: Client, name: str) -> None:
    """In the open: what is refused names its sender; what passes adds up to something possible."""
    request, refused = REQUESTS[name], 0
    honest = client.respond(encode(request))
    for what, data in malformed(honest):
        cohort = MessageCohort(Replying({"a": honest, "b": data}))
        replies = cohort.ask(dict.fromkeys("ab", request))
        assert type(replies["a"]) is exchange_for(request).reply, what  # type: ignore[union-attr]
        if isinstance(replies["b"], Failure):
            refused += 1
            assert replies["b"].client == "b", what
            assert len(replies["b"].text) <= 400, what
            assert "\x1b" not in replies["b"].text, what
        else:
            assert_finite(replies["b"], what)
    assert refused > 50


def assert_finite(message: Any, what: str) -> None:
    """Whatever passes holds finite numbers only."""
    fields = vars(message).values() if hasattr(message, "__dict__") else ()
    for value in fields:
        if isinstance(value, np.ndarray):
            assert np.isfinite(value).all(), what
        elif isinstance(value, float):
            assert np.isfinite(value), what
        else:
            assert_finite(value, what)


@pytest.mark.parametrize("message", [*deployed_messages(), *secure_messages()], ids=lambda m: type(m).__name__)
def test_a_malformed_message_of_any_other_kind_is_refused_as_such(message: Any) -> None:
    kind = type(message)
    for what, data in malformed(encode(message)):
        try:
            assert type(decode(data, KINDS)) is kind or "kind" in what, what
        except MessageError as error:
            assert len(error.what) < 1000, what


@pytest.mark.parametrize("name", [n for n, r in REQUESTS.items() if exchange_for(r).template is not None])  # type: ignore[union-attr]
def test_whatever_a_member_masks_a_total_is_possible_or_ends_the_step(client: Client, name: str) -> None:
    """Under masks nobody sees a part: any numbers at all can stand in the sum."""
    request = REQUESTS[name]
    if isinstance(request, MomentsRequest):  # the one that is recorded asks for too few columns to be added up
        request = replace(request, columns=len(client.fleet.schema.sensors) + len(client.fleet.schema.settings))
    exchange = exchange_for(request)
    assert exchange is not None
    honest = decode(client.respond(encode(request)), KINDS)
    vector, _ = exchange.vector(request, honest)
    cohort = MessageCohort(Replying(dict.fromkeys("abc", b"")))
    for what, part in hostile_parts(vector):

        class Summed(OpenSums):
            def total(self, cohort: Any, requests: Any, left_out: Any, least: int = 0, part: Any = part) -> Any:
                return exchange.unvector(request, 2 * vector + part, 3), tuple(requests)  # type: ignore[union-attr]

        cohort.sums = Summed()
        try:
            assert_finite(masked_total(cohort, dict.fromkeys("abc", request), None, lambda failure: None), what)
        except FederationError:
            continue


def hostile_parts(vector: np.ndarray[Any, Any]) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Numbers that stand for a member's part: what fixed point can hold, and one number wrong at a time."""
    rng = np.random.default_rng(0)
    for size in (0.0, -1.0, 1.0, 1e-12, 1e12, 2.0**69):
        yield f"all {size}", np.full(len(vector), size)
        yield f"up to {size}", rng.uniform(-1, 1, len(vector)) * size
    for factor in (-2.0, 0.0, 1e3, 1e9):
        yield f"times {factor}", factor * vector
    for k in range(min(len(vector), 40)):
        for number in (-1e15, 1e15, -2 * vector[k]):
            part = vector.copy()
            part[k] = number
            yield f"number {k} is {number}", part


@pytest.mark.parametrize(
    "kind", ["MaskedReply", *(pytest.param(kind, marks=pytest.mark.long) for kind in PROTOCOL if kind != "MaskedReply")]
)
def test_a_malformed_message_of_a_masked_sum_costs_no_more_than_the_step(tmp_path: Path, kind: str) -> None:
    """The others' sum without its sender where enough are left, or an error; never a wrong total."""
    plan, names = plan_of(), "abcde"
    request = EvaluateRequest(plan.recipe, plan.common_start(), plan.seed, 0.3, True)
    honest = {
        members: total(
            cohort_of(tmp_path / "open", names), dict.fromkeys(members, request), EvaluateReply, None, ignore
        )
        for members in (names, "acde")
    }
    requests = dict.fromkeys(names, request)
    cases = list(malformed(example_of(tmp_path / "honest", names, requests, kind)))
    cases = cases[:: max(1, len(cases) // 24)]
    ended = 0
    for k, (what, data) in enumerate(cases):
        left: list[Failure] = []
        cohort = masked_cohort(tmp_path / f"{k}", names, kind, data)
        try:
            sums = masked_total(cohort, requests, 4, left.append)
        except FederationError:
            ended += 1
            continue
        assert {failure.client for failure in left} <= {"b"}, what
        in_sum = "acde" if left else names
        np.testing.assert_allclose(sums.fit.hh, honest[in_sum].fit.hh, rtol=1e-6, atol=1e-6, err_msg=what)
    assert ended < len(cases)


def ignore(failure: Failure) -> None:
    """Whoever is left out is not looked at here."""


def example_of(folder: Path, names: str, requests: Mapping[str, Any], kind: str) -> bytes:
    """An honest message of a kind, from a masked sum that succeeds."""
    cohort = masked_cohort(folder, names, "", b"")
    cohort.sums.total(cohort, requests, ignore, 5)  # type: ignore[union-attr, arg-type]
    return next(data for name, data in cohort.sent if name == "b" and ledger_line(data).kind == kind)


def masked_cohort(folder: Path, names: str, kind: str, instead: bytes) -> HereCohort:
    """Members of masked sums; in place of its message of one kind, `b` sends something else."""
    cohort = cohort_of(folder, names)
    keys = {name: Ed25519PrivateKey.generate() for name in names}
    identities = {name: key.public_key().public_bytes_raw().hex() for name, key in keys.items()}
    for name, member in cohort.members.items():
        member.member = Member(name, keys[name], identities)
    hostile = cohort.members["b"].respond

    def respond(data: bytes, on_epoch: Callable[..., None] | None = None) -> bytes:
        reply = hostile(data, on_epoch)
        return instead if ledger_line(reply).kind == kind else reply

    cohort.members["b"].respond = respond  # type: ignore[method-assign]
    return with_refusals(cohort, MaskedSums("run", identities))


def with_refusals(cohort: HereCohort, sums: MaskedSums) -> HereCohort:
    """The cohort of a run, which makes a failure of what cannot be decoded."""
    asked = MessageCohort(_Here(cohort), sums=sums)
    cohort.sums, cohort.ask = sums, asked.ask  # type: ignore[method-assign]
    return cohort


@dataclass(frozen=True)
class _Here:
    cohort: HereCohort

    @property
    def clients(self) -> tuple[str, ...]:
        return self.cohort.clients

    def send(self, requests: Mapping[str, bytes]) -> dict[str, bytes | Failure]:
        replies = {name: self.cohort.members[name].respond(data) for name, data in requests.items()}
        self.cohort.sent += replies.items()
        return dict(replies)
