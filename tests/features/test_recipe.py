from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from fedprognos.errors import ConfigError, DataError, RecipeError
from fedprognos.features import ConditionWarning, Recipe, SurveyTerms, build_windows, recipe_for, survey
from fedprognos.features.history import UNSEEN
from fedprognos.features.recipe_options import RecipeOptions
from fedprognos.fleet import Fleet, pool
from refusals import refuses
from small_fleets import CYCLIC, cyclic_fleet, recipe_of, series_fleet, series_unit

RULE = {"altitude": 0, "mach": 2}


def test_federated_statistics_equal_pooled_ones() -> None:
    a, b = series_fleet([60, 80], seed=1, name="a"), series_fleet([50, 70, 90], seed=2, name="b")
    section = RecipeOptions(window=10, conditions=RULE, cap=50)
    apart = recipe_for(section, {"a": a, "b": b})
    together = recipe_for(section, {"all": pool([a, b])})
    np.testing.assert_allclose(apart.mean, together.mean, rtol=1e-12)
    np.testing.assert_allclose(apart.std, together.std, rtol=1e-10)
    assert apart.label_mean == pytest.approx(together.label_mean, rel=1e-12)
    assert apart.condition_keys == ((0.0, 0.0), (20.0, 0.7), (42.0, 0.84))


def test_rows_are_standardised_within_their_condition() -> None:
    fleet = series_fleet([200, 200])
    windows = build_windows(recipe_of(fleet, window=1, conditions=RULE), fleet)
    rows = windows.batch(slice(None))[:, 0]
    np.testing.assert_allclose(rows.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(rows.std(axis=0), 1, atol=1e-6)


LEVELS = {"cycle": "levels", "levels": CYCLIC.sensors[0], "grid_end_in_s": 500.0}


def test_levels_lie_where_every_cycle_of_every_client_passes() -> None:
    fleets = {name: cyclic_fleet(2, seed=k) for k, name in enumerate("ab")}
    recipe = recipe_for(RecipeOptions.model_validate(LEVELS), fleets)
    high, low = recipe.level_bounds or (0.0, 0.0)
    assert recipe.window == 19
    assert (round(high, 2), round(low, 2)) == (high, low)
    for fleet in fleets.values():
        for unit in fleet:
            for k in range(len(unit.positions)):
                time, volts = unit.time[unit.cycle(k)], unit.sensors[unit.cycle(k), 0]
                assert np.interp(500.0 / 57, time, volts) >= high > low >= np.interp(500.0, time, volts)
    rows = np.concatenate([build_windows(recipe, fleet).features for fleet in fleets.values()])
    np.testing.assert_allclose(
        rows.mean(axis=0), 0, atol=0.1
    )  # scaled at each client's own levels, near the common ones
    np.testing.assert_allclose(rows.std(axis=0), 1, atol=0.1)


def test_bounds_of_levels_are_told_in_three_digits() -> None:
    fleet = cyclic_fleet()
    told = survey(fleet, SurveyTerms(levels=CYCLIC.sensors[0], grid_end_in_s=500.0))
    values = {float(v) for unit in fleet for v in unit.sensors[:, 0]}
    assert {told.level_high, told.level_low}.isdisjoint(values)
    assert [float(f"{v:.3g}") for v in (told.level_high, told.level_low)] == [told.level_high, told.level_low]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"cycle": "levels"}, "levels"),
        ({"levels": "voltage"}, "levels"),
        ({**LEVELS, "grid_end_in_s": None}, "grid_end_in_s"),
        ({**LEVELS, "conditions": {"load": 0}}, "condition"),
    ],
)
def test_levels_need_a_sensor_an_end_and_one_condition(options: dict[str, object], named: str) -> None:
    with refuses(ValueError, named):
        RecipeOptions.model_validate(options)


def test_a_sensor_that_does_not_fall_has_no_levels() -> None:
    with refuses(DataError, "recipe.levels"):
        recipe_for(RecipeOptions.model_validate({**LEVELS, "levels": CYCLIC.sensors[1]}), {"a": cyclic_fleet()})
    with refuses(ConfigError, "recipe.levels"):
        recipe_for(RecipeOptions.model_validate({**LEVELS, "levels": "charge"}), {"a": cyclic_fleet()})


def test_a_recipe_without_levels_is_read_as_before() -> None:
    recipe = recipe_of(cyclic_fleet())
    old = {k: v for k, v in json.loads(recipe.to_json()).items() if k not in ("levels", "level_bounds")}
    assert Recipe.from_json(json.dumps(old)) == recipe
    with refuses(RecipeError):
        Recipe.from_json(json.dumps({**old, "levels": CYCLIC.sensors[0]}))


def test_cells_of_few_rows_stay_at_home() -> None:
    common = [series_unit(f"u{i}", 50, i, conditions=2) for i in range(3)]
    rare = series_unit("rare", 60, 9, conditions=2)
    settings = rare.settings.copy()
    settings[:5] = (42.0, 0.84)
    fleet = Fleet("f", series_fleet([30]).schema, (*common, replace(rare, settings=settings)))
    told = survey(fleet, SurveyTerms(conditions=RULE))
    assert set(told.cells) == {(0.0, 0.0), (20.0, 0.7)}
    assert told.withheld == 1


def test_a_client_with_too_few_labels_cannot_be_surveyed() -> None:
    with refuses(DataError, 12, "recipe.min_count"):
        survey(series_fleet([12], conditions=1), SurveyTerms())


def test_conditions_too_fine_for_the_data_are_an_error_of_their_own() -> None:
    with refuses(DataError):
        survey(series_fleet([60]), SurveyTerms(conditions={"altitude": 6}))


def test_an_unseen_condition_is_scaled_as_the_nearest_with_a_warning() -> None:
    seen, unseen = series_fleet([80, 80], conditions=2), series_fleet([40], seed=5, conditions=3)
    recipe = recipe_of(seen, conditions=RULE)
    with pytest.warns(ConditionWarning):
        windows = build_windows(recipe, unseen)
    third = unseen.units[0].settings[:, 0] > 30
    in_window = [third[last - 9 : last + 1].any() for last in range(9, 40)]
    assert ((windows.odd & UNSEEN) > 0).tolist() == in_window
    scaled, met = recipe.scale(unseen.units[0].sensors, unseen.units[0].settings)
    assert met.tolist() == third.tolist()
    nearest = recipe.condition_keys.index((20.0, 0.7))
    expected = (unseen.units[0].sensors[third] - np.array(recipe.mean[nearest])) / np.array(recipe.std[nearest])
    np.testing.assert_allclose(scaled[third], expected, rtol=1e-5)


def test_json_gives_the_same_recipe_back() -> None:
    for recipe in (recipe_of(series_fleet([150]), conditions=RULE, setting_inputs=True), recipe_of(cyclic_fleet())):
        again = Recipe.from_json(recipe.to_json())
        assert again == recipe
        recipe.scale(np.zeros((3, 2)), np.zeros((3, len(recipe.settings))))
        assert again == recipe  # what was used for scaling is not part of what it is
        assert again != recipe.model_copy(update={"label_mean": 7.5})
        assert again.to_json() == recipe.to_json()


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"std": [[0.0, 1.0]]},
        {"mean": [[1.0]]},
        {"label_std": -1},
        {"surprise": 1},
        {"window": 0},
        {"settings": ["altitude", "mach", "altitude"]},
        {"conditions": {"elsewhere": 0}},
        {"condition_keys": [[0.0]]},
        {"conditions": {"altitude": 10**30}},
    ],
)
def test_an_altered_recipe_is_refused(change: dict[str, object]) -> None:
    raw = {**json.loads(recipe_of(series_fleet([50], conditions=1)).to_json()), **change}
    with refuses(RecipeError, "recipe"):
        Recipe.from_json(json.dumps(raw))


def test_data_that_does_not_fit_is_refused_by_name() -> None:
    recipe = recipe_of(series_fleet([150]), conditions=RULE)
    with refuses(RecipeError, "soh"):
        build_windows(recipe, cyclic_fleet())
    fewer = series_fleet([50]).with_sensors(["temperature"])
    with refuses(RecipeError, "sensor 'pressure'"):
        build_windows(recipe, fewer)


def test_columns_are_found_by_name_not_by_place() -> None:
    fleet = series_fleet([150])
    recipe = recipe_of(fleet, conditions=RULE)
    turned = fleet.with_sensors(["temperature", "pressure"])
    np.testing.assert_array_equal(build_windows(recipe, fleet).features, build_windows(recipe, turned).features)


def test_a_constant_sensor_is_refused_with_what_to_drop() -> None:
    fleet = series_fleet([50], conditions=1)
    flat = fleet.units[0].sensors.copy()
    flat[:, 1] = 7.0
    fleet = fleet.select([replace(fleet.units[0], sensors=flat)])
    with refuses(RecipeError, 'recipe.drop = ["temperature"]'):
        recipe_of(fleet)
    assert recipe_of(fleet, drop=["temperature"]).sensors == ("pressure",)


def test_wrong_names_in_the_section_are_errors() -> None:
    fleet = series_fleet([50])
    with refuses(ConfigError, "recipe.drop", "'presure'"):
        recipe_of(fleet, drop=["presure"])
    with refuses(ConfigError, "'speed'"):
        recipe_of(fleet, conditions={"speed": 0})
    with refuses(ConfigError, "recipe.history"):
        recipe_of(fleet, window=None)


def test_labels_are_capped_and_come_back_clipped() -> None:
    recipe = recipe_of(series_fleet([100]), cap=40)
    labels = np.array([0.0, 39.0, 40.0, 90.0])
    np.testing.assert_allclose(recipe.decode(recipe.encode(labels)), [0, 39, 40, 40], atol=1e-9)
    np.testing.assert_allclose(recipe.decode(np.array([-1e3, 1e3])), [0, 40])


def test_state_of_health_is_the_share_of_the_rated_capacity() -> None:
    fleet = cyclic_fleet()
    windows = build_windows(recipe_of(fleet, label="relative"), fleet)
    first = fleet.units[0].target
    assert first is not None
    np.testing.assert_allclose(windows.labels[: len(first)], first / 2.0)
    with refuses(DataError, "rated_capacity"):
        recipe_of(Fleet("x", CYCLIC, (replace(fleet.units[0], attributes={}),)), label="relative")


def test_extra_inputs_are_settings_and_one_hot_conditions() -> None:
    fleet = series_fleet([120])
    recipe = recipe_of(fleet, conditions=RULE, setting_inputs=True, condition_inputs=True)
    assert recipe.channels == 2 + 2 + 3
    rows = build_windows(recipe, fleet).features
    np.testing.assert_array_equal(rows[:, 4:].sum(axis=1), 1)
    np.testing.assert_allclose(rows[:, 2:4].mean(axis=0), 0, atol=1e-5)
