from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import CALIBRATION, RULE, bundle_of, interleaved, rows_of

from fedprognos.errors import DataError, DataNotFoundError
from fedprognos.features import Recipe, build_windows
from fedprognos.fleet import Fleet
from fedprognos.prognosis import Health, Predictor, Row, Stream, Update, Verdict
from fedprognos.prognosis.health import AT_CAP, RowTable
from fedprognos.prognosis.sensor_faults import DISTRUSTED
from fedprognos.prognosis.unit_state import FLAGS
from refusals import refuses
from small_fleets import cyclic_fleet, recipe_of, series_fleet, series_unit

ENGINES = series_fleet([40, 25, 12, 7])
CELLS = cyclic_fleet(units=2, cycles=6)
TRAINED = cyclic_fleet(units=2, cycles=12)
KINDS: dict[str, tuple[Fleet, Recipe]] = {
    "series": (ENGINES, recipe_of(ENGINES, conditions=RULE, cap=30)),
    "series padded": (ENGINES, recipe_of(ENGINES, conditions=RULE, cap=30, short="pad")),
    "series, conditions told": (
        ENGINES,
        recipe_of(ENGINES, conditions=RULE, condition_inputs=True, setting_inputs=True, cap=30),
    ),
    "whole life": (ENGINES, recipe_of(ENGINES, window=None, history="life", conditions=RULE, cap=30)),
    "whole life, everything beside": (ENGINES, recipe_of(ENGINES, window=None, history="life", cap=30)),
    "series, everything beside": (ENGINES, recipe_of(ENGINES, conditions=RULE, cap=30)),
    "cycles on a grid": (CELLS, recipe_of(TRAINED, cycle="grid", grid_points=20)),
    "cycles on a long grid": (
        CELLS,
        recipe_of(TRAINED, cycle="grid", grid_points=20).model_copy(update={"grid_end_in_s": 700.0}),
    ),
    "cycles at levels": (
        CELLS,
        recipe_of(TRAINED, cycle="levels", levels="voltage", level_points=7, grid_end_in_s=500.0),
    ),
    "cycles by sample": (CELLS, recipe_of(TRAINED, cycle="index", window=30)),
    "cycles by sample, some short": (
        CELLS,
        recipe_of(TRAINED, cycle="index", window=30).model_copy(update={"window": 70}),
    ),
    "cycles padded": (
        CELLS,
        recipe_of(TRAINED, cycle="index", window=30, short="pad").model_copy(update={"window": 70}),
    ),
}
SHAPES: dict[str, dict[str, object]] = {
    "whole life, everything beside": {"widths": (5, 4), "cell": "gru", "input_width": 3, "reservoir": 20, "direct": 1},
    "series, everything beside": {"widths": (5,), "cell": "gru", "reservoir": 20, "direct": 3},
}
BUNDLES = {name: bundle_of(recipe, **SHAPES.get(name, {})) for name, (_, recipe) in KINDS.items()}  # type: ignore[arg-type]
PREDICTORS = {name: Predictor.from_bundle(bundle) for name, bundle in BUNDLES.items()}
ANY = pytest.mark.parametrize("kind", KINDS)


def offline(kind: str) -> dict[tuple[str, float], Health]:
    """Every health as training and evaluation would have it, with what is odd about its window.

    A padded series unit gives one for each beginning of its history.
    """
    fleet, recipe = KINDS[kind]
    fleets = [fleet]
    if recipe.task == "rul" and recipe.short == "pad":
        fleets += [fleet.select([u.select_rows(n) for u in fleet if u.rows >= n]) for n in range(2, recipe.window)]
    found: list[Health] = []
    for some in fleets:
        windows = build_windows(recipe, some, stride=1, labelled=False)
        names = [windows.unit_ids[k] for k in windows.unit]
        values = np.concatenate([BUNDLES[kind].predict(some, last=False)[name] for name in windows.unit_ids])
        low = CALIBRATION.interval(values, 0.9)[0]
        odd = [tuple(name for bit, name in FLAGS.items() if bits & bit) for bits in windows.odd.tolist()]
        facts = zip(names, windows.position.tolist(), values.tolist(), low.tolist(), odd, strict=True)
        found += [Health(name, at, value, least, flags=flags) for name, at, value, least, flags in facts]
    return {(h.unit, h.position): h for h in found}


def told(updates: list[Update]) -> dict[tuple[str, float], Health]:
    return {(h.unit, h.position): h for u in updates for h in u.healths if h.value is not None}


def assert_equal(online: dict[tuple[str, float], Health], truth: dict[tuple[str, float], Health], scale: float) -> None:
    assert online.keys() >= truth.keys() and truth
    for key, expected in truth.items():
        assert online[key].value == pytest.approx(expected.value, abs=1e-6 * scale)
        flags = set(online[key].flags)
        if flags & DISTRUSTED:
            assert online[key].low is None and online[key].high is None
        elif expected.low is not None:
            assert online[key].low == pytest.approx(expected.low, abs=1e-6 * scale)
        assert flags - DISTRUSTED - {AT_CAP} == set(expected.flags) - DISTRUSTED - {AT_CAP}


@ANY
def test_online_equals_offline_row_by_row(kind: str) -> None:
    fleet, recipe = KINDS[kind]
    stream = Stream(PREDICTORS[kind])
    updates = [
        stream.feed(r.unit, r.position, r.sensors, r.settings, cycle=r.cycle) for r in interleaved(fleet, recipe)
    ]
    assert all(u.accepted for u in updates)
    ended = {(h.unit, h.position): h for h in stream.finish() if h.value is not None}
    truth = offline(kind)
    assert_equal({**told(updates), **ended}, truth, recipe.label_std)
    for unit in fleet:
        expected = [h for (name, _), h in truth.items() if name == unit.id]
        now = stream.health(unit.id)
        assert now is not None
        if expected:
            assert now.position == max(h.position for h in expected)
        else:
            assert now.state == "warming-up"


@pytest.mark.long
@ANY
@settings(max_examples=8, deadline=None)
@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=30), seed=st.integers(0, 99))
def test_any_chunking_and_duplicates_give_the_same_healths(kind: str, sizes: list[int], seed: int) -> None:
    fleet, recipe = KINDS[kind]
    rows = interleaved(fleet, recipe)
    whole, parts = Stream(PREDICTORS[kind]), Stream(PREDICTORS[kind])
    expected = told(whole.feed_many(rows))
    rng = np.random.default_rng(seed)
    updates, at, twice = [], 0, 0
    while at < len(rows):
        some = rows[at : at + sizes[at % len(sizes)]]
        updates += parts.feed_many(some)
        at += len(some)
        again = [some[-1]] * int(rng.integers(2))
        assert not any(u.accepted for u in parts.feed_many(again))
        twice += len(again)
    assert_equal(told(updates), expected, recipe.label_std)
    assert (parts.counts[Verdict.DUPLICATE], parts.counts[Verdict.ACCEPTED]) == (twice, len(rows))


@ANY
@settings(max_examples=6, deadline=None)
@given(share=st.floats(0, 1))
def test_a_restart_at_any_point_changes_nothing(
    kind: str, share: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    fleet, recipe = KINDS[kind]
    rows = interleaved(fleet, recipe, seed=1)
    cut = int(share * len(rows))
    path = tmp_path_factory.mktemp("snapshot") / "stream.snapshot"
    one, two = Stream(PREDICTORS[kind]), Stream(PREDICTORS[kind])
    one.feed_many(rows[:cut])
    two.feed_many(rows[:cut])
    one.snapshot(path)
    other = Stream(PREDICTORS[kind])
    other.restore(path)
    assert other.units() == two.units() and other.counts == two.counts
    assert other.healths() == two.healths()
    assert other.feed_many(rows[cut:]) == two.feed_many(rows[cut:])
    assert other.finish() == two.finish()


@ANY
def test_remembering_without_looking_ends_in_the_same_place(kind: str) -> None:
    fleet, recipe = KINDS[kind]
    rows = interleaved(fleet, recipe)
    one, two = Stream(PREDICTORS[kind]), Stream(PREDICTORS[kind])
    one.feed_many(rows)
    table = RowTable(
        [r.unit for r in rows],
        [r.position for r in rows],
        [r.cycle for r in rows],
        [r.end for r in rows],
        np.array([[r.sensors[s] for s in recipe.sensors] for r in rows]),
        np.array([[r.settings[s] for s in recipe.settings] for r in rows]).reshape(len(rows), -1),
    )
    two.feed_table(table, every=False)
    for a, b in zip(one.healths(one.units()), two.healths(one.units()), strict=True):
        assert a is not None and b is not None
        assert (a.position, a.state, a.flags) == (b.position, b.state, b.flags)
        if a.value is not None:
            assert b.value == pytest.approx(a.value, abs=1e-6 * recipe.label_std)


GOOD = rows_of(ENGINES.units[0], ENGINES, KINDS["series"][1])
SENSORS, SETTINGS = GOOD[0].sensors, GOOD[0].settings


@pytest.mark.parametrize(
    ("row", "named"),
    [
        (Row("e", 1, {"pressure": 1.0}, SETTINGS), "temperature"),
        (Row("e", 1, {**SENSORS, "humidity": 1.0}, SETTINGS), "humidity"),
        (Row("e", 1, {**SENSORS, "pressure": math.nan}, SETTINGS), "pressure"),
        (Row("e", 1, {**SENSORS, "pressure": math.inf}, SETTINGS), "pressure"),
        (Row("e", 1, {**SENSORS, "pressure": "12"}, SETTINGS), "pressure"),  # type: ignore[dict-item]
        (Row("e", 1, {**SENSORS, "pressure": True}, SETTINGS), "pressure"),
        (Row("e", 1, {**SENSORS, "pressure": 10**400}, SETTINGS), "pressure"),
        (Row("e", 1, {**SENSORS, "pressure": 1e300}, SETTINGS), "pressure"),
        (Row("e", 1, SENSORS, {"altitude": 1.0}), "mach"),
        (Row("e", 1, [1.0, 2.0], SETTINGS), "sensors"),  # type: ignore[arg-type]
        (Row("e", math.nan, SENSORS, SETTINGS), "nan"),
        (Row("e", "now", SENSORS, SETTINGS), "now"),  # type: ignore[arg-type]
        (Row("", 1, SENSORS, SETTINGS), "unit"),
        (Row("x" * 300, 1, SENSORS, SETTINGS), "unit"),
        (Row(["e"], 1, SENSORS, SETTINGS), "unit"),  # type: ignore[arg-type]
        (Row("a\nb", 1, SENSORS, SETTINGS), "unit"),
        (Row("e", 1, SENSORS, SETTINGS, end="no"), "no"),  # type: ignore[arg-type]
        (Row("e", 1e17, SENSORS, SETTINGS), "1e+17"),
        (Row("e", 1, SENSORS, SETTINGS, cycle=3), "cycle"),
    ],
)
def test_a_bad_row_is_refused_by_name_and_harms_nobody(row: Row, named: str) -> None:
    stream = Stream(PREDICTORS["series"])
    updates = stream.feed_many([*GOOD[:12], row, *GOOD[12:]])
    assert [u.accepted for u in updates].count(False) == 1
    assert named in updates[12].reason
    assert stream.counts[Verdict.REFUSED] == 1
    undisturbed = Stream(PREDICTORS["series"]).feed_many(GOOD)
    assert told(updates).keys() == told(undisturbed).keys()


def test_extra_sensors_can_be_passed_over() -> None:
    stream = Stream(PREDICTORS["series"], strict=False)
    assert stream.feed("e", 1, {**SENSORS, "humidity": 1.0}, SETTINGS).accepted


def test_cycles_must_be_given_as_whole_numbers() -> None:
    stream = Stream(PREDICTORS["cycles on a grid"])
    values = {"voltage": 4.0, "temperature": 24.0}
    assert "cycle number is missing" in stream.feed("c", 0.0, values).reason
    assert "not a whole number" in stream.feed("c", 0.0, values, cycle=1.5).reason  # type: ignore[arg-type]
    assert stream.feed("c", 0.0, values, cycle=1).accepted
    assert stream.health("c") == Health(
        "c", 1.0, None, state="warming-up", reason=f"0 of {KINDS['cycles on a grid'][1].grid_end_in_s:g} s of the cycle"
    )


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("cycles")])
def test_the_mark_of_a_cycles_end_gives_its_health_at_once(kind: str) -> None:
    fleet, recipe = KINDS[kind]
    stream = Stream(PREDICTORS[kind])
    updates: list[Update] = []
    for unit in fleet:
        rows = rows_of(unit, fleet, recipe)
        for row, after in itertools.zip_longest(rows, rows[1:]):
            updates += stream.feed_many([replace(row, end=after is None or after.cycle != row.cycle)])
    assert all(u.accepted for u in updates)
    assert_equal(told(updates), offline(kind), recipe.label_std)
    assert stream.finish() == []
    reached = {(u.health.unit, u.health.position) for u in updates if u.health is not None}
    assert reached == {(unit.id, float(number)) for unit in fleet for number in unit.cycle_numbers}


def test_a_cycle_that_ended_takes_no_more_and_may_be_ended_afterwards() -> None:
    fleet, recipe = KINDS["cycles on a long grid"]
    rows = rows_of(fleet.units[0], fleet, recipe)[:20]
    marked, late = Stream(PREDICTORS["cycles on a long grid"]), Stream(PREDICTORS["cycles on a long grid"])
    ended = replace(rows[9], end=True)
    expected = marked.feed_many([*rows[:9], ended])[-1]
    assert expected.health is not None and expected.health.flags[0] == "stretched"
    assert late.feed_many(rows[:10])[-1].health is None
    assert late.feed_many([ended])[0].health == expected.health  # the last sample again, now marked
    assert late.feed_many([ended, rows[9], rows[10]]) == marked.feed_many([ended, rows[9], rows[10]])
    assert late.feed_many([ended])[0].verdict is Verdict.DUPLICATE
    assert "has ended at position" in late.feed_many([rows[10]])[0].reason
    assert "no cycles that end" in Stream(PREDICTORS["series"]).feed_many([replace(GOOD[0], end=True)])[0].reason


def test_late_rows_are_refused_and_counted() -> None:
    stream = Stream(PREDICTORS["series"])
    stream.feed_many(GOOD[:20])
    before = stream.health(GOOD[0].unit)
    late = stream.feed_many([GOOD[5], GOOD[19]])
    assert "position 6 comes after 20" in late[0].reason
    assert (late[0].verdict, late[1].verdict) == (Verdict.LATE, Verdict.DUPLICATE)
    assert (stream.counts[Verdict.LATE], stream.counts[Verdict.DUPLICATE]) == (1, 1)
    assert stream.health(GOOD[0].unit) == before


def test_an_absurd_jump_is_refused_until_later_rows_confirm_it() -> None:
    stream = Stream(PREDICTORS["series"])
    stream.feed_many(GOOD[:20])
    jump = stream.feed_many([replace(GOOD[20], position=1e9)])[0]
    assert jump.verdict is Verdict.JUMPED and "a jump of 1e+09 usual steps" in jump.reason
    assert stream.feed_many([GOOD[20]])[0].accepted  # it was one broken time stamp
    stream.feed_many([replace(GOOD[21], position=9000.0)])
    after = stream.feed_many([replace(GOOD[22], position=9001.0)])[0]  # it was a pause
    assert after.accepted and after.health is not None and "gap" in after.health.flags
    later = stream.feed_many([replace(GOOD[23], position=9002.0 + k) for k in range(10)])
    assert later[-1].health is not None and "gap" not in later[-1].health.flags


def test_a_sample_a_year_ahead_within_a_cycle_is_refused_until_later_ones_confirm_it() -> None:
    fleet, recipe = KINDS["cycles on a grid"]
    rows = [row for row in rows_of(fleet.units[0], fleet, recipe) if row.cycle == fleet.units[0].cycle_numbers[0]]
    year = 365 * 86400.0
    for at in (5, len(rows) // 2):
        stream = Stream(PREDICTORS["cycles on a grid"])
        broken = [*rows[:at], replace(rows[at], position=year), *rows[at:]]
        updates = stream.feed_many(broken)
        assert updates[at].verdict is Verdict.JUMPED
        assert told(updates) == told(Stream(PREDICTORS["cycles on a grid"]).feed_many(rows)) != {}
    stream = Stream(PREDICTORS["cycles on a grid"])
    later = stream.feed_many([*rows[:5], *(replace(row, position=row.position + year) for row in rows[5:8])])
    assert [u.accepted for u in later[5:]] == [False, True, True]
    assert later[6].health is not None and "gap" in later[6].health.flags


def test_memory_is_bounded_and_the_silent_are_forgotten_first() -> None:
    stream = Stream(PREDICTORS["series"], max_units=3)
    for name in "abcad":
        stream.feed(name, float(len(stream.units())), SENSORS, SETTINGS)
    assert stream.units() == ["c", "a", "d"]
    assert stream.evicted == 1
    assert stream.health("b") is None
    assert stream.forget("c") and not stream.forget("c")


def test_unseen_conditions_are_flagged_while_they_are_in_the_window() -> None:
    unit = series_unit("e", 40, 5)
    odd = unit.settings.copy()
    odd[15] = (30.0, 0.5)
    fleet = Fleet("f", ENGINES.schema, (replace(unit, settings=odd),))
    recipe = KINDS["series"][1]
    updates = Stream(PREDICTORS["series"]).feed_many(rows_of(fleet.units[0], fleet, recipe))
    flagged = [int(u.position) - 1 for u in updates if u.health and "unseen-condition" in u.health.flags]
    assert flagged == list(range(15, 25))
    assert_equal(
        told(updates),
        {(h.unit, h.position): h for h in PREDICTORS["series"].predict(fleet, last=False)},
        recipe.label_std,
    )


def test_a_snapshot_of_another_model_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s"
    stream = Stream(PREDICTORS["series"])
    stream.feed_many(GOOD)
    stream.snapshot(path)
    with refuses(DataError, path):
        Stream(PREDICTORS["series padded"]).restore(path)
    content = bytearray(path.read_bytes())
    for at in (content.index(b'accepted\\": 4') + 12, len(content) // 2, len(content) - 3):  # one bit each
        content[at] ^= 1
        path.write_bytes(content)
        with refuses(DataError, path):
            Stream(PREDICTORS["series"]).restore(path)
        content[at] ^= 1
    path.write_bytes(content[:200])
    with refuses(DataError, path):
        Stream(PREDICTORS["series"]).restore(path)
    with pytest.raises(DataNotFoundError):
        Stream(PREDICTORS["series"]).restore(tmp_path / "nowhere")
    assert [p.name for p in tmp_path.iterdir()] == ["s"]
