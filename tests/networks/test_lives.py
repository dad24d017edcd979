"""Whole lives: what a network says of a row depends on all rows before it, however it is run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprognos.features import WindowSet, build_windows, hold_out, joined, running_windows
from fedprognos.networks import Network, NetworkSpec, fit, network_outputs, predict
from fedprognos.networks.batches import LifeBatches
from fedprognos.networks.head import head_statistics
from fedprognos.networks.model_options import Training
from fedprognos.networks.network_outputs import output_sums
from fedprognos.networks.reservoir_body import RADIUS, reservoir_of
from small_fleets import recipe_of, series_fleet

FLEET = series_fleet([30, 45, 61, 22, 38])
RECIPE = recipe_of(FLEET, window=None, history="life", cap=40, conditions={"altitude": 0})
LIVES = build_windows(RECIPE, FLEET)
SPECS = [
    NetworkSpec(inputs=RECIPE.channels, widths=(5,), cell="gru"),
    NetworkSpec(inputs=RECIPE.channels, widths=(4, 3), cell="lstm", input_width=6, reservoir=12, direct=1),
    NetworkSpec(inputs=RECIPE.channels, widths=(), reservoir=9, direct=1),
]


def network_of(spec: NetworkSpec, seed: int = 0) -> Network:
    network = Network.seeded(spec, seed)
    return network.with_head(np.random.default_rng(seed).normal(size=spec.features + 1))


def by_hand(network: Network, lives: WindowSet) -> np.ndarray:
    """Each unit by itself, row by row, from rest."""
    spec, module = network.spec, network.module().eval()
    head, said = network.head, np.empty(len(lives))
    assert lives.lives is not None
    for u in np.unique(lives.unit):
        first = lives.lives[u]
        state, echo = None, None
        body = reservoir_of(spec.reservoir, spec.inputs) if spec.reservoir else None
        for row in range(lives.lives[u + 1] - first):
            x = lives.features[first + row]
            with torch.no_grad():
                hidden, state = module.body(torch.from_numpy(x[None, None]), state)
            parts = [hidden[0, 0].numpy()]
            if body is not None:
                echo = body.step(body.start(x[None]) if echo is None else echo, x[None])
                parts.append(echo[:, 0])
            if spec.direct:
                parts.append(x)
            value = np.concatenate(parts).astype(float) @ head[:-1] + head[-1]
            said[(lives.unit == u) & (lives.starts == first + row)] = value
    return RECIPE.decode(said)


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("chunk", [2048, 7])
def test_a_life_in_batches_and_chunks_is_the_life_row_by_row(
    spec: NetworkSpec, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_outputs, "CHUNK", chunk)
    network = network_of(spec)
    expected = by_hand(network, LIVES)
    np.testing.assert_allclose(predict(network, LIVES, RECIPE), expected, atol=1e-4)
    some = LIVES.select(np.array([3, 50, 51, 120]))
    np.testing.assert_allclose(predict(network, some, RECIPE), expected[[3, 50, 51, 120]], atol=1e-4)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_statistics_of_the_head_are_those_of_all_it_sees(spec: NetworkSpec) -> None:
    network = network_of(spec)
    sums = head_statistics(network, LIVES, RECIPE)
    assert sums.hh.shape == (spec.features + 1,) * 2
    said = RECIPE.decode(np.zeros(1))  # the head applied to the sums is the mean prediction before clipping
    mean = (network.head @ sums.hh[-1]) / sums.n
    module = network.module().eval()
    assert network_outputs.outputs(module, LIVES).mean() == pytest.approx(mean, abs=1e-5)
    assert np.isfinite(said).all()


def test_sums_of_outputs_are_over_all_rows() -> None:
    network = network_of(SPECS[1])
    sums = output_sums(network, LIVES)
    assert [len(one.s) for one in sums] == [6, 4, 3]
    assert all(one.n == len(LIVES) and one.starts == len(FLEET) for one in sums)
    hh = head_statistics(network, LIVES, RECIPE).hh
    np.testing.assert_allclose(sums[-1].S, hh[:3, :3], rtol=1e-5)


def test_whole_lives_are_learnt_and_the_same_seed_gives_the_same_network() -> None:
    training = Training(epochs=12, learning_rate=0.02, noise=0.1, warp=0.3, random_start=0.3, truncate=20)
    part, held = hold_out(LIVES, 0.25, 0, "rul")
    first, again = (fit(Network.seeded(SPECS[0], 1), part, held, RECIPE, training, seed=3) for _ in range(2))
    assert first.history[-1].train_rmse < 0.8 * first.history[0].train_rmse
    assert all(np.array_equal(first.network.weights[k], again.network.weights[k]) for k in first.network.weights)


def test_steps_decide_the_number_of_epochs() -> None:
    training = Training(steps=7, batch_size=2, epochs=99)
    result = fit(Network.seeded(SPECS[0], 1), LIVES, None, RECIPE, training, seed=3)
    assert len(result.history) == round(7 / 3)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), warp=st.floats(0.05, 1.0))
def test_a_life_shown_at_another_pace_still_ends_at_its_end(seed: int, warp: float) -> None:
    module = Network.seeded(SPECS[0], 0).module()
    lives = LifeBatches(module, LIVES, RECIPE, Training(warp=warp), 0)
    rows, targets, known = lives._shown(2, np.random.default_rng(seed))
    assert known.all()
    assert 61 * np.exp(-warp) - 1 <= len(rows) <= 61 * np.exp(warp) + 1
    labels = targets * RECIPE.label_std + RECIPE.label_mean
    assert (np.diff(labels) <= 1e-4).all()  # less and less life is left
    assert labels[-1] <= np.exp(warp) + 1e-3  # at most one step of its own pace before the end


def test_the_reservoir_is_the_same_bytes_everywhere_and_forgets() -> None:
    one = reservoir_of(200, 5)
    assert one.inputs.tobytes()[:8].hex() == reservoir_of.__wrapped__(200, 5).inputs.tobytes()[:8].hex()
    radius = np.abs(np.linalg.eigvals(one.links.toarray())).max()
    assert 0.8 * RADIUS < radius < 1.15 * RADIUS
    rng = np.random.default_rng(0)
    a, b = one.start(rng.normal(size=(1, 5)).astype(np.float32)), one.start(np.zeros((1, 5), np.float32))
    for _ in range(2000):
        row = rng.normal(size=(1, 5)).astype(np.float32)
        a, b = one.step(a, row), one.step(b, row)
    assert np.abs(a - b).max() < 1e-4


def lives_with_running_units() -> WindowSet:
    """Five units that failed; ten that still run, and one that ran for too short a time to have a certain row."""
    failed = series_fleet([90, 80, 100, 95, 85])
    still = series_fleet([60, 70, 80, 90, 75, 65, 85, 95, 100, 55, 12], seed=3, name="still")
    fleet = failed.select([*failed, *(replace(unit, rul_at_end=None, failed=False) for unit in still)])
    running_units = running_windows(RECIPE, fleet)
    assert running_units is not None and running_units.running is not None
    return joined(build_windows(RECIPE, fleet), running_units)


def test_units_that_still_run_stand_beside_failed_ones_and_do_not_outweigh_them() -> None:
    lives = lives_with_running_units()
    batches = LifeBatches(Network.seeded(SPECS[0], 0).module(), lives, RECIPE, Training(batch_size=2), 0)
    assert batches.per_epoch == 3  # an epoch is a pass over the five failed units
    cap = RECIPE.encode(np.array([RECIPE.cap]))[0]
    shown = list(batches.shown(np.random.default_rng(0)))
    assert sum(len(x) for x, _, _ in shown) == 14  # at most two beside each that failed
    for _, targets, weights in shown:
        ends = (weights > 0) & (targets < cap - 1e-5)
        of_failed = ends.any(1)
        assert of_failed.any() and not of_failed.all()
        at_cap = (weights > 0) & ~ends
        rows_of_failed = at_cap[of_failed].sum()
        assert float(weights[at_cap].sum()) == pytest.approx(float(rows_of_failed), rel=1e-4)
        assert float(weights[ends].mean()) == 1.0


def test_lives_are_shown_with_the_first_readings_of_other_units_where_some_still_run() -> None:
    lives = lives_with_running_units()
    module, sensors = Network.seeded(SPECS[0], 0).module(), len(RECIPE.sensors)
    batches, order = LifeBatches(module, lives, RECIPE, Training(), 0), np.random.default_rng(0)
    assert lives.lives is not None
    first = [lives.features[begin : begin + 20, :sensors].mean(axis=0) for begin in lives.lives[:-1]]
    first[-1] = lives.features[lives.lives[-2] :, :sensors].mean(axis=0)
    seen = set()
    for _ in range(100):
        rows, targets, known = batches._shown(0, order)
        shift = (rows - lives.features[: len(rows)])[:, :sensors]
        np.testing.assert_allclose(shift, np.broadcast_to(shift[0], shift.shape), atol=1e-5)
        of = [k for k, readings in enumerate(first) if np.allclose(shift[0], readings - first[0], atol=1e-5)]
        assert len(of) == 1
        seen.add(of[0])
        assert known.all() and len(targets) == 90
    assert len(seen) > 12  # those of units without a certain row, too
    mid_life = LifeBatches(module, lives, RECIPE, Training(random_start=1e-9), 0)
    np.testing.assert_array_equal(mid_life._shown(0, order)[0], lives.features[:90])
