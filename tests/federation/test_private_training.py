"""Differential privacy of trained weights: gradients of every unit or row, clipped, with noise, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from cohorts import cohort_of, plan_of, small_fleets
from test_masked_runs import masked_cohort
from torch import nn

from fedprognos.errors import ConfigError
from fedprognos.features import build_windows
from fedprognos.federation.exchanges import Failure
from fedprognos.federation.exchanges.fit import FitReply, FitRequest, fit_request
from fedprognos.federation.heads import judged_rounds
from fedprognos.federation.strategies import strategies
from fedprognos.networks import Network, NetworkSpec, predict
from fedprognos.networks.batches import LifeBatches, WindowBatches
from fedprognos.networks.cells import Cell, cells
from fedprognos.networks.gradients_by_sample import sample_gradients
from fedprognos.privacy.differential_privacy import Privacy
from fedprognos.privacy.private_training import clipped_sum, private_fit
from refusals import refuses
from small_fleets import recipe_of, series_fleet

NONE = Privacy(1e-9, "unit", 1e9, 0.0)
"""Neither noise nor clipping."""


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("shape", [{"widths": (4,)}, {"widths": (4, 3), "input_width": 5}])
def test_gradients_of_sequences_are_those_of_each_alone(cell: str, shape: dict[str, object]) -> None:
    network = Network.seeded(NetworkSpec(inputs=3, cell=cell, **shape), 1).module().train()  # type: ignore[arg-type]
    torch.manual_seed(0)
    x, y, weights = torch.randn(5, 9, 3), torch.randn(5, 9), torch.rand(5, 9)
    found = sample_gradients(network, x, y, weights)
    assert set(found) == {name for name, _ in network.named_parameters()}
    for k in range(5):
        network.zero_grad()
        said = network.head(network.body(x[k : k + 1])[0]).squeeze(-1)
        (weights[k] * (said - y[k]).square()).sum().backward()
        for name, p in network.named_parameters():
            torch.testing.assert_close(found[name][k].view_as(p), p.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("per", ["unit", "row"])
@pytest.mark.parametrize("life", [False, True])
def test_one_unit_or_row_changes_a_step_by_no_more_than_the_clip(per: str, life: bool) -> None:
    if life and per == "row":
        pytest.skip("whole lives have no rows of their own")
    fleet = series_fleet([60, 58, 70, 40], seed=5)
    options = {"history": "life", "window": None} if life else {"window": 8, "stride": 4}
    recipe = recipe_of(fleet, cap=40, conditions={"altitude": 0}, **options)
    windows, clip = build_windows(recipe, fleet), 0.05
    module = Network.seeded(NetworkSpec(inputs=recipe.channels, widths=(4,), cell="gru"), 1).module().train()
    names = [name for name, _ in module.named_parameters()]

    def step(chosen: np.ndarray) -> np.ndarray:
        batches = LifeBatches if life else WindowBatches
        data = batches(module, windows.select(chosen), recipe, plan_of().train.training(1), 0)
        total = 0.0
        for x, y, weights, groups in data.samples(np.random.default_rng(0), per):  # type: ignore[arg-type]
            found = sample_gradients(module, x, y, weights)
            total = total + clipped_sum([found[name] for name in names], groups, clip)
        return np.asarray(total)

    everything = np.arange(len(windows))
    whole, longest = step(everything), 0.0
    for k in range(4 if per == "unit" else 6):
        rest = everything[windows.unit != k] if per == "unit" else np.delete(everything, k)
        longest = max(longest, float(np.linalg.norm(whole - step(rest))))
    assert 0.9 * clip < longest <= clip * (1 + 1e-5)  # clipped, and not to less


def test_without_noise_a_unit_counts_once_and_training_learns() -> None:
    plan = plan_of(cell="gru")
    windows = build_windows(plan.recipe, small_fleets("c")["c"])
    start = plan.common_start()
    training = plan.train.training(30)
    network, count = private_fit(start, windows, plan.recipe, training, NONE, seed=0)
    assert count == len(np.unique(windows.unit))
    rows, points = private_fit(start, windows, plan.recipe, training, replace(NONE, per="row"), seed=0)
    assert points == len(windows)
    truth = plan.recipe.capped(windows.labels)
    for one in (network, rows):
        said = predict(one, windows, plan.recipe)
        assert np.sqrt(np.mean((said - truth) ** 2)) < 0.7 * truth.std()


def private_plan(**changes: object):  # type: ignore[no-untyped-def]
    settings = {"methods": ("fedavg",), "heads": ("mean",), "privacy": {"epsilon": 1e5}, "cell": "gru"}
    return plan_of(validation=0.0, **{**settings, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["fedavg", "fedprox"])
def test_a_private_fit_sends_weights_and_a_count_only(tmp_path: Path, method: str) -> None:
    plan, cohort = private_plan(methods=(method,), heads=("mean", "exact")), cohort_of(tmp_path)
    *_, last = judged_rounds(strategies[method], cohort, plan)
    fits = [request for _, request in cohort.asked if isinstance(request, FitRequest)]
    assert fits and all(request.privacy is not None for request in fits)
    (heads,) = last.judged.values()
    assert sorted(heads) == ["exact", "mean"] and all(one.validation_rmse is None for one in heads.values())
    again = [cohort.ask({"a": fits[0]})["a"] for _ in range(2)]
    assert all(isinstance(reply, FitReply) and not reply.history and reply.windows == 3 for reply in again)
    assert not np.array_equal(again[0].weights["head.weight"], again[1].weights["head.weight"])  # noise anew


def test_a_start_of_the_clients_own_is_refused(tmp_path: Path) -> None:
    plan, cohort = private_plan(), cohort_of(tmp_path)
    request = fit_request(plan, None, 2, 1, privacy=plan.gradient_privacy(cohort))
    reply = cohort.ask({"a": request})["a"]
    assert isinstance(reply, Failure) and reply.code == "message"


def test_masked_private_training_sends_no_weights_of_one_site(tmp_path: Path) -> None:
    plan, cohort = private_plan(), masked_cohort(tmp_path)
    *_, last = judged_rounds(strategies["fedavg"], cohort, plan)
    (heads,) = last.judged.values()
    assert all(np.isfinite(tensor).all() for tensor in heads["mean"].network.weights.values())
    assert plan.gradient_privacy(cohort).mechanism == "discrete"
    assert plan.gradient_privacy(cohort).share == 1.0  # a step is not linear: each site protects its own


def test_cells_whose_gradients_are_unknown_are_refused() -> None:
    with cells.including([Cell.from_torch("rnn", nn.RNN)]):
        module = Network.seeded(NetworkSpec(inputs=3, widths=(4,), cell="rnn"), 1).module()
        with refuses(ConfigError, "lstm", "gru"):
            sample_gradients(module, torch.zeros(2, 3, 3), torch.zeros(2, 3), torch.ones(2, 3))
