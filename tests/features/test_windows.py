from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprognos.errors import ConfigError, RecipeError
from fedprognos.features import build_windows, hold_out
from fedprognos.features.history import PADDED, STRETCHED
from fedprognos.fleet import Fleet
from refusals import refuses
from small_fleets import SERIES, cyclic_fleet, recipe_of, series_fleet, series_unit


def slow_windows(fleet: Fleet, recipe, stride: int):  # type: ignore[no-untyped-def]
    """The plain way: for each unit, from its last row backwards, copy one window after another."""
    inputs, labels, positions = [], [], []
    for unit in fleet:
        scaled, _ = recipe.scale(unit.sensors, unit.settings[:, :0] if not recipe.settings else unit.settings)
        found = []
        end = unit.rows - 1
        while end - recipe.window + 1 >= 0:
            found.append((scaled[end - recipe.window + 1 : end + 1], unit.rows - 1 - end, unit.time[end]))
            end -= stride
        for window, label, position in reversed(found):
            inputs.append(window)
            labels.append(float(label))
            positions.append(position)
    return np.array(inputs), np.array(labels), np.array(positions)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(22, 40), min_size=1, max_size=4), st.integers(1, 22), st.integers(1, 7))
def test_sliding_windows_equal_the_plain_way(lengths: list[int], window: int, stride: int) -> None:
    fleet = series_fleet(lengths, conditions=1)
    recipe = recipe_of(fleet, window=window, stride=stride)
    windows = build_windows(recipe, fleet)
    inputs, labels, positions = slow_windows(fleet, recipe, stride)
    np.testing.assert_array_equal(windows.batch(slice(None)), inputs)
    np.testing.assert_array_equal(windows.labels, labels)
    np.testing.assert_array_equal(windows.position, positions)
    assert 0.0 in windows.labels  # the end of life is always among them


def test_short_units_are_excluded_or_padded() -> None:
    fleet = series_fleet([40, 8, 15], conditions=1)
    excluded = build_windows(recipe_of(fleet, window=15), fleet)
    assert excluded.unit_ids == ("engines-0", "engines-2")
    padded = build_windows(recipe_of(fleet, window=15, short="pad"), fleet)
    assert ((padded.odd & PADDED) > 0).tolist() == (padded.unit == 1).tolist()
    window = padded.batch(np.flatnonzero(padded.unit == 1))
    assert window.shape == (1, 15, 2)
    np.testing.assert_array_equal(window[0, :7], np.repeat(window[0, 7:8], 7, axis=0))
    assert padded.labels[padded.unit == 1].tolist() == [0.0]


def test_a_window_longer_than_every_unit_is_an_error() -> None:
    fleet = series_fleet([40, 30], conditions=1)
    with refuses(RecipeError, "recipe.window", 50, 40):
        build_windows(recipe_of(fleet, window=50), fleet)


def test_units_without_labels_are_counted_in_training_and_kept_for_prediction() -> None:
    censored = series_unit("running", 30, 7, 1, rul_at_end=None, failed=False)
    fleet = Fleet("f", SERIES, (*series_fleet([40], conditions=1).units, censored))
    recipe = recipe_of(fleet)
    assert build_windows(recipe, fleet).unit_ids == ("engines-0",)
    kept = build_windows(recipe, fleet, labelled=False)
    assert np.isnan(kept.labels[kept.unit == 1]).all()


def test_last_windows_only() -> None:
    fleet = series_fleet([40, 30, 12], conditions=1)
    last = build_windows(recipe_of(fleet, window=10), fleet, points="last")
    assert len(last) == 3
    assert last.position.tolist() == [40, 30, 12]


def test_cycles_by_index_are_the_first_samples_of_each() -> None:
    fleet = cyclic_fleet(units=2, cycles=20)
    recipe = recipe_of(fleet, cycle="index")
    shortest = min(int(np.diff(u.cycles).min()) for u in fleet)  # type: ignore[arg-type]
    assert recipe.window == shortest
    windows = build_windows(recipe, fleet)
    assert len(windows) == 40
    unit = fleet.units[1]
    scaled, _ = recipe.scale(unit.sensors, unit.settings)
    rows = unit.cycle(3)
    np.testing.assert_array_equal(windows.batch(np.array([23]))[0], scaled[rows.start : rows.start + shortest])


def test_cycles_on_a_time_grid_are_interpolated_in_time() -> None:
    fleet = cyclic_fleet(units=1, cycles=20)
    recipe = recipe_of(fleet, grid_end_in_s=400.0, grid_points=9)
    windows = build_windows(recipe, fleet)
    unit = fleet.units[0]
    rows = unit.cycle(5)
    voltage = np.interp(np.arange(9) * 50.0, unit.time[rows], unit.sensors[rows, 0])
    got = windows.batch(np.array([5]))[0, :, 0] * recipe.std[0][0] + recipe.mean[0][0]
    np.testing.assert_allclose(got, voltage, rtol=1e-5)
    assert not (windows.odd & STRETCHED).any()


def test_a_grid_must_end_before_every_training_cycle_but_bears_shorter_ones_later() -> None:
    fleet = cyclic_fleet(units=1, cycles=20)
    with refuses(ConfigError):
        recipe_of(fleet, grid_end_in_s=5000.0)
    recipe = recipe_of(fleet, grid_end_in_s=400.0)
    unit = fleet.units[0]
    half = replace(unit, time=unit.time * 0.4)
    assert (build_windows(recipe, fleet.select([half])).odd & STRETCHED).any()


def test_short_cycles_are_left_out_or_padded() -> None:
    fleet = cyclic_fleet(units=1, cycles=20)
    windows = build_windows(recipe_of(fleet, cycle="index", window=70), fleet)
    assert len(windows) == int((np.diff(fleet.units[0].cycles) >= 70).sum()) < 20
    padded = build_windows(recipe_of(fleet, cycle="index", window=70, short="pad"), fleet)
    assert len(padded) == 20


@given(st.integers(2, 6), st.floats(0.05, 0.9), st.integers(0, 1000))
def test_validation_holds_out_whole_units(units: int, fraction: float, seed: int) -> None:
    fleet = series_fleet([30] * units, conditions=1)
    train, held = hold_out(build_windows(recipe_of(fleet), fleet), fraction, seed, "rul")
    assert held is not None
    assert not set(train.unit) & set(held.unit)
    assert len(train) + len(held) == units * 21


def test_validation_of_a_single_unit_is_its_last_windows() -> None:
    fleet = cyclic_fleet(units=1, cycles=20)
    train, held = hold_out(build_windows(recipe_of(fleet), fleet), 0.25, 0, "rul")
    assert held is not None
    assert held.position.tolist() == [16, 17, 18, 19, 20]
    assert train.position.max() == 15


def test_validation_of_cycles_is_the_last_ones_of_every_unit() -> None:
    fleet = cyclic_fleet(units=3, cycles=20)
    train, held = hold_out(build_windows(recipe_of(fleet), fleet), 0.25, 0, "soh")
    assert held is not None
    assert held.position.tolist() == [16, 17, 18, 19, 20] * 3
    assert (len(train), train.position.max()) == (45, 15)


def test_stride_one_never_holds_more_than_a_batch() -> None:
    fleet = series_fleet([2000] * 10)
    windows = build_windows(recipe_of(fleet, window=50), fleet)
    everything = len(windows) * 50 * 2 * 4
    tracemalloc.start()
    for batch in windows.batches(64):
        assert batch.shape[1:] == (50, 2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < everything / 50
