"""The contract of every history rule: rows fed one by one give the windows of the batch, to the last bit."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprognos.errors import ConfigError, RecipeError
from fedprognos.experiment import config
from fedprognos.experiment.experiment_run import load_fleets
from fedprognos.features import (
    ConditionWarning,
    Recipe,
    WindowSet,
    build_windows,
    make_recipe,
    recipe_for,
    survey,
    survey_terms,
)
from fedprognos.features.history import GAP, PADDED, STRETCHED, Cut, History, histories, rule_of
from fedprognos.features.history.at_levels import at_levels, looked_at
from fedprognos.features.history.grid import on_grid
from fedprognos.features.recipe_options import RecipeOptions
from fedprognos.fleet import Fleet, Schema, Unit
from fedprognos.options import validated
from refusals import refuses
from small_fleets import cyclic_fleet

LEVELS = ((0.0, 0.0), (20.0, 0.7), (42.0, 0.84))
SERIES = Schema("rul", ("pressure", "temperature"), ("altitude", "mach"))
CYCLIC = Schema("soh", ("voltage", "heat"), ("load",), time="time_in_s", target="capacity", target_measure="Ah")


def recipe_of(draw: st.DrawFn, schema: Schema, **parts: object) -> Recipe:
    """A recipe as no survey would make it: any scaling, one condition or several, everything told or not."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    many, told = draw(st.booleans()) and parts.get("cycle") != "levels", draw(st.booleans())
    rule = dict.fromkeys(schema.settings, 1) if many else {}
    keys = tuple(level[: len(rule)] for level in LEVELS) if many else ((),)
    shape = (len(keys), len(schema.sensors))
    feed = draw(st.booleans())
    return Recipe(
        task=schema.task,
        sensors=schema.sensors,
        settings=schema.settings if feed or many else (),
        conditions=rule,
        condition_keys=keys,
        condition_inputs=told and many,
        mean=rng.normal(0, 100, shape).tolist(),
        std=rng.uniform(0.01, 50, shape).tolist(),
        setting_mean=rng.normal(0, 5, len(schema.settings)).tolist() if feed else (),
        setting_std=rng.uniform(0.1, 5, len(schema.settings)).tolist() if feed else (),
        short=draw(st.sampled_from(["exclude", "pad"])),
        **parts,
    )


def values_of(rng: np.random.Generator, rows: int, schema: Schema) -> tuple[np.ndarray, np.ndarray]:
    """Sensors of any size and settings, some of them in a condition that no recipe knows."""
    which = rng.integers(len(LEVELS), size=rows)
    levels = np.array(LEVELS)[which, : len(schema.settings)] + rng.normal(0, 0.01, (rows, len(schema.settings)))
    levels[rng.random(rows) < 0.05] = 30.0
    return rng.normal(0, 100, (rows, len(schema.sensors))), levels


@st.composite
def series(draw: st.DrawFn) -> tuple[Recipe, Fleet]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lengths = draw(st.lists(st.integers(2, 30), min_size=1, max_size=3))
    units = [
        Unit(f"u{k}", np.cumsum(rng.integers(1, 4, n)).astype(float), *values_of(rng, n, SERIES), rul_at_end=0.0)
        for k, n in enumerate(lengths)
    ]
    return recipe_of(draw, SERIES, window=draw(st.integers(1, 20))), Fleet("f", SERIES, tuple(units))


@st.composite
def cyclic(draw: st.DrawFn) -> tuple[Recipe, Fleet]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    units = []
    for k in range(draw(st.integers(1, 2))):
        sizes = [2, *draw(st.lists(st.integers(1, 25), max_size=4))]
        start = rng.choice([0.0, 0.0, -1.0, 3.0])
        # Multiples of a half hit points of the grid exactly, too.
        times = [start + np.cumsum(rng.integers(1, 9, n)) * 0.5 for n in sizes]
        numbers = np.cumsum(rng.integers(1, 3, len(sizes)))
        bounds = np.cumsum([0, *sizes])
        values = values_of(rng, bounds[-1], CYCLIC)
        facts = {"target": np.ones(len(sizes)), "cycles": bounds, "cycle_numbers": numbers}
        units.append(Unit(f"u{k}", np.concatenate(times), *values, **facts))
    kind = draw(st.sampled_from(["grid", "index", "levels"]))
    more = {"grid_end_in_s": draw(st.sampled_from([5.0, 12.5, 33.3, 80.0]))} if kind != "index" else {}
    if kind == "levels":
        more |= {"levels": "voltage", "level_bounds": draw(st.sampled_from([(90.0, -120.0), (500.0, 0.0)]))}
    recipe = recipe_of(draw, CYCLIC, window=draw(st.integers(2, 20)), cycle=kind, **more)
    return recipe, Fleet("f", CYCLIC, tuple(units))


@dataclass
class Fed:
    """A history being fed, row after row, each scaled by itself; it may be interrupted."""

    recipe: Recipe
    history: History
    rng: np.random.Generator

    def push(self, unit: Unit, k: int, columns: tuple[list[int], list[int]], marked: bool) -> tuple[Cut, ...]:
        scaled, unseen = self.recipe.scale(unit.sensors[k : k + 1, columns[0]], unit.settings[k : k + 1, columns[1]])
        if self.rng.random() < 0.2:
            kept = self.history.snapshot()
            self.history = rule_of(self.recipe).start(self.recipe)
            self.history.restore(kept)
        cycle, end = 0, False
        if unit.cycles is not None and unit.cycle_numbers is not None:
            at = int(np.searchsorted(unit.cycles, k, side="right")) - 1
            cycle, end = int(unit.cycle_numbers[at]), marked and k + 1 == unit.cycles[at + 1]
        return self.history.push(scaled[0], float(unit.time[k]), cycle=cycle, end=end, unseen=bool(unseen[0]))


def fed(recipe: Recipe, fleet: Fleet, unit: Unit, seed: int = 0, marked: bool = False) -> list[tuple[Cut, ...]]:
    """What every row of a unit completed, and after the last the end of its history."""
    own = Fed(recipe, rule_of(recipe).start(recipe), np.random.default_rng(seed))
    columns = recipe.check(fleet.schema, "test")
    made = [own.push(unit, k, columns, marked) for k in range(unit.rows)]
    return [*made, own.history.close()]


def batch_of(recipe: Recipe, fleet: Fleet, **options: object) -> WindowSet | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConditionWarning)
        try:
            return build_windows(recipe, fleet, stride=1, labelled=False, **options)  # type: ignore[arg-type]
        except RecipeError:
            return None


def assert_same(cuts: list[Cut], windows: WindowSet | None, which: slice | np.ndarray = slice(None)) -> None:
    if windows is None:
        assert cuts == []
        return
    assert [cut.position for cut in cuts] == windows.position[which].tolist()
    assert [cut.odd for cut in cuts] == windows.odd[which].tolist()
    for cut, window in zip(cuts, windows.batch(which), strict=True):
        assert cut.window is not None
        assert cut.window.dtype == np.float32 and cut.window.tobytes() == window.tobytes()


@settings(max_examples=80, deadline=None)
@given(case=series(), seed=st.integers(0, 99))
def test_every_row_of_a_series_gives_the_last_window_of_the_history_so_far(
    case: tuple[Recipe, Fleet], seed: int
) -> None:
    recipe, fleet = case
    for unit in fleet:
        made = fed(recipe, fleet, unit, seed)
        for n in range(2, unit.rows + 1):
            assert_same(list(made[n - 1]), batch_of(recipe, fleet.select([unit.select_rows(n)]), points="last"))
        whole = [cut for one in made for cut in one if not cut.odd & PADDED or unit.rows < recipe.window]
        assert_same(whole[-1:] if unit.rows < recipe.window else whole, batch_of(recipe, fleet.select([unit])))


@settings(max_examples=120, deadline=None)
@given(case=cyclic(), seed=st.integers(0, 99), marked=st.booleans())
def test_cycles_fed_sample_by_sample_give_the_windows_of_the_batch(
    case: tuple[Recipe, Fleet], seed: int, marked: bool
) -> None:
    recipe, fleet = case
    windows = batch_of(recipe, fleet)
    for unit in fleet:
        cuts = [cut for one in fed(recipe, fleet, unit, seed, marked) for cut in one]
        whole = [cut for cut in cuts if cut.window is not None]
        assert len(cuts) == len(unit.positions)
        if windows is None or unit.id not in windows.unit_ids:
            assert whole == []
        else:
            assert_same(whole, windows, np.flatnonzero(windows.unit == windows.unit_ids.index(unit.id)))


@given(
    times=st.lists(st.integers(-5, 60), min_size=1, max_size=12, unique=True),
    points=st.integers(2, 30),
    seed=st.integers(0, 999),
)
def test_the_grid_is_filled_as_numpy_would(times: list[int], points: int, seed: int) -> None:
    time, grid = np.sort(np.array(times)) * 0.5, np.linspace(0.0, 25.0, points)
    rows = np.random.default_rng(seed).normal(0, 50, (len(time), 2)).astype(np.float32)
    plain = np.stack([np.interp(grid, time, rows[:, c]) for c in range(2)], axis=1).astype(np.float32)
    np.testing.assert_array_equal(on_grid(grid, time, rows), plain)


@given(
    times=st.lists(st.integers(0, 60), min_size=1, max_size=12, unique=True),
    points=st.integers(2, 30),
    seed=st.integers(0, 999),
)
def test_levels_are_met_when_numpy_says(times: list[int], points: int, seed: int) -> None:
    time, levels, end = np.sort(np.array(times)) * 0.5, np.linspace(70.0, -90.0, points), 25.0
    rows = np.random.default_rng(seed).normal(0, 50, (len(time), 2)).astype(np.float32)
    when, then = at_levels(levels, 0, end, *looked_at(end, time, rows))
    # Held before its first and after its last sample, as on a grid; a fall after the last sample never comes.
    inside = np.append(time[time < end], end)
    value = [np.interp(inside, time, rows[:, c]) for c in range(2)]
    low = np.minimum.accumulate(value[0])
    plain = np.interp(-levels, -low, inside)
    plain[levels >= low[0]], plain[levels < low[-1]] = 0.0, end
    np.testing.assert_allclose(when, plain, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(then[:, 1], np.interp(when, inside, value[1]), rtol=1e-4, atol=1e-3)


def test_a_cycle_says_what_is_odd_about_it() -> None:
    recipe = Recipe(
        task="soh", sensors=("v",), window=5, cycle="grid", grid_end_in_s=40.0, mean=((0.0,),), std=((1.0,),)
    )
    row = np.ones(1, dtype=np.float32)
    history = rule_of(recipe).start(recipe)
    for time in (0.0, 3.0, 6.0):
        assert history.push(row, time, cycle=1) == ()
    assert history.progress == (6.0, 40.0)
    (stopped,) = history.push(row, 0.0, cycle=2)
    assert (stopped.position, stopped.odd) == (1.0, STRETCHED)
    (paused,) = history.push(row, 41.0, cycle=2)
    assert (paused.position, paused.odd) == (2.0, GAP)
    assert history.push(row, 42.0, cycle=2) == history.close() == ()


def test_a_history_of_another_shape_is_refused() -> None:
    recipe = Recipe(task="rul", sensors=("a",), window=5, mean=((0.0,),), std=((1.0,),))
    kept = rule_of(recipe).start(recipe).snapshot()
    longer = rule_of(recipe).start(recipe.model_copy(update={"window": 6}))
    with refuses(ValueError, "'ring'", (5, 1), (6, 1)):
        longer.restore(kept)


def test_rules_are_known_by_name() -> None:
    assert list(histories) == ["window", "grid", "life", "levels", "index"]


REAL = [
    pytest.param("turbofan", marks=pytest.mark.needs_data("cmapss")),
    pytest.param("battery", marks=pytest.mark.needs_data("nasa-battery")),
    pytest.param("battery-tuned", marks=pytest.mark.needs_data("nasa-battery")),
]


@pytest.mark.long
@pytest.mark.parametrize("preset", REAL)
def test_real_units_fed_row_by_row_give_the_windows_of_the_batch(preset: str) -> None:
    train, test = load_fleets(preset)
    options = config.load(preset)[1].recipe
    recipe = make_recipe(options, {"all": survey(train, survey_terms(options))})
    few = test.select(test.units[:4])
    if few.schema.task == "soh":
        few = few.select([unit.select_cycles(0, 8) for unit in few])
    windows = batch_of(recipe, few)
    assert windows is not None
    for k, name in enumerate(windows.unit_ids):
        cuts = [cut for one in fed(recipe, few, few[name]) for cut in one if not cut.odd & PADDED]
        assert_same(cuts, windows, np.flatnonzero(windows.unit == k))


def test_a_rule_of_one_s_own_is_one_object_and_known_only_where_it_is() -> None:
    """The first four samples of every cycle, whatever the options say: nothing else has to know of it."""
    fleet = cyclic_fleet(units=2, cycles=12)
    mine = replace(histories["index"], name="first four", label="first four samples", lengths=lambda *_: (4, None))
    with histories.including([mine]):
        recipe = recipe_for(RecipeOptions(cycle="first four"), {"all": fleet})
        assert (recipe.cycle, recipe.window) == ("first four", 4)
        windows = build_windows(recipe, fleet)
        assert windows.batch(np.arange(2)).shape == (2, 4, len(fleet.schema.sensors))
        text = recipe.to_json()
        assert Recipe.from_json(text) == recipe
    with refuses(RecipeError, "cycle"):
        Recipe.from_json(text)
    with refuses(ConfigError, "'first four'"):
        validated(RecipeOptions, {"cycle": "first four"})
    with refuses(ConfigError, "'life'"):
        validated(RecipeOptions, {"cycle": "life"})
