"""The edge script says what a stream says, whatever the rows are like and wherever it is restarted."""

from __future__ import annotations

import csv
import math
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from small_models import CALIBRATION, bundle_of
from test_series_rows import RECIPES, model
from test_series_rows import table as table_of_machines

from fedprognos.networks import Bundle, Network, NetworkSpec
from fedprognos.prognosis import DISTRUSTED, Health, Predictor, Row, Stream, export_onnx
from fedprognos.prognosis.health import RowTable, machine_and_life
from fedprognos.tables import TableLayout
from small_fleets import cyclic_fleet, recipe_of

LINE = r"\S+ (?P<value>\S+) \S+(?P<more> or more)?( \((?P<low>\S+) (to (?P<high>\S+)|or more)\))?"
EDGE = Path(__file__).parents[2] / "edge" / "predict_edge.py"
FLAGS = "padded|stretched|gap|unseen-condition|mid-life|at-cap|worn|" + "|".join(sorted(DISTRUSTED))


@dataclass(frozen=True)
class Said:
    """What the script says of a machine."""

    value: float | None
    low: float | None
    high: float | None
    flags: frozenset[str]


def run(model_file: Path, rows: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EDGE), str(model_file), str(rows), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def said(done: subprocess.CompletedProcess[str]) -> dict[str, Said]:
    assert done.returncode == 0, done.stderr
    answers = {}
    for line in done.stdout.splitlines():
        unit, _, text = line.partition(": ")
        numbers = re.match(
            r"\S+ (?P<value>\S+) \S+(?P<more> or more)?( \((?P<low>\S+) (to (?P<high>\S+)|or more)\))?", text
        )
        flags = frozenset(re.findall(rf"; ({FLAGS})\b", text))
        if numbers is None or text.startswith("cannot say") or "more are needed" in text:
            answers[unit] = Said(None, None, None, flags)
            continue
        bounds = [None if bound is None else float(bound) for bound in (numbers["low"], numbers["high"])]
        answers[unit] = Said(float(numbers["value"]), *bounds, flags | ({"at-cap"} if numbers["more"] else set()))
    return answers


def write(path: Path, table: RowTable, sensors: tuple[str, ...], settings: tuple[str, ...]) -> None:
    """Rows as a CSV file, with the lives of machines in a column."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["unit", "life", "time", "cycle", *sensors, *settings])
        for k, unit in enumerate(table.units):
            numbers = [*table.sensors[k].tolist(), *table.settings[k].tolist()]
            cells = ["" if math.isnan(number) else repr(number) for number in numbers]
            writer.writerow([*machine_and_life(unit), repr(table.positions[k]), table.cycles[k] or "", *cells])


def same(answers: dict[str, Said], healths: list[Health | None]) -> None:
    assert set(answers) == {health.unit for health in healths if health is not None}
    for health in healths:
        assert health is not None
        answer = answers[health.unit]
        if health.value is None:
            assert answer.value is None
            continue
        assert answer.flags == set(health.flags), health
        for one, other in zip(
            (answer.value, answer.low, answer.high), (health.value, health.low, health.high), strict=True
        ):
            assert (one is None) == (other is None), (answer, health)
            assert one is None or one == pytest.approx(other, rel=1e-4, abs=1e-3), (answer, health)


def windows(short: str) -> Predictor:
    recipe = RECIPES["plain"].model_copy(update={"life": False, "window": 12, "short": short, "history": None})
    layout = {"time": "time", "unit": "unit", "settings": ("load",), "life": "life"}
    bundle = replace(bundle_of(recipe, (5,)), table=TableLayout.model_validate(layout))
    return Predictor.from_bundle(bundle)


def lives(**options: bool) -> Predictor:
    predictor = model(RECIPES["plain"], **options)
    layout = predictor.table.model_copy(update={"life": "life"})  # type: ignore[union-attr]
    return Predictor.from_bundle(replace(predictor.bundle, table=layout))


KINDS = {
    "lives": lives,
    "worn": lambda: lives(worn=True),
    "mean": lambda: lives(hold=False),
    "windows": lambda: windows("exclude"),
    "padded windows": lambda: windows("pad"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_and_the_edge_say_the_same_and_go_on_after_a_restart(kind: str, tmp_path: Path) -> None:
    rng, predictor = np.random.default_rng(7), KINDS[kind]()
    recipe = predictor.recipe
    export_onnx(predictor.bundle, tmp_path / "m.onnx")
    tables = [table_of_machines(rng, mixed=False) for _ in range(6)]
    names = [f"p{k}{unit}" for k, table in enumerate(tables) for unit in table.units]
    rows = RowTable(
        names,
        [position for table in tables for position in table.positions],
        [None] * len(names),
        [False] * len(names),
        np.concatenate([table.sensors for table in tables]),
        np.concatenate([table.settings for table in tables]),
    )
    stream, whole = Stream(predictor), Stream(predictor)
    whole.feed_table(rows)
    write(tmp_path / "all.csv", rows, recipe.sensors, recipe.settings)
    same(said(run(tmp_path / "m.onnx", tmp_path / "all.csv")), whole.healths())
    flags = {flag for health in whole.healths() if health is not None for flag in health.flags}
    assert {"mid-life", "out-of-range"} <= flags or kind != "lives"

    state = ("--state", str(tmp_path / "edge.json"))
    half = rows.part(slice(0, len(rows) // 2 + 13))  # a machine is in the middle of its life
    stream.feed_table(half)
    write(tmp_path / "half.csv", half, recipe.sensors, recipe.settings)
    same(said(run(tmp_path / "m.onnx", tmp_path / "half.csv", *state)), stream.healths())
    seen = [unit for unit in stream.units() if (health := stream.health(unit)) and DISTRUSTED & set(health.flags)]
    for unit in seen[::2]:
        stream.acknowledge(unit)
    rest = rows.part(slice(len(half), None))
    stream.feed_table(rest)
    write(tmp_path / "rest.csv", rest, recipe.sensors, recipe.settings)
    answers = said(run(tmp_path / "m.onnx", tmp_path / "rest.csv", *state, "--acknowledge", *seen[::2]))
    for unit in seen[::2]:  # without a further row, a stream still shows what it said before
        if unit not in rest.units:
            assert not DISTRUSTED & answers.pop(unit).flags
    same(answers, [health for health in stream.healths() if health is not None and health.unit in answers])
    again = said(run(tmp_path / "m.onnx", tmp_path / "all.csv", *state))  # what was read before changes nothing
    assert {unit: again[unit] for unit in answers} == answers


@pytest.mark.parametrize("cycle", ["grid", "levels", "index"])
def test_a_stream_and_the_edge_say_the_same_of_cycles(cycle: str, tmp_path: Path) -> None:
    fleet = cyclic_fleet(units=3, cycles=12)
    levels = {"cycle": "levels", "levels": "voltage", "grid_end_in_s": 500.0, "level_points": 7}
    options = {"grid": {}, "levels": levels, "index": {"cycle": "index", "window": 40}}
    recipe = recipe_of(fleet, **options[cycle])  # type: ignore[arg-type]
    network = Network.seeded(NetworkSpec(inputs=recipe.channels, widths=(5,)), 1)
    layout = TableLayout(task="soh", unit="unit", time="time", cycle="cycle")
    predictor = Predictor.from_bundle(Bundle(recipe, network, calibration=CALIBRATION, table=layout))
    export_onnx(predictor.bundle, tmp_path / "m.onnx")
    columns = recipe.check(fleet.schema, "test")
    rng, units, positions, cycles, sensors, settings = np.random.default_rng(3), [], [], [], [], []
    for copy in range(8):
        for unit in fleet:
            assert unit.cycles is not None and unit.cycle_numbers is not None
            values = unit.sensors[:, columns[0]].copy()
            start, column = int(rng.integers(unit.rows)), int(rng.integers(values.shape[1]))
            if copy == 1:
                values[start, column] = 1e6
            elif copy == 2:
                values[rng.random(values.shape) < 0.2] = np.nan
            elif copy == 3:
                values[start:, column] = values[start, column]
            elif copy == 4:
                values[start:] = np.nan
            elif copy == 5:
                values[start:, column] += 30 * values[:, column].std()
            cut = start if copy in (6, 7) else unit.rows  # the last cycle is cut short
            numbers = np.repeat(unit.cycle_numbers, np.diff(unit.cycles))
            units += [f"{unit.id}-{copy}"] * cut
            positions += unit.time[:cut].tolist()
            cycles += numbers[:cut].tolist()
            sensors.append(values[:cut])
            settings.append(unit.settings[:cut, columns[1]])
    rows = RowTable(units, positions, cycles, [False] * len(units), np.concatenate(sensors), np.concatenate(settings))
    stream = Stream(predictor)
    stream.feed_table(rows)
    stream.finish()
    write(tmp_path / "all.csv", rows, recipe.sensors, recipe.settings)
    same(said(run(tmp_path / "m.onnx", tmp_path / "all.csv")), stream.healths())


# --- odd and hostile inputs ------------------------------------------------------------------------

HEADER = "unit,life,time,s0,s1,s2,s3,load"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Predictor, Path]:
    predictor = lives()
    return predictor, export_onnx(predictor.bundle, tmp_path_factory.mktemp("edge") / "m.onnx").path


def cells(sensors: list[object], time: object, load: object = 0) -> str:
    return ",".join(map(str, ["pump", 1, time, *sensors, load]))


GOOD = [[50 + k % 3, 49 + k % 4, 51 - k % 2, 50 + k % 5] for k in range(30)]


@pytest.mark.parametrize(
    "odd",
    [
        cells(["hot", 49, 51, 50], 15),
        cells(["inf", 49, 51, 50], 15),
        cells(["1e400", 49, 51, 50], 15),
        cells(["1e300", 49, 51, 50], 15),
        cells(["1_0", 49, 51, 50], 15),
        cells(GOOD[15], 3),
        cells(GOOD[15], 14),
        cells(GOOD[15], 1e12),
        cells(GOOD[15], "yesterday"),
        cells(GOOD[15], ""),
        "pump,1,15",
        ",1,15,50,49,51,50,0",
        "pump,1,15,50,49,51,50,0,7,8",
        cells(['"=1+1"', 49, 51, 50], 15),
    ],
)
def test_a_row_that_cannot_be_used_is_passed_over_and_counted(
    odd: str, exported: tuple[Predictor, Path], tmp_path: Path
) -> None:
    predictor, model_file = exported
    lines = [HEADER, *(cells(row, k) for k, row in enumerate(GOOD))]
    (tmp_path / "good.csv").write_text("\n".join([*lines[:16], *lines[17:]]))
    (tmp_path / "odd.csv").write_text("\n".join([*lines[:16], odd, *lines[17:]]))
    expected, done = run(model_file, tmp_path / "good.csv"), run(model_file, tmp_path / "odd.csv")
    if odd.endswith("7,8"):  # more fields than names: the row itself is whole
        stream = Stream(predictor)
        for k, row in enumerate(GOOD):
            stream.feed("pump", k, dict(zip(predictor.sensors, map(float, row), strict=True)), {"load": 0.0})
        same(said(done), stream.healths())
        return
    assert said(done) == said(expected)
    assert "1 rows passed over" in done.stderr and "line 17" in done.stderr and not expected.stderr


def test_a_stream_passes_over_the_same_clock_jumps(exported: tuple[Predictor, Path], tmp_path: Path) -> None:
    predictor, model_file = exported
    times = [*range(10), 1e6, 10, 11, 5e6, 5e6 + 1, 5e6 + 2, 3, *(5e6 + 3 + k for k in range(12))]
    stream = Stream(predictor)
    for time, row in zip(times, GOOD, strict=False):
        stream.feed("pump", time, dict(zip(predictor.sensors, map(float, row), strict=True)), {"load": 0.0})
    lines = [HEADER, *(cells(row, time) for time, row in zip(times, GOOD, strict=False))]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    done = run(model_file, tmp_path / "rows.csv")
    same(said(done), stream.healths())
    assert "3 rows passed over" in done.stderr


def test_a_state_file_that_is_damaged_or_of_another_model_ends_the_call(
    exported: tuple[Predictor, Path], tmp_path: Path
) -> None:
    predictor, model_file = exported
    lines = [HEADER, *(cells(row, k) for k, row in enumerate(GOOD))]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    state = tmp_path / "edge.json"
    first = run(model_file, tmp_path / "rows.csv", "--state", str(state))
    kept = state.read_bytes()
    network = predictor.bundle.network
    other = replace(predictor.bundle, network=network.with_head(network.head))
    weights = {name: tensor + 0.5 if "weight_hh" in name else tensor for name, tensor in network.weights.items()}
    other = replace(other, network=replace(network, weights=weights))
    export_onnx(other, tmp_path / "other.onnx")  # the same recipe: only the weights differ
    for content, file in (
        (kept[: len(kept) // 2], model_file),
        (kept.replace(b'"count": 30', b'"count": 31'), model_file),
        (b"", model_file),
        (b"\xff\xfe", model_file),
        (kept, tmp_path / "other.onnx"),
    ):
        state.write_bytes(content)
        done = run(file, tmp_path / "rows.csv", "--state", str(state))
        assert done.returncode == 1 and str(state) in done.stderr and "Traceback" not in done.stderr
        assert state.read_bytes() == content
    state.write_bytes(kept)
    assert said(run(model_file, tmp_path / "rows.csv", "--state", str(state))) == said(first)
    forgotten = run(model_file, tmp_path / "rows.csv", "--state", str(state), "--forget", "pump")
    assert said(forgotten) == said(first) and not forgotten.stderr


@pytest.mark.parametrize(
    ("change", "options"),
    [
        (lambda text: text.replace("s1", "S1"), []),
        (lambda text: "", []),
        (lambda text: text, ["--time", "hour"]),
        (lambda text: text, ["--cycle", "time"]),
        (lambda text: text, ["--acknowledge", "nobody"]),
        (lambda text: text, ["--coverage", "90"]),
        (lambda text: text.replace("50", "5\udcff0"), []),
    ],
)
def test_files_and_options_that_cannot_be_used_are_named_without_a_traceback(
    change: object, options: list[str], exported: tuple[Predictor, Path], tmp_path: Path
) -> None:
    text = "\n".join([HEADER, *(cells(row, k) for k, row in enumerate(GOOD))])
    (tmp_path / "rows.csv").write_bytes(change(text).encode(errors="surrogateescape"))  # type: ignore[operator]
    done = run(exported[1], tmp_path / "rows.csv", *options)
    assert done.returncode == 1 and done.stderr and "Traceback" not in done.stderr
    missing = run(tmp_path / "rows.csv", tmp_path / "rows.csv")
    assert missing.returncode == 1 and "Traceback" not in missing.stderr


def test_machines_that_stream_and_edge_know_by_name_only_are_the_same(
    exported: tuple[Predictor, Path], tmp_path: Path
) -> None:
    predictor, model_file = exported
    stream = Stream(predictor)
    names = ["pump", "pump ", "=cmd", "ü/7", "a" * 200]
    rows = [
        Row(name.strip(), k, dict(zip(predictor.sensors, map(float, row), strict=True)), {"load": 0.0})
        for name in names
        for k, row in enumerate(GOOD)
    ]
    stream.feed_many(rows)
    lines = [HEADER, *(cells(row, k).replace("pump", name) for name in names for k, row in enumerate(GOOD))]
    (tmp_path / "rows.csv").write_text("\n".join(lines), encoding="utf-8-sig")
    same(said(run(model_file, tmp_path / "rows.csv")), stream.healths())
