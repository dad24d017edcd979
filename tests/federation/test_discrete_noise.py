"""Noise of whole numbers: drawn exactly, exact under masks, and enough of it whoever drops out."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from pathlib import Path

import numpy as np
import pytest
from cohorts import plan_of
from scipy import stats
from test_masked_runs import masked_cohort, open_cohort

from fedprognos.errors import FederationError
from fedprognos.federation.exchanges.evaluate import evaluate
from fedprognos.federation.strategies import strategies
from fedprognos.networks import Network
from fedprognos.privacy.mask_messages import quorum
from fedprognos.privacy.noise_mechanisms import (
    add_discrete_noise,
    discrete_gaussian,
    discrete_laplace,
    mechanisms,
    secret_below,
    true_with_exp,
)
from fedprognos.privacy.noised_statistics import add_noise, clipped_sums
from fedprognos.privacy.sum_vectors import from_fixed, to_fixed
from refusals import refuses

EXACT = {"methods": ("reservoir",), "heads": ("exact",), "reservoir": {"units": 6}}


def seeded(seed: int) -> Callable[[int], int]:
    return random.Random(seed).randrange  # noqa: S311 - repeatable


def test_the_coin_falls_with_the_exponential_of_a_fraction() -> None:
    below = seeded(1)
    for above, under in ((1, 3), (1, 1), (7, 3)):
        share = np.mean([true_with_exp(above, under, below) for _ in range(20_000)])
        assert share == pytest.approx(np.exp(-above / under), abs=0.015)


@pytest.mark.parametrize("variance", [1, 9, 400])
def test_the_discrete_gaussian_has_its_probabilities_and_moments(variance: int) -> None:
    below = seeded(2)
    drawn = np.array([discrete_gaussian(variance, below) for _ in range(20_000)])
    reach = ceil(12 * variance**0.5)
    k = np.arange(-reach, reach + 1)
    p = np.exp(-(k**2) / (2 * variance))
    p /= p.sum()
    expected = 20_000 * p
    often = expected > 20
    counted = np.array([(drawn == one).sum() for one in k[often]])
    rest = 20_000 - counted.sum()
    observed, wanted = np.append(counted, rest), np.append(expected[often], 20_000 - expected[often].sum())
    assert stats.chisquare(observed, wanted).pvalue > 1e-3
    assert drawn.mean() == pytest.approx(0.0, abs=4 * np.sqrt(variance / 20_000))
    assert drawn.var() == pytest.approx((p * k**2).sum(), rel=0.05)


def test_the_discrete_laplace_has_its_probabilities() -> None:
    below = seeded(3)
    drawn = np.array([discrete_laplace(5, below) for _ in range(20_000)])
    scale = (1 - np.exp(-1 / 5)) / (1 + np.exp(-1 / 5))
    for k in range(-3, 4):
        assert (drawn == k).mean() == pytest.approx(scale * np.exp(-abs(k) / 5), abs=0.01)


def test_secret_numbers_are_uniform() -> None:
    below = secret_below()
    counted = np.bincount([below(7) for _ in range(14_000)], minlength=7)
    assert len(counted) == 7 and stats.chisquare(counted).pvalue > 1e-5
    assert {below(1) for _ in range(10)} == {0}
    assert max(below(2**100) for _ in range(20)) > 2**90


def test_noised_sums_lie_on_a_grid_that_fixed_point_holds_exactly() -> None:
    values = np.random.default_rng(0).normal(size=300) * 1000
    noised = add_discrete_noise(values, 2.5, 0.7, None)
    np.testing.assert_array_equal(from_fixed(to_fixed(noised)), noised)
    steps = noised * 2.0**20
    np.testing.assert_array_equal(steps, np.rint(steps))
    noise = noised - values
    assert noise.std() == pytest.approx(0.7 * 2.5, rel=0.15)


def test_a_masked_private_total_is_the_plain_total_with_the_sites_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With known noise: the masked run, the open one, and plain sums with that noise, to the last bit."""
    plan = plan_of(validation=0.0, privacy={"epsilon": 5.0}, **EXACT)
    discrete, drawn = mechanisms["discrete"], dict[bytes, int]()

    def known(values: np.ndarray, bound: float, noise: float, seed: int | None) -> np.ndarray:
        key = drawn.setdefault(values.tobytes(), len(drawn))
        return add_discrete_noise(values, bound, noise, key if seed is None else seed)

    monkeypatch.setitem(mechanisms._things, "discrete", replace(discrete, apply=known))
    masked, opened = masked_cohort(tmp_path / "masked"), open_cohort(tmp_path / "open")
    (round_,) = strategies["reservoir"].run(masked, plan)
    (network,) = round_.models.values()
    found = [evaluate(cohort, plan, cohort.clients, network).sums.fit for cohort in (masked, opened)]
    assert found[0].hh.tobytes() == found[1].hh.tobytes() and found[0].hy.tobytes() == found[1].hy.tobytes()
    rule = plan.privacy(masked, network.spec, 3)
    assert rule.mechanism == "discrete" and rule.share == pytest.approx(1 / 3)
    plain, noised = [], []
    for client in masked.members.values():
        points = client.head_parts(plan.recipe, plan.seed, 0.0)[0]
        sums = clipped_sums(network, points, plan.recipe, rule)
        plain.append(sums)
        noised.append(add_noise(sums, rule))
    np.testing.assert_array_equal(found[0].hh, sum(one.hh for one in noised))
    np.testing.assert_array_equal(found[0].hy, sum(one.hy for one in noised))
    assert found[0].n == sum(one.n for one in plain)
    assert not np.isclose(found[0].hh, sum(one.hh for one in plain)).any()


def test_whoever_drops_out_at_least_the_promised_noise_is_left(tmp_path: Path) -> None:
    """Five sites, of which four are enough: their parts have the variance that was promised, five have more."""
    plan = plan_of(validation=0.0, privacy={"epsilon": 5.0}, min_clients=4, **EXACT)
    spec = Network.seeded(plan.spec, 0).spec
    cohort = open_cohort(tmp_path, "abcde")
    rule = plan.privacy(cohort, spec, 5)
    assert rule.share == 1 / quorum(5) == 1 / 4
    zeros = np.zeros(4000)
    for sites in (4, 5):
        summed = sum(rule.noised(zeros, 2.0, seed=k) for k in range(sites))
        assert summed.std() >= 0.97 * rule.noise * 2.0
        assert summed.std() == pytest.approx(rule.noise * 2.0 * np.sqrt(sites / 4), rel=0.04)


def test_a_private_sum_of_fewer_than_the_quorum_is_not_made(tmp_path: Path) -> None:
    plan = plan_of(validation=0.0, privacy={"epsilon": 5.0}, min_clients=1, **EXACT)
    for cohort in (open_cohort(tmp_path / "open", "abcde"), masked_cohort(tmp_path / "masked", "abcde")):
        for name in "ab":

            def absent(*_: object) -> object:
                raise FederationError("away")

            cohort.members[name].answer = absent  # type: ignore[method-assign,assignment]
        (round_,) = strategies["reservoir"].run(cohort, plan)
        (network,) = round_.models.values()
        with refuses(FederationError, "3 of 5"):
            evaluate(cohort, plan, cohort.clients, network)
