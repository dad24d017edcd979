from __future__ import annotations

import importlib
import tempfile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprognos.errors import ConfigError, TrainingError
from fedprognos.features import WindowSet, build_windows, hold_out
from fedprognos.networks import FitResult, Network, NetworkSpec, fit, predict, unrolled_gru
from fedprognos.networks.model_options import Training
from fedprognos.networks.network_outputs import cached_inputs
from fedprognos.networks.unrolled_gru import UnrolledGRU
from refusals import refuses
from small_fleets import cyclic_fleet, recipe_of, series_fleet

FLEET = series_fleet([80, 70, 90, 60])
RECIPE = recipe_of(FLEET, window=15, cap=40, conditions={"altitude": 0})
WINDOWS = build_windows(RECIPE, FLEET)


def network(widths: tuple[int, ...] = (8,), seed: int = 0) -> Network:
    return Network.seeded(NetworkSpec(inputs=RECIPE.channels, widths=widths), seed)


def train(
    net: Network, seed: int = 0, validation: float = 0.0, frozen: int = 0, device: str = "cpu", **plan: object
) -> FitResult:
    training = Training.model_validate({"epochs": 4, "batch_size": 32, "learning_rate": 0.01, **plan})
    part, held = hold_out(WINDOWS, validation, 0, "rul")
    return fit(net, part, held, RECIPE, training, seed=seed, frozen=frozen, device=device)


def test_training_learns_and_is_the_same_for_the_same_seed() -> None:
    first, again, other = train(network()), train(network()), train(network(), seed=1)
    assert first.history[-1].train_rmse < 0.7 * first.history[0].train_rmse
    assert all(np.array_equal(first.network.weights[k], again.network.weights[k]) for k in first.network.weights)
    assert not np.array_equal(first.network.weights["head.weight"], other.network.weights["head.weight"])
    assert not first.collapsed


def test_reported_errors_are_pooled_over_all_windows() -> None:
    result = train(network(), validation=0.25)
    _, held = hold_out(WINDOWS, 0.25, 0, "rul")
    assert held is not None
    best = result.history[result.best_epoch - 1]
    expected = np.sqrt(np.mean(np.square(predict(result.network, held, RECIPE) - RECIPE.capped(held.labels))))
    assert best.validation_rmse == pytest.approx(expected, rel=1e-9)


def test_the_best_epoch_after_the_warm_up_is_kept() -> None:
    result = train(network(), validation=0.25, epochs=12, warmup=3, learning_rate=0.05, schedule="constant")
    errors = [e.validation_rmse for e in result.history]
    assert result.best_epoch == 3 + int(np.argmin(errors[2:]))


def test_patience_stops_early_but_not_during_the_warm_up() -> None:
    result = train(network(), validation=0.25, epochs=200, warmup=6, patience=3, learning_rate=0.2, schedule="constant")
    assert 6 < len(result.history) < 200
    assert len(result.history) - result.best_epoch >= 3


@pytest.mark.parametrize("frozen", [1, 2])
def test_frozen_layers_stay_and_their_cache_changes_nothing(frozen: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cached, plain = network((6, 5)), network((6, 5))
    before = cached.weights
    result = train(cached, frozen=frozen)

    # The naive way: the frozen layers run again for every batch of every epoch.
    def naive(net, windows, frozen, device, limit_in_bytes=0):  # type: ignore[no-untyped-def]
        raw = cached_inputs(net, windows, 0, device)

        def inputs(index):  # type: ignore[no-untyped-def]
            with torch.no_grad():
                return net.run(raw(index), 0, frozen)

        return inputs

    monkeypatch.setattr(importlib.import_module("fedprognos.networks.batches"), "cached_inputs", naive)
    slow = train(plain, frozen=frozen)
    for name, array in result.network.weights.items():
        layer = 0 if name.startswith("recurrent.0") else 1 if name.startswith("recurrent.1") else 2
        assert np.array_equal(array, before[name]) == (layer < frozen), name
        np.testing.assert_allclose(array, slow.network.weights[name], atol=1e-5)


def test_a_cache_that_does_not_fit_goes_to_disk_and_leaves_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    net, cpu, index = network((6, 5)).module(), torch.device("cpu"), np.array([0, 5, 3])
    in_memory = cached_inputs(net, WINDOWS, 1, cpu)(index)
    on_disk = cached_inputs(net, WINDOWS, 1, cpu, limit_in_bytes=10)(index)
    assert torch.equal(in_memory, on_disk)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_always_says_the_mean_is_called_collapsed() -> None:
    start = network()
    net = start.with_head(0 * start.head)
    assert train(net, epochs=1, learning_rate=1e-9).collapsed


@pytest.mark.parametrize("validation", [0.0, 0.25])
def test_an_error_far_below_the_labels_deviation_needs_no_look_for_a_collapse(
    validation: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []
    loop = importlib.import_module("fedprognos.networks.training_loop")
    monkeypatch.setattr(loop, "_collapsed", lambda *_: looks.append(1) or True)
    assert not train(network(), epochs=12, learning_rate=0.05, validation=validation).collapsed
    assert not looks


def test_a_loss_that_is_no_number_stops_with_advice() -> None:
    broken = WINDOWS.features.copy()
    broken[::7] = np.float32(3e38)
    windows = WindowSet(**{**WINDOWS.__dict__, "features": broken})
    start = network()
    infinite = np.full_like(start.weights["recurrent.0.weight_ih_l0"], np.inf)
    net = Network(start.spec, {**start.weights, "recurrent.0.weight_ih_l0": infinite})
    with refuses(TrainingError, "epoch 1", "learning_rate"):
        fit(net, windows, None, RECIPE, Training(epochs=2), seed=0)


def test_rmsprop_and_gru_and_cycles_train_too() -> None:
    fleet = cyclic_fleet(units=1, cycles=25)
    recipe = recipe_of(fleet, grid_points=12)
    windows = build_windows(recipe, fleet)
    net = Network.seeded(NetworkSpec(inputs=2, widths=(6,), cell="gru", input_width=4), 0)
    plan = Training(epochs=40, batch_size=8, optimizer="rmsprop", learning_rate=0.01)
    result = fit(net, windows, None, recipe, plan, seed=0)
    assert result.history[-1].train_rmse < 0.3 * np.std(windows.labels)


@pytest.mark.parametrize("device", ["cuda:99", "toaster"])
def test_an_impossible_device_is_refused(device: str) -> None:
    if device.startswith("cuda") and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with refuses(ConfigError, "train.device"):
        train(network(), device=device)


def test_no_batch_of_one_is_left_over() -> None:
    from fedprognos.networks.batches import cut

    for count in range(1, 70):
        parts = cut(np.arange(count), 8)
        assert np.array_equal(np.concatenate(parts), np.arange(count))
        assert count == 1 or min(map(len, parts)) > 1


def test_a_forget_bias_opens_the_gates_that_keep_a_state() -> None:
    for cell in ("lstm", "gru"):
        spec = NetworkSpec(inputs=2, widths=(3, 2), cell=cell)
        plain, opened = Network.seeded(spec, 1), Network.seeded(spec, 1, forget_bias=2.0)
        for name, before in plain.weights.items():
            added = np.zeros_like(before)
            if name.endswith("bias_ih_l0"):
                width = 3 if ".0." in name else 2
                added[width : 2 * width] = 2.0
            np.testing.assert_allclose(opened.weights[name] - before, added, atol=1e-6)


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 999),
    batch=st.integers(1, 4),
    steps=st.integers(1, 9),
    width=st.integers(1, 6),
    carried=st.booleans(),
)
def test_the_gradient_of_a_gru_written_out_is_that_of_torch(
    seed: int, batch: int, steps: int, width: int, carried: bool
) -> None:
    torch.manual_seed(seed)
    theirs = torch.nn.GRU(3, width, batch_first=True).double()
    ours = UnrolledGRU(3, width, batch_first=True).double()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(batch, steps, 3, dtype=torch.double, requires_grad=True)
    state = torch.randn(1, batch, width, dtype=torch.double, requires_grad=True)
    found = []
    for module in (theirs, ours):
        out, last = module(x, state if carried else None)
        loss = (out * torch.linspace(-1, 2, out.numel()).double().view_as(out)).sum() + last.square().sum()
        wanted = [x, *module.parameters(), *([state] if carried else [])]
        found.append([out, last, *torch.autograd.grad(loss, wanted)])
    for mine, expected in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.skipif(unrolled_gru.compiled is None, reason="fedprognos was installed without a C compiler")
@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 999),
    batch=st.integers(1, 11),
    steps=st.integers(1, 30),
    width=st.sampled_from([1, 7, 8, 11, 31, 32, 33, 64, 70]),
)
def test_compiled_steps_of_a_gru_are_those_in_torch(seed: int, batch: int, steps: int, width: int) -> None:
    torch.manual_seed(seed)
    module = UnrolledGRU(5, width, batch_first=True)
    with torch.no_grad():
        module.weight_hh_l0.mul_(3.0)  # gates that open and close all the way
    x = 4 * torch.randn(batch, steps, 5)
    weight = torch.randn(batch, steps, width)
    results = {}
    for name, compiled in (("compiled", unrolled_gru.compiled), ("torch", None)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(unrolled_gru, "compiled", compiled)
            out, _ = module(x)
            results[name] = [out.detach(), *torch.autograd.grad((out * weight).sum(), list(module.parameters()))]
    for fast, plain in zip(results["compiled"], results["torch"], strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-3, atol=1e-4 * float(plain.abs().max() + 1))
