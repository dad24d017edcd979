"""Whole strategies with masked sums: the bytes of open ones, and nothing of one site alone on the wire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cohorts import HereCohort, cohort_of, plan_of
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedprognos.errors import ConfigError, FederationError
from fedprognos.features.recipe_options import RecipeOptions
from fedprognos.federation.codec import ledger_line
from fedprognos.federation.exchanges import Failure, OnEpoch
from fedprognos.federation.exchanges.evaluate import EvaluateRequest, evaluate
from fedprognos.federation.exchanges.fit import FitReply
from fedprognos.federation.exchanges.personal import personal_heads
from fedprognos.federation.exchanges.survey import recipe_from_survey
from fedprognos.federation.heads import judged_rounds
from fedprognos.federation.masked_sums import MaskedSums
from fedprognos.federation.strategies import strategies
from fedprognos.federation.totals import OpenSums, masked_total
from fedprognos.privacy.mask_messages import KeysReply, KeysRequest, SharesReply, SumRequest
from fedprognos.privacy.masked_member import LEAST_MEMBERS, Member
from fedprognos.privacy.masks import keys_text
from refusals import refuses

OPEN = {"FitReply", "PersonalReply", "OutlineReply"}
"""Replies of one site that may be seen: bodies for methods that need them, conditions, and that a head was made."""
PROTOCOL = {"KeysReply", "SharesReply", "BeginReply", "MaskedReply", "SurvivorsReply", "UnmaskReply"}
RECIPE = RecipeOptions(window=8, cap=40, stride=2, conditions={"altitude": 0})


def masked_cohort(folder: Path, names: str = "abc") -> HereCohort:
    cohort = cohort_of(folder, names)
    keys = {name: Ed25519PrivateKey.generate() for name in names}
    identities = {name: key.public_key().public_bytes_raw().hex() for name, key in keys.items()}
    for name, client in cohort.members.items():
        client.member = Member(name, keys[name], identities)
    cohort.sums = MaskedSums("run", identities)
    return cohort


def open_cohort(folder: Path, names: str = "abc") -> HereCohort:
    cohort = cohort_of(folder, names)
    cohort.sums = OpenSums()
    return cohort


@pytest.mark.parametrize("method", ["fedavg", "fedma", "concat", "absorb", "single", "reservoir"])
def test_masked_runs_have_the_bytes_of_open_sums_and_show_no_sum_of_one_site(tmp_path: Path, method: str) -> None:
    plan = plan_of(epochs=1, reservoir={"units": 12}, absorb={"width": 1.0})
    found = []
    masked = masked_cohort(tmp_path / "masked")
    for cohort in (masked, open_cohort(tmp_path / "open")):
        *_, last = judged_rounds(strategies[method], cohort, plan)
        (heads,) = last.judged.values()
        found.append(dict(heads))
    for head, judged in found[0].items():
        assert judged.validation_rmse == found[1][head].validation_rmse
        for name, tensor in judged.network.weights.items():
            assert tensor.tobytes() == found[1][head].network.weights[name].tobytes()
    kinds = {ledger_line(data).kind for _, data in masked.sent}
    assert kinds <= PROTOCOL | OPEN
    assert "FitReply" not in kinds or method != "fedavg"  # averages need nobody's weights alone


def test_masked_and_plain_totals_lead_to_the_same_model(tmp_path: Path) -> None:
    plan = plan_of(epochs=2)
    weights, agreed = [], dict(vars(plan))
    for cohort in (masked_cohort(tmp_path / "masked"), cohort_of(tmp_path / "plain")):
        *_, last = judged_rounds(strategies["fedavg"], cohort, plan)
        assert vars(plan) == agreed  # no call fills in what another one reads
        (heads,) = last.judged.values()
        weights.append(heads["exact"].network.weights)
    for name, tensor in weights[0].items():
        np.testing.assert_allclose(tensor, weights[1][name], rtol=1e-4, atol=1e-5)


def test_recipes_from_masked_moments_equal_those_from_surveys(tmp_path: Path) -> None:
    left: list[Failure] = []
    masked = recipe_from_survey(masked_cohort(tmp_path / "masked"), RECIPE, left.append)
    plain = recipe_from_survey(cohort_of(tmp_path / "plain"), RECIPE, left.append)
    assert not left
    for field in ("mean", "std", "label_mean", "label_std"):
        np.testing.assert_allclose(getattr(masked, field), getattr(plain, field), rtol=1e-9)
    assert masked.condition_keys == plain.condition_keys
    opened = recipe_from_survey(open_cohort(tmp_path / "open"), RECIPE, left.append)
    assert opened.to_json() == masked.to_json()


def test_a_site_with_masks_answers_no_sum_alone(tmp_path: Path) -> None:
    plan, cohort = plan_of(), masked_cohort(tmp_path)
    request = EvaluateRequest(plan.recipe, plan.common_start(), plan.seed, 0.3, True)
    replies = cohort.ask(dict.fromkeys(cohort.clients, request))
    assert all(isinstance(reply, Failure) and reply.code == "message" for reply in replies.values())


def test_sums_of_two_and_robust_averages_are_refused(tmp_path: Path) -> None:
    plan, cohort = plan_of(fedavg={"average": "median"}), masked_cohort(tmp_path)
    with refuses(ConfigError, "median", "federation.mode"):
        list(strategies["fedavg"].run(cohort, plan))
    request = EvaluateRequest(plan.recipe, plan.common_start(), plan.seed, 0.3, True)
    with refuses(FederationError, LEAST_MEMBERS, 2):
        masked_total(cohort, dict.fromkeys("ab", request), None, plan.left_out)
    with refuses(ValueError, "screen", "weight_cap"):
        plan_of(mode="masked", screen=0.1)


def test_impossible_totals_end_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, cohort = plan_of(), masked_cohort(tmp_path)
    honest = cohort.members["b"].answer

    def hostile(request: object, on_epoch: object = None) -> object:
        reply = honest(request, on_epoch)  # type: ignore[arg-type]
        if isinstance(request, EvaluateRequest):
            object.__setattr__(reply.fit, "hh", -1000 * reply.fit.hh)  # type: ignore[union-attr]
        return reply

    cohort.members["b"].answer = hostile  # type: ignore[method-assign,assignment]
    monkeypatch.setattr(cohort.members["b"], "_check_part", lambda exchange, request, reply: None)
    with refuses(FederationError, 3, "federation.mode"):
        evaluate(cohort, plan, cohort.clients, plan.common_start())


def test_a_total_of_more_points_than_all_members_declared_ends_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cohort, plan = masked_cohort(tmp_path), plan_of(epochs=1)
    recipe_from_survey(cohort, RECIPE, lambda failure: None)
    declared = sum(client.fleet.rows for client in cohort.members.values())
    assert cohort.declared == dict.fromkeys("abc", declared)
    client = cohort.members["c"]
    honest = client.answer

    def greedy(request: object, on_epoch: OnEpoch | None = None) -> object:
        reply = honest(request, on_epoch)
        return replace(reply, windows=declared) if isinstance(reply, FitReply) else reply

    monkeypatch.setattr(client, "answer", greedy)
    with refuses(FederationError, declared, "checked"):
        list(judged_rounds(strategies["fedavg"], cohort, plan))


def test_a_part_that_no_honest_site_sends_does_not_leave_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cohort, plan = masked_cohort(tmp_path, "abcd"), plan_of(epochs=1, min_clients=3)
    client = cohort.members["d"]
    honest = client.answer

    def broken(request: object, on_epoch: OnEpoch | None = None) -> object:
        reply = honest(request, on_epoch)
        if not isinstance(reply, FitReply):
            return reply
        return replace(reply, weights={name: 0 * tensor + 1e6 for name, tensor in reply.weights.items()})

    monkeypatch.setattr(client, "answer", broken)
    left_out: list[str] = []
    plan = replace(plan, left_out=lambda failure: left_out.append(failure.client))
    list(judged_rounds(strategies["fedavg"], cohort, plan))
    assert set(left_out) == {"d"}


SPOILT_KEYS: dict[str, Callable[[KeysReply], KeysReply]] = {
    "no hexadecimal": lambda keys: replace(keys, sealing="x" * 64),
    "no point": lambda keys: replace(keys, masking=("00" * 32, *keys.masking[1:])),
    "too few": lambda keys: replace(keys, masking=keys.masking[:-1]),
}
SPOILT_SHARES: dict[str, Callable[[SharesReply], SharesReply]] = {
    "no hexadecimal": lambda reply: SharesReply(dict.fromkeys(reply.sealed, "x")),
    "for one only": lambda reply: SharesReply(dict([*reply.sealed.items()][:1])),
    "none": lambda reply: SharesReply({}),
}


@pytest.mark.parametrize("how", [*SPOILT_KEYS.values(), *SPOILT_SHARES.values()], ids=[*SPOILT_KEYS, *SPOILT_SHARES])
def test_keys_and_shares_that_others_cannot_use_cost_their_sender_its_place_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Callable[[Any], Any]
) -> None:
    """Every other member fails over them: before, the run ended, and the honest ones were named."""
    cohort, plan, left_out = masked_cohort(tmp_path, "abcd"), plan_of(epochs=1, min_clients=3), list[str]()
    member = cohort.members["d"].member
    assert member is not None
    honest, kind = member.answer, KeysReply if how in SPOILT_KEYS.values() else SharesReply

    def hostile(request: SumRequest) -> object:
        reply = honest(request)
        if not isinstance(reply, kind):
            return reply
        spoilt = how(reply)
        if isinstance(spoilt, KeysReply) and isinstance(request, KeysRequest):  # it signs whatever it sends
            text = keys_text(request.batch, request.identities, spoilt.sealing, spoilt.masking)
            return replace(spoilt, signature=member.identity.sign(text).hex())
        return spoilt

    monkeypatch.setattr(member, "answer", hostile)
    plan = replace(plan, left_out=lambda failure: left_out.append(failure.client))
    request = EvaluateRequest(plan.recipe, plan.common_start(), plan.seed, 0.3, True)
    assert masked_total(cohort, dict.fromkeys(cohort.clients, request), 3, plan.left_out).fit is not None
    assert set(left_out) == {"d"}


def test_personal_heads_stay_near_the_common_one(tmp_path: Path) -> None:
    plan, cohort = plan_of(heads=("exact", "personal")), masked_cohort(tmp_path)
    made = personal_heads(cohort, plan, plan.common_start(), cohort.clients)
    assert sorted(made) == ["a", "b", "c"]
    assert {ledger_line(data).kind for _, data in cohort.sent} == {"PersonalReply"}
