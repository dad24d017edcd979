from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_models import bundle_of

from fedprognos.experiment import config
from fedprognos.experiment.run import load_fleets
from fedprognos.features import Recipe, build_windows, recipe_for
from fedprognos.fleet import Fleet, Unit
from fedprognos.prognosis import Health, Predictor, drift

FLEETS: dict[str, tuple[Recipe, Fleet, Fleet]] = {}


def preset(name: str) -> tuple[Recipe, Fleet, Fleet]:
    """Recipe, training and test fleet of an experiment."""
    if name not in FLEETS:
        train, test = load_fleets(name)
        options = config.load(name)[1].recipe
        if options.history == "life":
            options = options.model_copy(update={"history": 50})
        FLEETS[name] = recipe_for(options, {"all": train}), train, test
    return FLEETS[name]


def flagged(recipe: Recipe, fleet: Fleet, most: int = 4000) -> float:
    """Share of windows with a drift flag."""
    windows = build_windows(recipe, fleet, stride=1, labelled=False)
    chosen = np.linspace(0, len(windows) - 1, min(most, len(windows))).astype(np.int64)
    found = drift.inspect(recipe, windows.batch(chosen))
    return float((found.distant | found.stuck).any(axis=1).mean())


@given(
    rows=st.integers(10, 400),
    shift=st.sampled_from([0.0, 2.0, 2.3, 2.4, 2.6, 3.0, -2.3, -2.4, -3.0]),
    spread=st.sampled_from([0.0, 0.01, 0.2, 1.0]),
    strays=st.integers(0, 6),
    seed=st.integers(0, 2**16),
)
def test_counting_first_finds_what_sorting_all_would(
    rows: int, shift: float, spread: float, strays: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    z = rng.normal(shift, spread, (3, rows, 2)).astype(np.float32)
    z[:, :strays] = rng.normal(0, 3, (3, strays, 2))
    recipe = Recipe(task="rul", sensors=("a", "b"), window=rows, mean=((0.0, 0.0),), std=((1.0, 1.0),), label_mean=1.0)
    assert np.array_equal(drift.inspect(recipe, z).distant, drift.distance(z) >= drift.DISTANCE)


REAL = [
    pytest.param("turbofan", marks=pytest.mark.needs_data("cmapss")),
    pytest.param("turbofan-fd001", marks=pytest.mark.needs_data("cmapss")),
    pytest.param("battery", marks=pytest.mark.needs_data("nasa-battery")),
]


@pytest.mark.parametrize("name", ["plants", "plants-battery", *REAL])
def test_normal_ageing_is_not_flagged(name: str) -> None:
    recipe, train, test = preset(name)
    assert flagged(recipe, test) == 0.0
    assert flagged(recipe, train) <= 0.01  # run to failure: the very last windows are far from the mean


def changed(unit: Unit, fleet: Fleet, recipe: Recipe, sensor: int, how: str) -> Unit:
    """A test unit with one of its sensors broken over its whole history."""
    columns = recipe.check(fleet.schema, "test")[0]
    column, sensors = columns[sensor], unit.sensors.copy()
    deviation = np.array(recipe.std)[:, sensor].max()
    if how == "offset up":
        sensors[:, column] += 5 * deviation
    elif how == "offset down":
        sensors[:, column] -= 5 * deviation
    elif how == "stuck":
        sensors[:, column] = np.median(sensors[:, column])
    else:
        other = columns[(sensor + 1) % len(columns)]
        sensors[:, [column, other]] = sensors[:, [other, column]]
    return replace(unit, sensors=sensors)


@pytest.mark.parametrize("how", ["offset up", "offset down", "stuck", "swapped"])
@pytest.mark.parametrize("name", ["plants", "plants-battery", *REAL])
def test_a_broken_sensor_is_flagged(name: str, how: str) -> None:
    recipe, _, test = preset(name)
    predictor = Predictor.of(bundle_of(recipe))
    units = sorted(test, key=lambda u: -u.rows)[:5]
    found: list[bool] = []
    for sensor in range(len(recipe.sensors)):
        for health in predictor.predict(test.select([changed(u, test, recipe, sensor, how) for u in units])):
            found.append(bool({"drift", "out-of-range"} & set(health.flags)))
            assert bool(health.reason) == found[-1]
    assert np.mean(found) >= (0.6 if how.startswith("offset") else 1.0)  # benchmarks/drift.py tells each share


def test_the_reason_names_the_sensor() -> None:
    recipe, _, test = preset("plants")
    unit = changed(test.units[0], test, recipe, 2, "stuck")
    health: Health = Predictor.of(bundle_of(recipe)).predict(test.select([unit]))[0]
    assert recipe.sensors[2] in health.reason


def test_the_distance_is_that_of_scipy() -> None:
    from scipy.stats import kstest

    z = np.random.default_rng(0).normal(0.3, 1.2, (4, 25, 3)).astype(np.float32)
    expected = [[kstest(z[b, :, c].astype(float), "norm").statistic for c in range(3)] for b in range(4)]
    np.testing.assert_allclose(drift.distance(z), expected, atol=1e-6)


def test_padded_windows_are_not_called_stuck() -> None:
    recipe = preset("plants")[0]
    batch = np.zeros((2, recipe.window, recipe.channels), dtype=np.float32)
    found = drift.inspect(recipe, batch, np.array([True, False]))
    assert found.of(0) == ((), "")
    assert found.of(1)[0] == ("drift",)
