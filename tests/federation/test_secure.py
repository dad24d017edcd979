"""Masked sums: equal to plain ones whoever drops out, nothing but totals to be seen, and what sites refuse."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cohorts import cohort_of, plan_of
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprognos.errors import FederationError, MessageError
from fedprognos.evaluation import ScoreSums
from fedprognos.federation.codec import encode
from fedprognos.federation.cohort import Tag, digest
from fedprognos.federation.exchanges import Failure, exchanges
from fedprognos.federation.exchanges.evaluate import ErrorSums, EvaluateReply, EvaluateRequest
from fedprognos.federation.exchanges.fit import FitRequest
from fedprognos.federation.exchanges.outputs import OutputsRequest
from fedprognos.federation.exchanges.scores import ScoreReply, ScoreRequest
from fedprognos.federation.masked_sums import MaskedSums
from fedprognos.federation.totals import OpenSums, add_all
from fedprognos.networks import HeadStatistics
from fedprognos.privacy.mask_messages import (
    BeginRequest,
    KeysRequest,
    MaskedReply,
    SharesReply,
    SharesRequest,
    SurvivorsRequest,
    UnmaskRequest,
)
from fedprognos.privacy.masked_member import Member, quorum
from fedprognos.privacy.masks import POLYNOMIAL_IN_BYTES, join_shares, split_secret, survivors_text
from fedprognos.privacy.sum_vectors import (
    FINE_LIMBS,
    LIMBS,
    MOST,
    add,
    from_fixed,
    from_vector,
    negated,
    to_fixed,
    to_vector,
    unreadable,
)
from refusals import refuses

STEPS = ("KeysRequest", "SharesRequest", "BeginRequest", "masked", "SurvivorsRequest", "UnmaskRequest")
Answer = Callable[[str, Any], Any]


class MaskingCohort:
    """Members in this process; some stop answering from a step on. All that the coordinator sees is kept."""

    def __init__(self, names: tuple[str, ...], answer: Answer, drops: Mapping[str, str] | None = None) -> None:
        keys = {name: Ed25519PrivateKey.generate() for name in names}
        self.identities = {name: key.public_key().public_bytes_raw().hex() for name, key in keys.items()}
        self.kept: dict[str, Any] = {}
        self.members = {
            name: Member(name, key, self.identities, keep=lambda s, n=name: self.kept.__setitem__(n, s))
            for name, key in keys.items()
        }
        self.keys, self.answer, self.drops = keys, answer, dict(drops or {})
        self.gone: set[str] = set()
        self.seen: list[tuple[str, Any]] = []

    def ask(self, requests: Mapping[str, Any], kinds: tuple[type, ...] = (), tag: Tag | None = None) -> dict[str, Any]:
        step = "masked" if tag else type(next(iter(requests.values()))).__name__ if requests else ""
        self.gone |= {name for name, at in self.drops.items() if at == step}
        replies = {}
        for name, request in requests.items():
            if name in self.gone:
                replies[name] = Failure(name, "absent", "it is not connected")
                continue
            try:
                replies[name] = self._reply(name, request, tag)
            except MessageError as error:
                replies[name] = Failure(name, error.code, error.what)
            self.seen.append((name, replies[name]))
        return replies

    def _reply(self, name: str, request: Any, tag: Tag | None) -> Any:
        if tag is None:
            return self.members[name].answer(request)
        exchange = exchanges[type(request).__name__]
        vector, hidden = exchange.vector(request, self.answer(name, request))
        return self.members[name].masked(*tag, digest(encode(request)), vector, exchange.limbs, hidden=hidden)


def vector_of(request: Any, reply: Any) -> np.ndarray:
    return exchanges[type(request).__name__].vector(request, reply)[0]


def statistics(seed: int, width: int = 5) -> HeadStatistics:
    rng = np.random.default_rng(seed)
    h = np.concatenate([rng.normal(size=(40, width)) * 10.0 ** rng.integers(-3, 4), np.ones((40, 1))], axis=1)
    y = rng.normal(size=40)
    return HeadStatistics(40, float(y @ y), h.T @ h, h.T @ y)


def request_of(width: int = 5) -> EvaluateRequest:
    plan = plan_of(widths=(width,))
    return EvaluateRequest(plan.recipe, plan.common_start(), plan.seed, 0.3, True)


def answer(name: str, _: Any) -> EvaluateReply:
    seed = ord(name[-1])
    held = statistics(seed + 100) if seed % 2 else None
    validation = None if held is None else ErrorSums(4, -1.5, 6.0, 12.5)
    return EvaluateReply(validation, statistics(seed), held)


def close(one: EvaluateReply, other: EvaluateReply) -> None:
    for part in ("fit", "held"):
        mine, theirs = getattr(one, part), getattr(other, part)
        assert (mine is None) == (theirs is None)
        if mine is not None:
            scale = np.abs(theirs.hh).max()
            assert mine.n == theirs.n
            np.testing.assert_allclose(mine.hh, theirs.hh, rtol=1e-9, atol=1e-12 * scale)
            np.testing.assert_allclose(mine.hy, theirs.hy, rtol=1e-9, atol=1e-12 * scale)
    assert one.validation == other.validation


class TestFixedPoint:
    @settings(max_examples=100, deadline=None)
    @given(st.lists(st.floats(-(2.0**59), 2.0**59), min_size=1, max_size=20), st.sampled_from([LIMBS, FINE_LIMBS]))
    def test_numbers_come_back_to_the_unit(self, values: list[float], limbs: int) -> None:
        array = np.array(values)
        unit = 2.0 ** (71 - 64 * limbs + 1)
        np.testing.assert_allclose(from_fixed(to_fixed(array, limbs)), array, rtol=1e-15, atol=unit)
        np.testing.assert_array_equal(from_fixed(add(to_fixed(array, limbs), negated(to_fixed(array, limbs)))), 0.0)

    @settings(max_examples=50, deadline=None)
    @given(seed=st.integers(0, 2**32 - 1), count=st.integers(2, 8))
    def test_sums_are_exact_and_do_not_depend_on_their_order(self, seed: int, count: int) -> None:
        rng = np.random.default_rng(seed)
        parts = [to_fixed(rng.normal(size=7) * 10.0 ** rng.integers(-6, 12)) for _ in range(count)]
        forward, backward = parts[0], parts[-1]
        for part in parts[1:]:
            forward = add(forward, part)
        for part in reversed(parts[:-1]):
            backward = add(backward, part)
        np.testing.assert_array_equal(forward, backward)

    @pytest.mark.parametrize("value", [2.0**60, np.inf, np.nan, -(2.0**70)])
    def test_numbers_beyond_the_range_are_refused(self, value: float) -> None:
        with refuses(MessageError, f"{MOST:g}"):
            to_fixed(np.array([value]))


@settings(max_examples=30, deadline=None)
@given(data=st.data(), members=st.integers(3, 9))
def test_any_quorum_of_shares_gives_the_secret_and_fewer_do_not(data: st.DataObject, members: int) -> None:
    secret, threshold = bytes(range(32)), quorum(members)
    shares = split_secret(secret, members, threshold, secrets.token_bytes(threshold * POLYNOMIAL_IN_BYTES))
    chosen = data.draw(st.permutations(range(1, members + 1)))[:threshold]
    assert join_shares({k: shares[k - 1] for k in chosen}, 32) == secret
    if threshold > 1:
        with contextlib.suppress(MessageError):
            assert join_shares({k: shares[k - 1] for k in chosen[:-1]}, 32) != secret


@settings(max_examples=25, deadline=None)
@given(data=st.data(), count=st.integers(3, 6))
def test_masked_totals_equal_plain_ones_with_sites_dropping_out_at_every_step(data: st.DataObject, count: int) -> None:
    names = tuple(f"site-{chr(97 + k)}" for k in range(count))
    most = count - quorum(count)
    gone = data.draw(st.lists(st.sampled_from(names), max_size=most, unique=True))
    drops = {name: data.draw(st.sampled_from(STEPS)) for name in gone}
    cohort, left = MaskingCohort(names, answer, drops), list[Failure]()
    request = request_of()
    sums = MaskedSums("run", cohort.identities)
    found, members = sums.total(cohort, dict.fromkeys(names, request), left.append)
    before = {name for name, at in drops.items() if STEPS.index(at) <= STEPS.index("masked")}
    assert set(members) == set(names) - before
    close(found, add_all({name: answer(name, request) for name in members}))
    assert {f.client for f in left} == before
    open_cohort = OpenCohort(members, answer)
    same, _ = OpenSums().total(open_cohort, dict.fromkeys(members, request), left.append)
    assert same.fit.hh.tobytes() == found.fit.hh.tobytes()


@pytest.mark.parametrize("step", STEPS)
def test_a_site_is_either_named_as_left_out_or_in_the_sum(step: str) -> None:
    """One wrong message, honest ones before and after: its sender used to stand in sums that it was left out of."""

    class OneWrongMessage(MaskingCohort):
        def _reply(self, name: str, request: Any, tag: Tag | None) -> Any:
            reply = super()._reply(name, request, tag)
            wrong = name == "d" and step == ("masked" if tag else type(request).__name__)
            return SharesReply({}) if wrong else reply

    names, request, left = ("a", "b", "c", "d"), request_of(), list[Failure]()
    cohort = OneWrongMessage(names, answer)
    found, members = MaskedSums("run", cohort.identities).total(cohort, dict.fromkeys(names, request), left.append, 3)
    assert set(members) == set(names) - {failure.client for failure in left}
    assert ("d" in members) == (STEPS.index(step) > STEPS.index("masked"))
    close(found, add_all({name: answer(name, request) for name in members}))


class OpenCohort:
    def __init__(self, names: tuple[str, ...], answer: Answer) -> None:
        self.answer = answer

    def ask(self, requests: Mapping[str, Any], kinds: tuple[type, ...] = (), tag: Tag | None = None) -> dict[str, Any]:
        return {name: self.answer(name, request) for name, request in requests.items()}


def test_a_batch_serves_many_sums_and_another_follows() -> None:
    names = ("a", "b", "c")
    cohort = MaskingCohort(names, answer)
    sums = MaskedSums("run", cohort.identities)
    plan = plan_of(widths=(5,))
    for seed in range(34):
        request = EvaluateRequest(plan.recipe, plan.common_start(), seed, 0.3, True)
        found, _ = sums.total(cohort, dict.fromkeys(names, request), lambda failure: None)
        assert found.fit.n == 120
    asked = [type(reply).__name__ for name, reply in cohort.seen if name == "a"]
    assert asked.count("KeysReply") == 2 and asked.count("MaskedReply") == 34


def test_masked_messages_look_uniform_and_are_never_alike() -> None:
    names = ("a", "b", "c", "d")
    cohort = MaskingCohort(names, answer)
    MaskedSums("run", cohort.identities).total(cohort, dict.fromkeys(names, request_of()), lambda failure: None)
    masked = {name: reply.masked for name, reply in cohort.seen if isinstance(reply, MaskedReply)}
    assert set(masked) == set(names)
    own = {name: to_fixed(vector_of(request_of(), answer(name, None))) for name in names}
    for name, sent in masked.items():
        bits = np.unpackbits(sent.view(np.uint8))
        assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(bits.size)  # also the high bits, zero in every honest number
        assert not np.isin(sent.view(np.uint64), own[name]).any()
    # The sum of fewer than all is still masked: nothing of it is near the plain sum of those.
    some = add(add(masked["a"].view(np.uint64), masked["b"].view(np.uint64)), masked["c"].view(np.uint64))
    plain = sum(vector_of(request_of(), answer(n, None)) for n in "abc")
    assert np.median(np.abs(from_fixed(some) - plain)) > 1e12


class TestWhatASiteRefuses:
    """A malicious coordinator's ways to one site's sum."""

    def begun(self) -> tuple[MaskingCohort, str, EvaluateRequest]:
        names = ("a", "b", "c", "d", "e")
        cohort, request = MaskingCohort(names, answer), request_of()
        sums = MaskedSums("run", cohort.identities)
        sums.total(cohort, dict.fromkeys(names, request), lambda failure: None)
        return cohort, "run/1", request

    def test_members_that_were_not_agreed_on(self) -> None:
        cohort = MaskingCohort(("a", "b", "c"), answer)
        invented = {**cohort.identities, "c": Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()}
        for identities in (invented, {**cohort.identities, "z": invented["c"]}, dict(list(invented.items())[:2])):
            with pytest.raises(MessageError):
                cohort.members["a"].answer(KeysRequest("x", 4, identities))

    def test_keys_that_no_member_signed(self) -> None:
        cohort = MaskingCohort(("a", "b", "c"), answer)
        asked = KeysRequest("x", 2, cohort.identities)
        keys = {name: member.answer(asked) for name, member in cohort.members.items()}
        forged = {**keys, "b": type(keys["b"])(keys["a"].sealing, keys["b"].masking, keys["b"].signature)}
        with refuses(MessageError, "'b'"):
            cohort.members["a"].answer(SharesRequest("x", forged))

    def test_a_second_survivor_set_for_one_request(self) -> None:
        cohort, batch, request = self.begun()
        member, fewer = cohort.members["a"], ("a", "b", "c", "d")
        with refuses(MessageError, "a, b, c, d, e", "a, b, c, d:"):
            member.answer(SurvivorsRequest(batch, 0, fewer))
        vector = vector_of(request, answer("a", request))
        member.masked(batch, 1, digest(encode(request)), vector)  # the same request once more, under another number
        with refuses(MessageError, "a, b, c, d, e", "a, b, c, d:"):
            member.answer(SurvivorsRequest(batch, 1, fewer))

    def test_the_same_network_with_another_seed_split_or_head_over_other_members(self) -> None:
        """Otherwise a network that is the same for every seed would tell a missing member's part."""
        cohort, batch, _ = self.begun()
        member, everyone = cohort.members["a"], tuple(sorted(cohort.members))
        plan, about = plan_of(widths=(5,)), exchanges["EvaluateRequest"].about
        assert about is not None
        network = plan.common_start()
        for index, other in enumerate(
            (
                EvaluateRequest(plan.recipe, network, 1, 0.3, True),
                EvaluateRequest(plan.recipe, network, 2, 0.3, True),
                EvaluateRequest(plan.recipe, network.with_head(2 * network.head), 1, 0.2, True),
            ),
            start=1,
        ):
            vector, asked = vector_of(other, answer("a", other)), digest(encode(other))
            member.masked(batch, index, asked, vector, about=digest(about(other)))
            if index == 1:
                member.answer(SurvivorsRequest(batch, index, everyone))
            else:
                with refuses(MessageError, "a, b, c, d, e", "a, b, c, d:"):
                    member.answer(SurvivorsRequest(batch, index, everyone[:-1]))
                member.answer(SurvivorsRequest(batch, index, everyone))

    def test_shares_for_a_set_that_no_quorum_signed(self) -> None:
        cohort, batch, _ = self.begun()
        everyone = tuple(sorted(cohort.members))
        text = survivors_text(batch, 0, everyone)
        own = cohort.keys["a"].sign(text).hex()
        for signatures, valid in (({}, 0), ({"a": own}, 1), (dict.fromkeys(everyone, own), 1)):
            with refuses(MessageError, valid, quorum(5)):
                cohort.members["a"].answer(UnmaskRequest(batch, 0, everyone, signatures))
        with refuses(MessageError, batch, 0):
            cohort.members["a"].answer(UnmaskRequest(batch, 0, everyone[:3], {}))

    def test_a_key_used_twice_and_a_sum_that_has_not_begun(self) -> None:
        cohort, batch, request = self.begun()
        vector = vector_of(request, answer("a", request))
        with pytest.raises(MessageError):
            cohort.members["a"].masked(batch, 0, "other", vector)
        with pytest.raises(MessageError):
            cohort.members["a"].masked("unknown", 0, "other", vector)

    def test_shares_changed_on_their_way(self) -> None:
        cohort = MaskingCohort(("a", "b", "c"), answer)
        asked = KeysRequest("x", 2, cohort.identities)
        keys = {name: member.answer(asked) for name, member in cohort.members.items()}
        sealed = {name: member.answer(SharesRequest("x", keys)).sealed for name, member in cohort.members.items()}
        changed = sealed["b"]["a"][:-2] + ("00" if sealed["b"]["a"][-2:] != "00" else "01")
        with refuses(MessageError, "'b'"):
            cohort.members["a"].answer(BeginRequest("x", {"b": changed, "c": sealed["c"]["a"]}))
        with pytest.raises(MessageError):
            cohort.members["a"].answer(BeginRequest("x", {"c": sealed["c"]["a"], "b": changed}))
        with pytest.raises(MessageError):  # it read the share of c, and masks nothing for c alone
            cohort.members["a"].masked("x", 0, "request", np.zeros(3))


def test_a_restarted_site_goes_on_with_its_secrets() -> None:
    names = ("a", "b", "c")
    cohort = MaskingCohort(names, answer)
    sums = MaskedSums("run", cohort.identities)
    plan = plan_of(widths=(5,))
    for seed in range(3):
        if seed:
            state = cohort.kept["b"]
            cohort.members["b"] = Member("b", cohort.keys["b"], cohort.identities, state)
        request = EvaluateRequest(plan.recipe, plan.common_start(), seed, 0.3, True)
        _, members = sums.total(cohort, dict.fromkeys(names, request), lambda failure: None)
        assert members == names


def test_without_a_quorum_nothing_is_known() -> None:
    names = ("a", "b", "c", "d")
    cohort = MaskingCohort(names, answer, {"c": "masked", "d": "SurvivorsRequest"})
    left: list[Failure] = []
    with refuses(FederationError, "2 of 4", quorum(4)):
        MaskedSums("run", cohort.identities).total(cohort, dict.fromkeys(names, request_of()), left.append)
    assert {failure.client for failure in left} == {"c", "d"}


def test_every_reply_that_is_added_up_fits_its_template(tmp_path: Path) -> None:
    plan, cohort = plan_of(epochs=1), cohort_of(tmp_path)
    network = plan.common_start()
    requests = [
        EvaluateRequest(plan.recipe, network, plan.seed, 0.3, True),
        EvaluateRequest(plan.recipe, network, plan.seed, 0.3),
        OutputsRequest(plan.recipe, network, plan.seed, 0.3),
        FitRequest(plan.recipe, plan.train.training(1), 0.3, plan.seed, start=network),
    ]
    for request in requests:
        replies = cohort.ask(dict.fromkeys(cohort.clients, request))
        exchange = exchanges[type(request).__name__]
        vectors = [exchange.vector(request, reply)[0] for reply in replies.values()]
        assert {len(vector) for vector in vectors} == {exchange.vector_length(request)}
        back = exchange.unvector(request, vectors[0], 1)
        np.testing.assert_array_equal(to_vector(back, exchange.zeros(request)), vectors[0])


def test_scores_that_only_one_site_has_cannot_be_read_by_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum of its test errors and of nothing would be its own, whatever the masks."""
    plan, names, unmasked = plan_of(), ("a", "b", "c"), list[np.ndarray]()
    request = ScoreRequest(plan.recipe, plan.common_start(), 0, 0.3)
    template = exchanges["ScoreRequest"].zeros(request)
    own = ScoreSums(41, 7, dict.fromkeys(sorted(template.test.sums), 3.5))

    def kept(vector: np.ndarray, *rest: Any) -> Any:
        unmasked.append(vector)
        return from_vector(vector, *rest)

    def reply(name: str, _: Any) -> ScoreReply:
        return ScoreReply(own if name == "a" else None, own)

    monkeypatch.setattr("fedprognos.federation.exchanges.from_vector", kept)
    cohort = MaskingCohort(names, reply)
    found, members = MaskedSums("run", cohort.identities).total(cohort, dict.fromkeys(names, request), lambda f: None)
    assert members == names
    assert found.test is None
    assert found.validation.n == 3 * 41
    hidden = unreadable(reply("b", request), template)
    alone = to_vector(reply("a", request), template)
    assert hidden.sum() > 10
    assert np.median(np.abs(unmasked[0] - alone)[hidden]) > 1e12
    assert not unreadable(reply("a", request), template).any()


def test_scores_that_one_site_lacks_are_not_known() -> None:
    plan = plan_of()
    template = exchanges["ScoreRequest"].zeros(ScoreRequest(plan.recipe, plan.common_start(), 0, 0.3))
    names = sorted(template.test.sums)
    one = ScoreReply(ScoreSums(3, 1, dict.fromkeys(names, 0.0)), None)
    other = ScoreReply(ScoreSums(2, 1, dict.fromkeys(names[1:], 0.0)), None)
    total = from_vector(to_vector(one, template) + to_vector(other, template), template)
    assert total.validation is None and total.test.n == 5
    assert set(total.test.sums) == set(names[1:])
