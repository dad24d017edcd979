"""Blank values online: what stands in for them is what a whole history read at once would have."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import RULE, bundle_of, rows_of

from fedprognos.prognosis import Predictor, Stream
from fedprognos.tables.columns import Policy, TableLayout
from fedprognos.tables.value_rules import fill
from small_fleets import cyclic_fleet, recipe_of, series_fleet

FLEETS = {"window": series_fleet([40, 31]), "life": series_fleet([40, 31]), "cycles": cyclic_fleet(2, 12)}
OPTIONS = {
    "window": {"conditions": RULE},
    "life": {"conditions": RULE, "window": None, "history": "life"},
    "cycles": {},
}
BUNDLES = {kind: bundle_of(recipe_of(fleet, **OPTIONS[kind])) for kind, fleet in FLEETS.items()}  # type: ignore[arg-type]


def predictor(kind: str, policy: Policy) -> Predictor:
    cycle = {"task": "soh", "cycle": "cycle"} if kind == "cycles" else {}
    table = TableLayout.model_validate({"time": "time", "settings": ("altitude", "mach"), "missing": policy, **cycle})
    return Predictor.from_bundle(dataclasses.replace(BUNDLES[kind], table=table))


@pytest.mark.parametrize("kind", FLEETS)
@pytest.mark.parametrize("policy", ["hold", "mean"])
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 999), at_once=st.sampled_from([1, 9, 1000]))
def test_what_stands_in_for_blanks_is_that_of_the_whole_history(
    kind: str, policy: Policy, seed: int, at_once: int
) -> None:
    fleet, model = FLEETS[kind], predictor(kind, policy)
    rng, recipe = np.random.default_rng(seed), model.recipe
    whole, rows = [], []
    for unit in fleet:
        blank = rng.random(unit.sensors.shape) < 0.2
        given_rows = rows_of(unit, fleet, recipe)
        for k, row in enumerate(given_rows):
            sensors = {n: None if blank[k, c] else v for c, (n, v) in enumerate(row.sensors.items())}
            rows.append(dataclasses.replace(row, sensors=sensors))
        values = np.where(blank, np.nan, unit.sensors)
        edges = [0, unit.rows] if unit.cycles is None else unit.cycles.tolist()
        for a, b in itertools.pairwise(edges):
            means = recipe.means(unit.settings[a:b])
            values[a:b] = fill(values[a:b], unit.time[a:b], [policy] * values.shape[1], means)
        whole.append(dataclasses.replace(unit, sensors=values))
    expected = {(h.unit, h.position): h.value for h in model.predict(fleet.select(whole), last=False)}
    stream = Stream(model)
    found = {}
    for a in range(0, len(rows), at_once):
        found |= {(h.unit, h.position): h.value for u in stream.feed_many(rows[a : a + at_once]) for h in u.healths}
    found |= {(h.unit, h.position): h.value for h in stream.finish()}
    for key, value in expected.items():
        if value is not None:
            assert found[key] == pytest.approx(value, abs=1e-5 * recipe.label_std)
    assert sum(stream.filled.values()) == sum(v is None for row in rows for v in row.sensors.values())


def test_a_setting_that_was_never_known_is_refused_and_held_later() -> None:
    stream = Stream(predictor("life", "hold"))
    sensors = {"pressure": 500.0, "temperature": 20.0}
    first = stream.feed("e", 1, sensors, {"altitude": None, "mach": 0.0})
    assert first.reason == "operating setting 'altitude' is blank, and nothing is known of it yet"
    assert stream.feed("e", 1, sensors, {"altitude": 0.0, "mach": 0.0}).accepted
    assert stream.feed("e", 2, sensors, {"altitude": None, "mach": 0.0}).accepted


def test_what_is_held_survives_a_restart(tmp_path: Path) -> None:
    model, fleet = predictor("life", "hold"), FLEETS["life"]
    rows = rows_of(fleet.units[0], fleet, model.recipe)
    last = dataclasses.replace(
        rows[10], sensors=dict.fromkeys(rows[10].sensors), settings=dict.fromkeys(rows[10].settings)
    )
    one = Stream(model)
    one.feed_many(rows[:10])
    one.snapshot(tmp_path / "s")
    two = Stream(model)
    two.restore(tmp_path / "s")
    expected, found = one.feed_many([last])[0].health, two.feed_many([last])[0].health
    assert found == expected and found is not None and found.value is not None


def test_a_policy_may_refuse() -> None:
    stream = Stream(predictor("life", "refuse"))
    update = stream.feed("e", 1, {"pressure": None, "temperature": 1.0}, {"altitude": 0.0, "mach": 0.0})
    assert update.reason == "sensor 'pressure' is None, not a number"
