"""Whole lives online: row by row is the same as all at once, and a snapshot goes on as if nothing had happened."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_models import interleaved

from fedprognos.errors import DataError
from fedprognos.experiment import config
from fedprognos.experiment.experiment_run import load_fleets
from fedprognos.features import Recipe, recipe_for
from fedprognos.networks import Bundle, Network, NetworkSpec
from fedprognos.prognosis import Predictor, Row, Stream
from fedprognos.prognosis.onnx_runtime import OnnxPredictor
from refusals import refuses
from small_fleets import recipe_of, series_fleet

FLEET = series_fleet([30, 45, 61, 2])
RECIPE = recipe_of(FLEET, window=None, history="life", cap=40, conditions={"altitude": 0})


def bundle_of(
    seed: int = 0, cell: str = "gru", reservoir: int = 8, widths: tuple[int, ...] = (6,), recipe: Recipe = RECIPE
) -> Bundle:
    spec = NetworkSpec(inputs=recipe.channels, widths=widths, cell=cell, reservoir=reservoir, direct=1)
    head = np.random.default_rng(seed).normal(size=spec.features + 1) / np.sqrt(spec.features)
    return Bundle(recipe, Network.seeded(spec, seed).with_head(head))


def rows_of(fleet) -> list[Row]:  # type: ignore[no-untyped-def]
    """All rows of a fleet, in the order of their times, units mixed."""
    rows = []
    for unit in fleet:
        for t, sensors, settings in zip(unit.time, unit.sensors, unit.settings, strict=True):
            values = dict(zip(fleet.schema.sensors, sensors.tolist(), strict=True))
            rows.append(
                Row(unit.id, float(t), values, dict(zip(fleet.schema.settings, settings.tolist(), strict=True)))
            )
    return sorted(rows, key=lambda row: row.position)


@pytest.mark.parametrize(("cell", "reservoir", "widths"), [("gru", 8, (6,)), ("lstm", 0, (5, 4)), ("gru", 9, ())])
def test_row_by_row_is_all_at_once(cell: str, reservoir: int, widths: tuple[int, ...]) -> None:
    predictor = Predictor.from_bundle(bundle_of(cell=cell, reservoir=reservoir, widths=widths))
    offline = {(h.unit, h.position): h.value for h in predictor.predict(FLEET, last=False)}
    stream = predictor.stream()
    online = {}
    rows = rows_of(FLEET)
    for start in range(0, len(rows), 17):  # several rows of a unit at once, and one alone
        for update in stream.feed_many(rows[start : start + 17]):
            online[update.unit, update.position] = update.healths[-1].value
    assert online.keys() == offline.keys()
    spread = RECIPE.label_std
    assert max(abs(online[k] - offline[k]) for k in offline) < 1e-5 * spread
    last = {h.unit: h.value for h in predictor.predict(FLEET)}
    assert all(abs(stream.health(unit).value - value) < 1e-5 * spread for unit, value in last.items())


@pytest.mark.long
@pytest.mark.needs_data("cmapss")
@pytest.mark.parametrize(("cell", "widths", "reservoir"), [("gru", (64,), 200), ("lstm", (24, 16), 0)])
def test_real_lives_row_by_row_are_the_offline_numbers(cell: str, widths: tuple[int, ...], reservoir: int) -> None:
    train, test = load_fleets("turbofan")
    life = config.load("turbofan")[1].recipe.model_copy(update={"history": "life", "window": None})
    recipe = recipe_for(life, {"all": train})
    engines = sorted(test, key=lambda unit: -unit.rows)
    fleet = test.select([*engines[:6], *engines[-4:]])
    bundle = bundle_of(0, cell, reservoir, widths, recipe)
    offline = bundle.predict(fleet, last=False)
    rows = interleaved(fleet, recipe)
    for predictor in (Predictor.from_bundle(bundle), OnnxPredictor.from_bundle(bundle)):
        stream = predictor.stream()
        online: dict[str, list[float]] = {unit: [] for unit in fleet.ids}
        for k in range(0, len(rows), 7):
            for update in stream.feed_many(rows[k : k + 7]):
                online[update.unit].append(update.healths[-1].value)
        for unit in fleet.ids:
            np.testing.assert_allclose(online[unit], offline[unit], atol=1e-5 * recipe.label_std)


def test_a_snapshot_goes_on_and_that_of_another_model_is_refused(tmp_path: Path) -> None:
    predictor, rows = Predictor.from_bundle(bundle_of()), rows_of(FLEET)
    whole, cut = predictor.stream(), predictor.stream()
    for row in rows:
        whole.feed_many([row])
    for row in rows[:40]:
        cut.feed_many([row])
    cut.snapshot(tmp_path / "state")
    again = predictor.stream()
    again.restore(tmp_path / "state")
    for row in rows[40:]:
        again.feed_many([row])
    assert [h.value for h in again.healths(FLEET.ids)] == [h.value for h in whole.healths(FLEET.ids)]
    with refuses(DataError, tmp_path / "state"):
        Predictor.from_bundle(bundle_of(seed=1)).stream().restore(tmp_path / "state")


def test_a_unit_that_begins_in_mid_life_is_read_from_there_and_says_so() -> None:
    predictor, unit = Predictor.from_bundle(bundle_of()), FLEET.units[2]
    late = replace(unit, time=unit.time[36:], sensors=unit.sensors[36:], settings=unit.settings[36:])
    stream = predictor.stream()
    found = [update.health for update in stream.feed_many(rows_of(FLEET.select([late])))]
    assert [h.value for h in found] == pytest.approx(
        predictor.bundle.predict(FLEET.select([late]), last=False)[unit.id]
    )
    assert all(h.flags[0] == "mid-life" and h.reason.startswith("watched from 37 on") for h in found)
    whole = [update.health for update in predictor.stream().feed_many(rows_of(FLEET))]
    assert not any("mid-life" in h.flags for h in whole)


def test_a_life_of_one_row_has_a_health() -> None:
    (row, *_) = rows_of(FLEET)
    health = Predictor.from_bundle(bundle_of()).stream().feed_many([row])[0].health
    assert health.state == "ok" and health.value is not None


def test_a_row_that_comes_twice_changes_nothing() -> None:
    predictor, rows = Predictor.from_bundle(bundle_of()), rows_of(FLEET)
    once, twice = predictor.stream(), predictor.stream()
    for row in rows:
        once.feed_many([row])
        twice.feed_many([row, row])
    assert [h.value for h in once.healths(FLEET.ids)] == [h.value for h in twice.healths(FLEET.ids)]


def test_a_unit_costs_the_same_at_any_age() -> None:
    predictor = Predictor.from_bundle(bundle_of())
    stream = Stream(predictor)
    sensors = dict.fromkeys(FLEET.schema.sensors, 1.0)
    settings = dict.fromkeys(FLEET.schema.settings, 0.0)
    for t in range(1, 2000):
        stream.feed("old", t, sensors, settings)
    assert sum(a.nbytes for a in stream._states["old"].snapshot().values()) < 500


def test_a_later_life_keeps_the_clock_of_its_machine() -> None:
    stream = Predictor.from_bundle(bundle_of()).stream()
    rows = [row for row in rows_of(FLEET) if row.unit == FLEET.ids[2]]
    first = [replace(row, unit="pump") for row in rows]
    second = [replace(row, unit="pump#2", position=row.position + 400) for row in rows[:5]]
    stream.feed_many(first)
    health = stream.feed_many(second)[-1].health
    assert health is not None and health.position == rows[4].position + 400 and "mid-life" not in health.flags
    alone = Predictor.from_bundle(bundle_of()).stream().feed_many(second)[-1].health
    assert alone is not None and "mid-life" in alone.flags  # nothing is known of an earlier life
