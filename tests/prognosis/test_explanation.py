"""Why a health is what it is: effects agree with captum, add up, name the right sensor, and run on every engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from captum.attr import IntegratedGradients
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import RULE, bundle_of

from fedprognos.errors import ConfigError, DataError
from fedprognos.features.sensor_ranges import JointLevels
from fedprognos.fleet import Fleet, Unit
from fedprognos.prognosis import Predictor, explain
from fedprognos.prognosis.explanation import FIRST_ROWS
from fedprognos.prognosis.onnx_runtime import OnnxPredictor
from fedprognos.prognosis.predictor import table_of
from fedprognos.prognosis.stream import Stream
from fedprognos.prognosis.table_prediction import predict_files
from refusals import refuses
from small_fleets import cyclic_fleet, recipe_of, series_fleet

ENGINES, CELLS = series_fleet([80, 70, 60, 50]), cyclic_fleet(units=2, cycles=12)
LIFE = bundle_of(recipe_of(ENGINES, window=None, history="life", conditions=RULE, cap=80))
WINDOW = bundle_of(recipe_of(ENGINES, conditions=RULE, cap=80))


def rows_of(unit: Unit, predictor: Predictor, fleet: Fleet = ENGINES):  # type: ignore[no-untyped-def]
    return table_of(unit, predictor.recipe.check(fleet.schema, "test"))


def effects(predictor: Predictor, unit: Unit, fleet: Fleet = ENGINES) -> dict[str, float]:
    explained = explain(predictor, rows_of(unit, predictor, fleet))
    return {cause.sensor: cause.effect for cause in explained.causes}


@pytest.mark.parametrize("bundle", [LIFE, WINDOW], ids=["life", "window"])
def test_effects_are_those_of_captum(bundle) -> None:  # type: ignore[no-untyped-def]
    predictor, unit = Predictor.from_bundle(bundle), ENGINES.units[0]
    recipe, table = predictor.recipe, rows_of(ENGINES.units[0], predictor)
    scaled = recipe.scale(table.sensors, table.settings)[0]
    first = scaled.copy()
    first[:, : len(recipe.sensors)] = scaled[:FIRST_ROWS, : len(recipe.sensors)].mean(axis=0)
    length = len(scaled) if recipe.life else recipe.window
    referee = IntegratedGradients(bundle.network.module().eval())
    inputs, baseline = (torch.from_numpy(rows[None, -length:].copy()) for rows in (scaled, first))
    by_row = referee.attribute(inputs, baseline, n_steps=100).numpy()[0]
    expected = dict(zip(recipe.sensors, by_row.sum(axis=0) * recipe.label_std, strict=False))
    assert effects(predictor, unit) == pytest.approx(expected, rel=0.02, abs=0.02 * recipe.label_std)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 3), st.sampled_from([LIFE, WINDOW]))
def test_effects_add_up_to_what_all_sensors_changed(unit: int, bundle) -> None:  # type: ignore[no-untyped-def]
    predictor = Predictor.from_bundle(bundle)
    explained = explain(predictor, rows_of(ENGINES.units[unit], predictor))
    total = sum(cause.effect for cause in explained.causes)
    assert total == pytest.approx(explained.total, abs=0.02 * predictor.recipe.label_std)


def test_without_its_first_causes_a_health_goes_back_further_than_without_its_last() -> None:
    predictor = Predictor.from_bundle(LIFE)
    further = 0
    for unit in ENGINES:
        explained = explain(predictor, rows_of(unit, predictor))
        order = sorted(explained.causes, key=lambda cause: cause.effect * np.sign(explained.total), reverse=True)
        changes = []
        for cause in (order[0], order[-1]):
            k = ENGINES.schema.sensors.index(cause.sensor)
            values = unit.sensors.copy()
            # in units of the condition, because sensors stand elsewhere in each
            values[FIRST_ROWS:, k] = predictor.recipe.means(unit.settings[FIRST_ROWS:])[
                :, predictor.recipe.sensors.index(cause.sensor)
            ]
            deleted = explain(predictor, rows_of(replace(unit, sensors=values), predictor))
            changes.append((explained.total - deleted.total) * np.sign(explained.total))
        further += changes[0] > changes[1]
    assert further == len(ENGINES)


def test_a_sensor_that_leaves_its_range_comes_first() -> None:
    predictor, unit = Predictor.from_bundle(LIFE), ENGINES.units[0]
    deviation = np.array(predictor.recipe.std).max(axis=0)
    for k, name in enumerate(predictor.recipe.sensors):
        column = ENGINES.schema.sensors.index(name)
        values = unit.sensors.copy()
        values[45:, column] += 5.5 * deviation[k]
        explained = explain(predictor, rows_of(replace(unit, sensors=values), predictor))
        assert explained.causes[0].sensor == name and explained.causes[0].broken
        assert 40 <= (explained.causes[0].since or 0) <= 60


def test_a_sensor_for_which_intervals_widen_comes_before_larger_effects() -> None:
    predictor, table = Predictor.from_bundle(LIFE), rows_of(ENGINES.units[0], Predictor.from_bundle(LIFE))
    watched = Stream(predictor, trusting=True)
    watched.feed_table(table)
    (state,) = watched._states.values()
    width = len(predictor.recipe.sensors)
    for k, name in enumerate(predictor.recipe.sensors):
        mean = state.sensors.level - 2.9 * (np.arange(width) == k)  # of six standard errors, so none is flagged
        joint = JointLevels.from_moments(900, 64, mean, 0.99 * np.eye(width), (0.0,) * width)
        usual = predictor.recipe.usual.model_copy(update={"joint": joint})  # type: ignore[union-attr]
        doubting = replace(LIFE, recipe=predictor.recipe.model_copy(update={"usual": usual}))
        cause = explain(Predictor.from_bundle(doubting), table).causes[0]
        assert (cause.sensor, cause.odd, cause.broken) == (name, True, False)


def test_a_sensor_that_is_blank_for_long_comes_first() -> None:
    for bundle in (LIFE, WINDOW):
        predictor, values = Predictor.from_bundle(bundle), ENGINES.units[0].sensors.copy()
        column = ENGINES.schema.sensors.index(predictor.recipe.sensors[-1])
        values[10:, column] = np.nan
        explained = explain(predictor, rows_of(replace(ENGINES.units[0], sensors=values), predictor))
        assert explained.causes[0].sensor == predictor.recipe.sensors[-1] and explained.causes[0].broken


def test_rows_side_by_side_are_what_the_network_sees_one_by_one() -> None:
    predictor, unit = Predictor.from_bundle(LIFE), ENGINES.units[0]
    values = unit.sensors.copy()
    values[[3, 20, 21], 0], values[30, 1], values[40:, 1] = np.nan, 1e6, values[40, 1]
    table = rows_of(replace(unit, sensors=values), predictor)
    life = Stream(predictor, trusting=True).life_inputs(table)
    assert life is not None
    questions = Stream(predictor, trusting=True).inputs(table)
    np.testing.assert_allclose(life[0], [question.window[-1] for question in questions], atol=1e-6)
    watched = questions[-1].state.sensors
    assert watched.latched.any() and (life[1].sensors.latched == watched.latched).all()
    assert life[1].sensors.excess == pytest.approx(watched.excess)


def test_onnx_explains_as_torch_does() -> None:
    for bundle in (LIFE, WINDOW):
        torch_effects = effects(Predictor.from_bundle(bundle), ENGINES.units[1])
        assert effects(OnnxPredictor.from_bundle(bundle), ENGINES.units[1]) == pytest.approx(torch_effects, abs=0.05)


def test_cycles_are_compared_with_the_first_one() -> None:
    predictor = Predictor.from_bundle(bundle_of(recipe_of(CELLS)))
    explained = explain(predictor, rows_of(CELLS.units[0], predictor, CELLS))
    assert explained.since == CELLS.units[0].cycle_numbers[0]
    total = sum(cause.effect for cause in explained.causes)
    assert total == pytest.approx(explained.total, abs=0.02 * predictor.recipe.label_std)


def test_too_few_rows_explain_nothing() -> None:
    predictor = Predictor.from_bundle(WINDOW)
    with refuses(DataError, ENGINES.units[0].id):
        explain(predictor, rows_of(ENGINES.units[0], predictor).part(slice(0, 1)))


def test_files_are_explained_for_the_latest_health_alone(tmp_path: Path) -> None:
    frame = pd.DataFrame(ENGINES.units[0].sensors, columns=list(ENGINES.schema.sensors))
    frame[list(ENGINES.schema.settings)] = ENGINES.units[0].settings
    frame.assign(unit="pump", cycle=ENGINES.units[0].time).to_csv(tmp_path / "rows.csv", index=False)
    predictor = Predictor.from_bundle(LIFE)
    predict_files(predictor, tmp_path / "rows.csv", tmp_path / "health.csv", why=True)
    explained = explain(predictor, rows_of(ENGINES.units[0], predictor))
    (told,) = pd.read_csv(tmp_path / "health.csv")["why"]
    assert told == explained.words and explained.causes[0].sensor in told
    with refuses(ConfigError, "--why"):
        predict_files(predictor, tmp_path / "rows.csv", every=True, why=True)
