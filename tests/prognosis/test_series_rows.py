"""Many rows taken side by side give the healths that single rows give."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import bundle_of

from fedprognos.features import Recipe, recipe_for
from fedprognos.features.recipe_options import RecipeOptions
from fedprognos.fleet import Fleet
from fedprognos.networks import Novelty
from fedprognos.prognosis import Health, Predictor, Stream, Update, Verdict
from fedprognos.prognosis import stream as stream_module
from fedprognos.prognosis.health import HealthTable, RowTable
from fedprognos.tables import TableLayout

SENSORS = 4
LOADS = np.array([1.0, -1.0, 0.5, 2.0])


def lives(rng: np.random.Generator, units: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Sensors (units, rows, sensors) of machines that wear, and a setting with two values."""
    wear = np.linspace(0, 2, rows)[:, None] * LOADS
    values = wear + rng.normal(0, 1, (units, rows, SENSORS))
    values[..., 3] = values[..., 3].round()  # often the same twice
    setting = rng.integers(0, 2, (units, rows, 1)).astype(float)
    return 50 + 5 * values + 20 * setting, setting


def trained(history: str | int = "life", short: str = "exclude", **extra: int) -> Recipe:
    sensors, setting = lives(np.random.default_rng(0), 40, 60)
    columns = {f"s{k}": sensors[..., k].ravel() for k in range(SENSORS)}
    time = np.tile(np.arange(1.0, 61.0), 40)
    unit = np.repeat([f"t{k}" for k in range(40)], 60)
    frame = pd.DataFrame({"unit": unit, "time": time, "load": setting.ravel(), **columns})
    fleet = Fleet.from_frame(frame, unit="unit", time="time", settings=["load"])
    options = RecipeOptions(history=history, short=short, cap=40, conditions={"load": 0}, channels=extra)
    return recipe_for(options, {"all": fleet})


def model(recipe: Recipe, *, worn: bool = False, hold: bool = True) -> Predictor:
    bundle = bundle_of(recipe, (5,), cell="gru", reservoir=4)
    novelty = Novelty(mean=(0.0,) * 5, whitening=tuple(tuple(6.0 * (i == j) for j in range(5)) for i in range(5)))
    layout = {"time": "time", "unit": "unit", "settings": ("load",), "missing": "hold" if hold else "mean"}
    if worn:
        layout |= {"health": "s0", "end_of_life": 0.9}
    table = TableLayout.model_validate(layout)
    return Predictor.from_bundle(dataclasses.replace(bundle, novelty=novelty, table=table))


RECIPES = {
    "plain": trained(),
    "channels": trained(age=20, mean=5),
    "window": trained(history=12),
    "padded": trained(history=12, short="pad", age=20),
}
assert RECIPES["plain"].usual is not None and RECIPES["plain"].usual.joint is not None


def disturbed(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions, sensors and setting of a machine with some of everything that can be odd."""
    sensors, setting = (values[0] for values in lives(rng, 1, rows))
    position = np.arange(1.0, rows + 1) + (100.0 if rng.random() < 0.2 else 0.0)
    column, start = rng.integers(SENSORS), rng.integers(rows)
    kind = rng.integers(9)
    if kind == 1:
        glitches = rng.random(sensors.shape) < 0.05
        sensors[glitches] *= rng.choice([0.0, 3.0, 1e9])
    elif kind == 2:
        sensors[start:, column] += rng.normal(0, 30)
    elif kind == 3:
        sensors[start:, column] = sensors[start, column]
    elif kind == 4:
        sensors[start:, column] = sensors[start, column] + 0.01 * rng.normal(size=rows - start)
    elif kind == 5:
        sensors[rng.random(sensors.shape) < 0.2] = np.nan
    elif kind == 6:
        sensors[start : start + 40, column] = np.nan
    elif kind == 7:
        sensors[start:] += 10 * rng.normal(size=SENSORS)
        sensors[rng.random(sensors.shape) < 0.02] = 1e6
    elif kind == 8:
        sensors[start:, column] *= 1e30
    clock = rng.integers(8)
    if clock == 1:
        position[start:] += 1e6
    elif clock == 2:
        position[start] = position[start - 1]
    elif clock == 3:
        position[start:] -= 3
    elif clock == 4:
        setting[rng.random(setting.shape) < 0.1] = np.nan
    elif clock == 5:
        position = np.cumsum(rng.choice([0.5, 1.0, 7.0], rows))
    return position, sensors, setting


def table(rng: np.random.Generator, mixed: bool) -> RowTable:
    """Rows of several machines, one of them repaired, unit by unit or mixed."""
    parts = [(f"m{k}" if k else "m1#2", *disturbed(rng, int(rng.integers(1, 70)))) for k in (1, 0, 2, 3, 4, 5)]
    names = np.repeat([name for name, *_ in parts], [len(part[1]) for part in parts])
    position, sensors, setting = (np.concatenate([part[k] for part in parts]) for k in (1, 2, 3))
    order = np.arange(len(names))
    if mixed:  # each unit's rows keep their order
        drawn = rng.permutation(names)
        order[np.argsort(drawn, kind="stable")] = np.argsort(names, kind="stable")
    return RowTable(
        names[order].tolist(),
        position[order].tolist(),
        [None] * len(names),
        [False] * len(names),
        sensors[order],
        setting[order],
    )


def same_health(one: Health | None, other: Health | None) -> None:
    if one is None or other is None:
        assert one is other
        return
    for name in ("unit", "position", "state", "reason", "flags"):
        assert getattr(one, name) == getattr(other, name)
    for name in ("value", "low", "high"):
        a, b = getattr(one, name), getattr(other, name)
        assert (a is None) == (b is None) and (a is None or abs(a - b) < 1e-4)


def same_updates(ones: list[Update], others: list[Update]) -> None:
    assert len(ones) == len(others)
    for one, other in zip(ones, others, strict=True):
        key = (one.unit, one.position, one.verdict, one.reason, len(one.healths))
        assert key == (other.unit, other.position, other.verdict, other.reason, len(other.healths))
        same_health(one.health, other.health)


@pytest.mark.parametrize("kind", ["plain", "channels", "worn", "mean", "window", "padded"])
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10**6), mixed=st.booleans())
def test_rows_side_by_side_are_rows_one_by_one(kind: str, seed: int, mixed: bool) -> None:
    rng = np.random.default_rng(seed)
    predictor = model(RECIPES.get(kind, RECIPES["plain"]), worn=kind == "worn", hold=kind != "mean")
    single, many = Stream(predictor), Stream(predictor)
    rows = table(rng, mixed)
    cut = sorted(rng.integers(0, len(rows) + 1, 2).tolist())
    for a, b in zip((0, *cut), (*cut, len(rows)), strict=True):
        part = rows.part(slice(a, b))
        one_by_one = [update for k in range(len(part)) for update in single.feed_table(part.part(slice(k, k + 1)))]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stream_module, "LEAST_BLOCK", 1)
            same_updates(one_by_one, many.feed_table(part))
        if rng.random() < 0.5:
            for stream in (single, many):
                stream.acknowledge("m2", "s1" if seed % 2 else None)
    assert (single.counts, single.filled, single.units()) == (many.counts, many.filled, many.units())
    for name in single.units():
        same_health(single.health(name), many.health(name))
        one, other = single._states[name].snapshot(), many._states[name].snapshot()
        for array, numbers in one.items():
            exact = array != "memory"
            np.testing.assert_allclose(numbers, other[array], rtol=0, atol=0 if exact else 1e-5, err_msg=array)


def test_a_table_of_healths_gives_them_back() -> None:
    healths = [
        Health("a", 1.0, 5.0, 2.0, None, flags=("gap",), reason="why"),
        Health("b", 2.0, None, state="cannot-say", reason="too short"),
        Health("a", 3.0, 4.0, 0.0, 9.0),
    ]
    whole = HealthTable.from_healths(healths)
    assert whole.healths() == healths
    assert whole.healths([2, 0]) == [healths[2], healths[0]]
    parts = [HealthTable.from_healths(healths[1:2]), HealthTable.from_healths([healths[0], healths[2]])]
    assert HealthTable.joined(parts, [np.array([1]), np.array([0, 2])]).healths() == healths
    assert HealthTable.from_healths([]).healths() == []


def test_columns_are_those_of_single_healths() -> None:
    predictor = model(RECIPES["plain"])
    rows = table(np.random.default_rng(5), mixed=True)
    updates = Stream(predictor).feed_table(rows)
    found, refused = Stream(predictor).feed_columns(rows)
    for one, other in zip((h for u in updates for h in u.healths), found.healths(), strict=True):
        same_health(one, other)
    first = next((k for k, update in enumerate(updates) if update.verdict is not Verdict.ACCEPTED), None)
    assert (None if refused is None else refused[0]) == first
