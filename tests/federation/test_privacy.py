"""Differential privacy: noise as the accountant counts it, rows clipped, budgets that cover a whole run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cohorts import cohort_of, plan_of, small_fleets
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedprognos.errors import ConfigError
from fedprognos.experiment import config
from fedprognos.features import build_windows
from fedprognos.federation.exchanges.evaluate import EvaluateReply, EvaluateRequest
from fedprognos.federation.heads import Judged, with_heads
from fedprognos.federation.intervals import Intervals, Uncalibrated
from fedprognos.federation.strategies import strategies
from fedprognos.networks import HeadStatistics, Network
from fedprognos.networks.cells import Cell, cells
from fedprognos.privacy.differential_privacy import Privacy, PrivacyOptions
from fedprognos.privacy.noise_mechanisms import (
    concentrated_epsilon,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_noise,
    mechanisms,
    noise_for,
)
from fedprognos.privacy.noised_statistics import ada_ssp, add_noise, clipped_rows, clipped_sums, row_weights
from refusals import refuses

EXACT = {"methods": ("reservoir",), "heads": ("exact",), "reservoir": {"units": 6}}


@settings(max_examples=40, deadline=None)
@given(epsilon=st.floats(0.05, 50.0), delta=st.floats(1e-9, 1e-3))
def test_the_analytic_mechanism_spends_exactly_its_delta(epsilon: float, delta: float) -> None:
    noise = gaussian_noise(epsilon, delta)
    assert gaussian_delta(epsilon, noise) == pytest.approx(delta, rel=1e-4)
    if epsilon < 1:  # where the classic bound holds, the analytic one needs less
        assert noise < np.sqrt(2 * np.log(1.25 / delta)) / epsilon


@pytest.mark.parametrize("name", mechanisms)
@pytest.mark.parametrize(("epsilon", "releases"), [(1.0, 1), (1.0, 7), (10.0, 300), (100.0, 3)])
def test_every_mechanism_spends_what_was_planned_and_no_more(name: str, epsilon: float, releases: int) -> None:
    mechanism = mechanisms[name]
    noise = mechanism.noise(epsilon, 1e-5, releases)
    spent = mechanism.account(noise, releases, 1e-5)
    assert spent == pytest.approx(epsilon, rel=1e-4) and spent <= epsilon * (1 + 1e-9)


def test_the_accountant_agrees_with_known_values() -> None:
    # Balle & Wang (2018): sigma = 1 has delta = Phi(1/2 - eps) - e^eps Phi(-1/2 - eps).
    assert gaussian_delta(1.0, 1.0) == pytest.approx(0.12693674, abs=1e-6)
    assert gaussian_epsilon(1.0, 1, 0.12693674) == pytest.approx(1.0, abs=1e-3)


def test_the_accountants_agree_with_dp_accountings_own_examples() -> None:
    """Examples of dp-accounting 0.6's own tests, with their values, and its accountants of compositions."""
    import dp_accounting as dp
    from dp_accounting.pld import PLDAccountant

    # pld/accountant_test.py, test_get_smallest_gaussian_noise: sensitivity 1 and one query; 6 and 25 queries
    assert noise_for(1.0, 0.78760074, 1) == pytest.approx(1 / 3, abs=1e-7)
    assert 6 * noise_for(1.0, 0.78760074, 25) == pytest.approx(10.0, abs=1e-6)
    # gaussian_mechanism_test.py: test_get_epsilon_gaussian_pld
    for sigma, delta in [(0.5, 1e-1), (1.0, 1e-2), (3.0, 1e-3)]:
        expected = PLDAccountant().compose(dp.GaussianDpEvent(sigma)).get_epsilon(delta)
        assert gaussian_epsilon(sigma, 1, delta) == pytest.approx(expected, rel=1e-6)
    # Gaussian releases add up as one of less noise; rdp_privacy_accountant_test.py: test_zcdp_matches_gaussian
    composed = PLDAccountant().compose(dp.SelfComposedDpEvent(dp.GaussianDpEvent(30.0), 64))
    assert gaussian_epsilon(30.0, 64, 1e-5) == pytest.approx(composed.get_epsilon(1e-5), rel=1e-3)
    renyi = dp.rdp.RdpAccountant().compose(dp.SelfComposedDpEvent(dp.GaussianDpEvent(30.0), 64))
    assert concentrated_epsilon(30.0, 64, 1e-5) == pytest.approx(renyi.get_epsilon(1e-5), rel=1e-9)
    assert concentrated_epsilon(30.0, 64, 1e-5) > gaussian_epsilon(30.0, 64, 1e-5)


def privacy(per: str = "unit", noise: float = 1.0, clip: float = 1.5) -> Privacy:
    return Privacy(noise, per, clip, 1.2)  # type: ignore[arg-type]


@pytest.mark.parametrize("per", ["unit", "row"])
def test_one_unit_or_row_changes_the_sums_by_no_more_than_their_sensitivity(per: str) -> None:
    plan = plan_of(**EXACT)
    (round_,) = strategies["reservoir"].run(_Names(), plan)  # type: ignore[arg-type]
    (network,) = round_.models.values()
    rule = privacy(per)
    windows = build_windows(plan.recipe, small_fleets("c")["c"])
    whole = clipped_sums(network, windows, plan.recipe, rule)
    for k in range(len(windows.unit_ids) if per == "unit" else 12):
        kept = windows.unit != k if per == "unit" else np.arange(len(windows)) != k
        less = clipped_sums(network, windows.select(np.flatnonzero(kept)), plan.recipe, rule)
        c, y = rule.clip, rule.label_clip
        parts = (
            np.linalg.norm(np.triu(whole.hh - less.hh)) / c**2,
            np.linalg.norm(whole.hy - less.hy) / (c * y),
            abs(whole.yy - less.yy) / y**2,
        )
        assert np.linalg.norm(parts) <= np.sqrt(3) + 1e-9
        assert max(parts) <= 1 + 1e-9


class _Names:
    clients = ("a", "b", "c")


def test_rows_are_clipped_and_units_weigh_one() -> None:
    plan = plan_of()
    windows = build_windows(plan.recipe, small_fleets("c")["c"])
    weights = row_weights(windows, privacy())
    np.testing.assert_allclose(np.bincount(windows.unit, weights), 1.0)
    rows = clipped_rows(np.random.default_rng(0).normal(size=(50, 4)) * 3, 1.5)
    assert np.linalg.norm(rows, axis=1).max() <= 1.5 + 1e-12


def test_noise_has_the_deviation_that_was_asked_for_and_is_never_the_same() -> None:
    zero, rule = HeadStatistics(10, 0.0, np.zeros((60, 60)), np.zeros(60)), privacy(noise=2.0)
    one, other = add_noise(zero, rule), add_noise(zero, rule)
    upper = one.hh[np.triu_indices(60)]
    assert upper.std() == pytest.approx(2.0 * np.sqrt(3) * rule.clip**2, rel=0.1)
    np.testing.assert_array_equal(one.hh, one.hh.T)
    assert not np.isclose(one.hh, other.hh).any()


def test_heads_get_better_as_epsilon_grows(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    slope = rng.normal(size=4)
    h = clipped_rows(rng.normal(size=(4000, 4)), 2.0)
    y = np.clip(h[:, :-1] @ slope + 0.1 * rng.normal(size=4000), -1.2, 1.2)
    sums = HeadStatistics(4000, float(y @ y), h.T @ h, h.T @ y)
    best = np.linalg.lstsq(h, y, rcond=None)[0]
    errors = []
    for epsilon in (0.1, 1.0, 10.0):
        rule = Privacy(gaussian_noise(epsilon, 1e-5), "row", 2.0, 1.2)
        drawn = [ada_ssp(add_noise(sums, rule, seed), rule, 1) for seed in range(20)]
        errors.append(np.mean([np.linalg.norm(head - best) for head in drawn]))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.5


def test_a_private_run_sends_noised_statistics_only(tmp_path: Path) -> None:
    plan = plan_of(validation=0.0, privacy={"epsilon": 5.0}, **EXACT)
    cohort = cohort_of(tmp_path)
    (round_,) = strategies["reservoir"].run(cohort, plan)
    (network,) = round_.models.values()
    heads = with_heads(cohort, plan, cohort.clients, network)
    assert list(heads) == ["exact"] and heads["exact"].validation_rmse is None
    asked = [request for _, request in cohort.asked if isinstance(request, EvaluateRequest)]
    assert asked and all(request.privacy is not None for request in asked)
    again = cohort.ask({"a": asked[0]})["a"]
    first = cohort.ask({"a": asked[0]})["a"]
    assert isinstance(again, EvaluateReply) and isinstance(first, EvaluateReply)
    assert again.fit is not None and first.fit is not None
    assert not np.isclose(again.fit.hh, first.fit.hh).any()  # noise is drawn anew


def test_what_is_not_covered_is_refused() -> None:
    with refuses(ValueError, "'absorb'", "reservoir", "fedavg"):
        plan_of(methods=("absorb",), heads=("exact",), privacy={"epsilon": 1.0})
    with refuses(ValueError, "mean", "personal"):
        plan_of(methods=("reservoir",), heads=("exact", "personal"), privacy={"epsilon": 1.0})
    with refuses(ValueError, "screen", "weight_cap"):
        plan_of(**EXACT, privacy={"epsilon": 1.0}, screen=0.1)
    with refuses(ValueError, "participation = 1"):
        plan_of(**EXACT, privacy={"epsilon": 1.0}, participation=0.5)
    with refuses(ValueError, "privacy.mechanism", "laplace"):
        plan_of(**EXACT, privacy={"epsilon": 1.0, "mechanism": "laplace"})
    for change, key in (
        ({"train": {"validation_fraction": 0.2}}, "validation_fraction"),
        ({"recipe": {"history": "life"}, "federation": {"privacy": {"per": "row"}}}, "federation.privacy.per"),
    ):
        with refuses(ConfigError, key):
            experiment(change)
    with (
        cells.including([Cell.from_torch("rnn", nn.RNN)]),
        refuses(ConfigError, "model.cell", "rnn"),
    ):
        experiment({"model": {"cell": "rnn"}, "federation": {"methods": ["fedavg"]}})


def experiment(changes: dict[str, object]) -> config.Experiment:
    train = {"train": {"validation_fraction": 0}}
    federation = {"federation": {"methods": ["reservoir"], "heads": ["exact"], "privacy": {"epsilon": 5}}}
    raw = config.merged(config.merged("demo", {**train, **federation}), changes)
    return config.load(raw)[1]


def test_every_release_counts_methods_seeds_rounds_and_scenarios() -> None:
    fedavg = {"federation": {"methods": ["fedavg"], "fedavg": {"rounds": 3, "epochs": 4}}}
    both = {"federation": {**fedavg["federation"], "methods": ["fedavg", "reservoir"]}}
    counted = [
        experiment({"evaluation": {"seeds": 1}}).releases,
        experiment({"evaluation": {"seeds": 3}}).releases,
        experiment({"evaluation": {"seeds": 1}, **fedavg}).releases,  # steps, and an exact head a round
        experiment({"evaluation": {"seeds": 2}, **both}).releases,
    ]
    assert counted == [1, 3, 3 * (4 + 1), 2 * (15 + 1)]
    for name, mechanism in mechanisms.items():
        more = [mechanism.noise(5.0, 1e-5, releases) for releases in counted]
        assert more == sorted(more) and len(set(more)) == 4, name


def test_intervals_whose_residuals_would_be_a_release_are_not_made(tmp_path: Path) -> None:
    plan, cohort = plan_of(validation=0.0, privacy={"epsilon": 50.0}, **EXACT), cohort_of(tmp_path)
    (round_,) = strategies["reservoir"].run(cohort, plan)
    (network,) = round_.models.values()
    made = Intervals(cohort, plan, strategies["reservoir"], cohort.clients, 1).calibrate(Judged(network, None))
    assert isinstance(made, Uncalibrated) and "privacy" in made.reason and not cohort.asked


def test_more_releases_need_more_noise(tmp_path: Path) -> None:
    plan, cohort = plan_of(validation=0.0, privacy={"epsilon": 5.0}, **EXACT), cohort_of(tmp_path)
    spec = Network.seeded(plan.spec, 0).spec
    one, four = plan.privacy(cohort, spec, 3), replace(plan, releases=4).privacy(cohort, spec, 3)
    assert one is not None and four is not None and four.noise == pytest.approx(2 * one.noise)
    assert Privacy.for_statistics(PrivacyOptions(epsilon=5.0), plan.recipe, spec.features + 1, 4) == four
