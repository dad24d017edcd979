"""Channels: all at once is row by row, and both are what they are said to be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fedprognos.errors import BundleError
from fedprognos.features import build_windows
from fedprognos.features.channels import Channels, channels, columns_of, extended
from fedprognos.features.recipe_options import RecipeOptions
from fedprognos.networks import Bundle, Network, NetworkSpec, fit
from fedprognos.networks.model_options import Training
from fedprognos.prognosis import Predictor
from fedprognos.prognosis.onnx_runtime import export_onnx
from refusals import refuses
from small_fleets import recipe_of, series_fleet

ALL = [("age", 50), ("mean", 4), ("slope", 5), ("change", 3), ("mean", 1), ("slope", 1)]
FLEET = series_fleet([30, 45, 61])
CHOSEN = {"age": 40, "mean": [3, 9], "slope": 7, "change": 5}


def drawn(seed: int, rows: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(rows, 3)) * 10.0 ** rng.integers(-3, 4)).astype(np.float32)


def plain(rows: np.ndarray, name: str, span: int) -> np.ndarray:
    """Row by row, from what each kind is said to be."""
    found = []
    for t in range(len(rows)):
        last = rows[max(0, t + 1 - span) : t + 1].astype(np.float64)
        if name == "age":
            found.append(np.array([t / span]))
        elif name == "mean":
            found.append(last.mean(axis=0))
        elif name == "slope":
            line = np.polyfit(np.arange(len(last)), last, 1)[0] if len(last) > 1 else np.zeros(3)
            found.append(span * line)
        else:
            found.append(rows[t] - rows[: min(t + 1, span)].astype(np.float64).mean(axis=0))
    return np.array(found)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 999), rows=st.integers(1, 40), at=st.integers(0, 40))
def test_row_by_row_is_all_at_once_to_the_last_bit_also_from_a_snapshot(seed: int, rows: int, at: int) -> None:
    x = drawn(seed, rows)
    whole = extended(x, ALL, 3)
    assert whole.shape == (rows, 3 + columns_of(ALL, 3))
    own = Channels(ALL, 3)
    for t in range(rows):
        if t == at:
            other = Channels(ALL, 3)
            other.restore(own.snapshot())
            own = other
        np.testing.assert_array_equal(own.extend(x[t]), whole[t])


@pytest.mark.parametrize("name", list(channels))
@pytest.mark.parametrize("span", [1, 2, 7, 100])
def test_a_channel_is_what_it_is_said_to_be(name: str, span: int) -> None:
    x = drawn(span, 30)
    expected = plain(x, name, span)
    np.testing.assert_allclose(channels[name].batch(x, span), expected, rtol=1e-5, atol=1e-5 * np.abs(x).max())


@pytest.mark.parametrize("history", ["life", 12])
def test_models_with_channels_say_the_same_online_and_offline(history: object, tmp_path: Path) -> None:
    recipe = recipe_of(FLEET, window=None, history=history, cap=40, channels=CHOSEN, conditions={"altitude": 0})
    assert recipe.channels == 2 + 1 + 4 * 2
    spec = NetworkSpec(inputs=recipe.channels, widths=(5,), cell="gru")
    training = Training(epochs=2, noise=0.1, warp=0.3, random_start=0.5)
    windows = build_windows(recipe, FLEET)
    network = fit(Network.seeded(spec, 0), windows, None, recipe, training, seed=0, device="cpu").network
    bundle = Bundle(recipe, network)
    predictor = Predictor.from_bundle(bundle)
    offline = {(h.unit, h.position): h.value for h in predictor.predict(FLEET, last=False)}
    stream = predictor.stream()
    for number, unit in enumerate(FLEET):
        for t, sensors, operating in zip(unit.time, unit.sensors, unit.settings, strict=True):
            if number == 1 and t == 20:
                stream.snapshot(tmp_path / "kept")
                stream = predictor.stream()
                stream.restore(tmp_path / "kept")
            given_row = dict(zip(FLEET.schema.sensors, sensors.tolist(), strict=True))
            operated = dict(zip(FLEET.schema.settings, operating.tolist(), strict=True))
            health = stream.feed(unit.id, float(t), given_row, operated).health
            if (unit.id, float(t)) in offline:
                assert abs(health.value - offline[unit.id, float(t)]) < 1e-5 * recipe.label_std
    with refuses(BundleError, "recipe.channels"):
        export_onnx(bundle, tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


def test_a_channel_that_is_not_there_is_named() -> None:
    with refuses(ValidationError, "'speed'"):
        RecipeOptions.model_validate({"history": "life", "channels": {"speed": 3}})
