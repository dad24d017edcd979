"""Robust averages and screening: what one hostile client of five can do, and that honest ones lose nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cohorts import cohort_of, plan_of
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprognos.features import SurveyTerms
from fedprognos.features.moments import Moments
from fedprognos.federation.averages import aggregators, average
from fedprognos.federation.exchanges import Failure, Reply, Request
from fedprognos.federation.exchanges.evaluate import EvaluateReply, Evaluation, evaluate
from fedprognos.federation.exchanges.fit import FitReply, train
from fedprognos.federation.exchanges.survey import SurveyReply, SurveyRequest
from fedprognos.federation.first_models import drop_harmful
from fedprognos.federation.heads import judged_rounds
from fedprognos.federation.strategies import strategies
from fedprognos.networks import HeadStatistics, Network
from fedprognos.networks.anatomy import anatomy_of
from fedprognos.privacy.screening import (
    HeadParts,
    capped_statistics,
    capped_surveys,
    doubted_surveys,
    harmless_statistics,
    skill_shares,
)

ROBUST = [name for name, one in aggregators.items() if one.robust]
ANATOMY = anatomy_of("lstm", 1, False)


def heads(rng: np.random.Generator, count: int, spread: float = 0.1) -> dict[str, dict[str, np.ndarray]]:
    centre = {"head.weight": rng.normal(size=(1, 30)), "head.bias": rng.normal(size=1)}
    return {
        f"c{k}": {name: array + spread * rng.normal(size=array.shape) for name, array in centre.items()}
        for k in range(count)
    }


@pytest.mark.parametrize("how", ROBUST)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), size=st.sampled_from([10.0, 1e6, -50.0, 1e30]))
def test_one_of_five_cannot_move_a_robust_average_beyond_the_honest_ones(how: str, seed: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    honest = heads(rng, 4)
    hostile = {name: np.full_like(array, size) for name, array in honest["c0"].items()}
    found = average({**honest, "z": hostile}, ANATOMY, how=how, sizes={**dict.fromkeys(honest, 10.0), "z": 10.0})
    clean = average(honest, ANATOMY, how="mean")
    apart = np.linalg.norm(found["head.weight"] - clean["head.weight"])
    widest = max(np.linalg.norm(one["head.weight"] - clean["head.weight"]) for one in honest.values())
    assert apart <= 2 * widest


@pytest.mark.parametrize("how", ROBUST)
def test_clients_that_agree_are_averaged_to_what_they_agree_on(how: str) -> None:
    one = heads(np.random.default_rng(0), 1)["c0"]
    found = average({f"c{k}": one for k in range(5)}, ANATOMY, how=how, sizes={f"c{k}": k + 1 for k in range(5)})
    for name, array in one.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-12)


@pytest.mark.parametrize("how", ROBUST)
def test_neurons_that_only_some_hold_are_averaged_over_their_holders(how: str) -> None:
    weights = {"head.weight": np.array([[2.0, 4.0]]), "head.bias": np.array([1.0])}
    places = {f"c{k}": {"recurrent.0": [0, 1 + k % 2]} for k in range(4)}
    clients, sizes = dict.fromkeys(places, weights), dict.fromkeys(places, 1.0)
    found = average(clients, ANATOMY, places, {"recurrent.0": 3}, how=how, sizes=sizes)
    np.testing.assert_allclose(found["head.bias"], [1.0])
    assert found["head.weight"][0, 0] == pytest.approx(2.0)
    assert np.isfinite(found["head.weight"]).all() and (np.abs(found["head.weight"]) <= 4.0).all()


def test_the_geometric_median_adds_up_to_less_distance_than_any_point_near_it() -> None:
    rng = np.random.default_rng(4)
    clients = heads(rng, 7, spread=1.0)
    found = average(clients, ANATOMY, how="geometric", sizes=dict.fromkeys(clients, 1.0))

    def distances(point: dict[str, np.ndarray]) -> float:
        return sum(np.sqrt(sum(np.square(c[n] - point[n]).sum() for n in point)) for c in clients.values())

    best = distances(found)
    for _ in range(20):
        near = {name: array + 0.02 * rng.normal(size=array.shape) for name, array in found.items()}
        assert distances(near) > best - 1e-6


def test_centred_clipping_and_norm_bounding_start_where_the_round_did() -> None:
    start = {"head.weight": np.zeros((1, 4)), "head.bias": np.zeros(1)}
    honest = {f"c{k}": {"head.weight": np.full((1, 4), 1.0), "head.bias": np.zeros(1)} for k in range(4)}
    far = {"head.weight": np.full((1, 4), -1000.0), "head.bias": np.zeros(1)}
    for how in ("clipped", "bounded"):
        sizes = dict.fromkeys([*honest, "z"], 1.0)
        found = average({**honest, "z": far}, ANATOMY, how=how, sizes=sizes, start=start)
        assert found["head.weight"].min() >= 0.6 - 1e-9  # 4/5 forward, at most 1/5 back


def rows(rng: np.random.Generator, slope: np.ndarray, count: int) -> HeadStatistics:
    h = np.concatenate([rng.normal(size=(count, len(slope))), np.ones((count, 1))], axis=1)
    y = h[:, :-1] @ slope + 0.5 * rng.normal(size=count)
    return HeadStatistics(count, float(y @ y), h.T @ h, h.T @ y)


def replies_of(seed: int, count: int = 5) -> dict[str, EvaluateReply]:
    rng = np.random.default_rng(seed)
    slope = rng.normal(size=6)
    return {f"c{k}": EvaluateReply(None, rows(rng, slope, 300), rows(rng, slope, 60)) for k in range(count)}


STATISTICS = {
    "hh": lambda s: replace(s, hh=1000 * s.hh),
    "everything": lambda s: HeadStatistics(1000 * s.n, 1000 * s.yy, 1000 * s.hh, -1000 * s.hy),
    "hy": lambda s: replace(s, hy=-s.hy),
    "hy-large": lambda s: replace(s, hy=100 * s.hy),
}


def parts_of(replies: dict[str, EvaluateReply]) -> dict[str, HeadParts]:
    return {name: (reply.fit, reply.held) for name, reply in replies.items() if reply.fit is not None}


@pytest.mark.parametrize("attack", STATISTICS)
def test_statistics_that_harm_the_others_are_left_out_and_named(attack: str) -> None:
    replies = replies_of(1)
    change = STATISTICS[attack]
    hostile = replies["c3"]
    replies["c3"] = EvaluateReply(None, change(hostile.fit), change(hostile.held))
    kept, harms = harmless_statistics(capped_statistics(parts_of(replies), 3.0), 1e-4, 0.05)
    assert [harm.client for harm in harms] == ["c3"] and harms[0].share > 0.05
    assert sorted(kept) == ["c0", "c1", "c2", "c4"]
    assert f"{100 * harms[0].share:.0f} %" in harms[0].in_words("its statistics")


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 8))
def test_honest_statistics_are_kept_as_they_are(seed: int, count: int) -> None:
    replies = replies_of(seed, count)
    kept, harms = harmless_statistics(capped_statistics(parts_of(replies), 3.0), 1e-4, 0.05)
    assert not harms
    assert all(kept[name][0] is reply.fit and kept[name][1] is reply.held for name, reply in replies.items())


def test_a_client_that_claims_to_be_large_counts_no_more_than_the_cap() -> None:
    replies = replies_of(2)
    rng = np.random.default_rng(9)
    large = rows(rng, rng.normal(size=6), 300)
    claimed = HeadStatistics(10**9, large.yy * 1e6, large.hh * 1e6, large.hy * 1e6)
    capped = capped_statistics({**parts_of(replies), "c2": (claimed, None)}, 2.0)
    assert capped["c2"][0].n == 600


def test_how_much_clients_count_is_passed_on_and_the_plan_stays_as_it_is(tmp_path: Path) -> None:
    """A plan that remembered it would change what the next call asks."""
    plan = plan_of(weight_cap=1.0, epochs=1)
    before, cohort, network = dict(vars(plan)), cohort_of(tmp_path), plan.common_start()
    evaluation = evaluate(cohort, plan, cohort.clients, network)
    assert min(evaluation.shares.values()) < 1 and max(evaluation.shares.values()) == 1
    assert evaluate(cohort, plan, cohort.clients, network, statistics=False).shares == {}
    assert vars(plan) == before
    assert Evaluation(evaluation.sums, {"a": 0.0, "b": 0.4}).harmless("abc") == ["b", "c"]


def test_moments_far_from_the_others_are_not_believed(tmp_path: Path) -> None:
    cohort = cohort_of(tmp_path, "abcde")
    asked = dict.fromkeys(cohort.clients, SurveyRequest(SurveyTerms(conditions={"altitude": 0}, cap=40)))
    surveys = {n: r.survey for n, r in cohort.ask(asked).items() if isinstance(r, SurveyReply)}
    assert sorted(capped_surveys(surveys, 3.0)) == list("abcde") and not doubted_surveys(surveys)
    labels = surveys["b"].labels
    wide = replace(surveys["b"], labels=Moments(labels.n, labels.mean, labels.m2 * 1e24))
    assert doubted_surveys({**surveys, "b": wide}) == {"b": "labels"}


def test_bodies_whose_predictions_harm_the_others_are_found(tmp_path: Path) -> None:
    plan, cohort = plan_of(epochs=6, widths=(4,)), cohort_of(tmp_path, "abcde")
    left: list[Failure] = []
    plan = replace(plan, left_out=left.append, federation=plan.federation.model_copy(update={"screen": 0.5}))
    models = train(cohort, plan, dict.fromkeys(cohort.clients), epochs=None, round_=1)
    bad = {name: 10 * array for name, array in models.networks["d"].weights.items()}
    models.networks["d"] = Network(models.networks["d"].spec, bad)  # type: ignore[index]
    kept = drop_harmful(cohort, plan, models)
    assert sorted(kept.networks) == list("abce")
    assert [(f.client, f.code) for f in left] == [("d", "harmful")]


@pytest.mark.parametrize("method", ["fedavg", "fedma", "concat", "absorb"])
def test_every_strategy_goes_on_without_a_hostile_client(tmp_path: Path, method: str) -> None:
    def change(client: str, request: Request, reply: Reply) -> Reply | Failure:
        if client == "c" and isinstance(reply, FitReply):
            return replace(reply, weights={n: np.ones_like(w) for n, w in reply.weights.items()}, windows=10**9)
        if client == "c" and isinstance(reply, EvaluateReply) and reply.fit is not None:
            return replace(reply, fit=replace(reply.fit, hy=-50 * reply.fit.hy))
        return reply

    left: list[Failure] = []
    options = {
        "screen": 0.1,
        "weight_cap": 2.0,
        "min_clients": 4,
        "fedavg": {"average": "krum"},
        "fedma": {"average": "median"},
    }
    plan = plan_of(left.append, epochs=2, **options)
    (*_, last) = judged_rounds(strategies[method], cohort_of(tmp_path, "abcde", change=change), plan)
    assert "c" in {f.client for f in left}
    assert last.validation_rmse is not None and last.validation_rmse < 30


def test_a_body_far_worse_than_most_is_left_out_though_it_hardly_harms_the_mean(tmp_path: Path) -> None:
    plan, cohort = plan_of(epochs=6, widths=(4,)), cohort_of(tmp_path, "abcde")
    left: list[Failure] = []
    plan = replace(plan, left_out=left.append, federation=plan.federation.model_copy(update={"screen": 10.0}))
    models = train(cohort, plan, dict.fromkeys(cohort.clients), epochs=None, round_=1)
    assert sorted(drop_harmful(cohort, plan, models).networks) == list("abcde") and not left
    flipped = {name: -array for name, array in models.networks["b"].weights.items()}
    models.networks["b"] = Network(models.networks["b"].spec, flipped)  # type: ignore[index]
    assert sorted(drop_harmful(cohort, plan, models).networks) == list("acde")
    assert [(f.client, f.code) for f in left] == [("b", "harmful")]


def test_who_says_that_all_its_labels_are_zero_judges_nobody() -> None:
    honest = HeadStatistics(10, 10.0, np.diag([10.0, 10.0]), np.array([8.0, 0.0]))
    zeros = HeadStatistics(10, 0.0, np.diag([0.0, 10.0]), np.zeros(2))
    models = {"a": np.array([0.8, 0.0]), "b": np.array([0.8, 0.0]), "z": np.array([0.0, 0.0])}
    shares = skill_shares(models, {"a": honest, "b": honest, "z": zeros})
    assert (shares["a"], shares["z"]) == (1.0, 0.0)
