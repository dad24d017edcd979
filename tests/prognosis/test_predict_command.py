from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from small_models import RULE, bundle_of
from typer.testing import CliRunner, Result

from fedprognos.cli import app
from fedprognos.cli.predict import _table
from fedprognos.errors import ConfigError, DataError, FedprognosError
from fedprognos.fleet import Fleet
from fedprognos.networks import Novelty
from fedprognos.prognosis import Health, Predictor
from fedprognos.prognosis.table_prediction import FilePrediction, predict_files
from fedprognos.tables.columns import TableLayout
from refusals import refuses
from small_fleets import cyclic_fleet, recipe_of, series_fleet

ENGINES, CELLS = series_fleet([60, 50, 7]), cyclic_fleet(units=2, cycles=12)
BUNDLE = bundle_of(recipe_of(ENGINES, conditions=RULE, cap=40))
CELL_BUNDLE = bundle_of(recipe_of(CELLS))


def table(fleet: Fleet, seed: int | None = 0) -> pd.DataFrame:
    """All rows in one table, units mixed."""
    parts = []
    for unit in fleet:
        frame = pd.DataFrame(unit.sensors, columns=list(fleet.schema.sensors))
        frame[list(fleet.schema.settings)] = unit.settings
        frame["remark"] = "text that is not needed"
        frame["machine"] = unit.id
        if unit.cycles is None:
            frame["cycle"] = unit.time.astype(int)
        else:
            frame["cycle"] = np.repeat(unit.cycle_numbers, np.diff(unit.cycles))
            frame["time_in_s"] = unit.time
        parts.append(frame)
    if seed is None:
        return pd.concat(parts, ignore_index=True)
    order = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(parts)), [len(p) for p in parts]))
    rows = [part.itertuples(index=False, name=None) for part in parts]
    return pd.DataFrame([next(rows[k]) for k in order], columns=parts[0].columns)


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
@pytest.mark.parametrize("kind", ["engines", "cells"])
def test_a_file_in_pieces_gives_the_numbers_of_the_fleet(kind: str, suffix: str, every: bool, tmp_path: Path) -> None:
    fleet, bundle = (ENGINES, BUNDLE) if kind == "engines" else (CELLS, CELL_BUNDLE)
    source, out = tmp_path / f"rows{suffix}", tmp_path / f"health{suffix}"
    frame = table(fleet)
    (frame.to_parquet if suffix == ".parquet" else frame.to_csv)(source, index=False)
    predictor = Predictor.from_bundle(bundle)
    shares: list[float] = []
    done = predict_files(predictor, source, out, every=every, chunk_rows=37, progress=shares.append)
    assert shares == sorted(shares) and shares[-1] == 1.0
    found = pd.read_parquet(out) if suffix == ".parquet" else pd.read_csv(out)
    assert list(found.columns) == ["unit", "position", "value", "low", "high", "state", "reason", "flags"]
    assert done.rows == len(frame) and done.written == len(found)
    expected = predictor.predict(fleet, last=not every)
    valued = [h for h in expected if h.value is not None]
    merged = found[found["state"] == "ok"].set_index(["unit", "position"])
    assert len(merged) == len(valued)
    for health in valued:
        row = merged.loc[(health.unit, health.position)]
        assert row["value"] == pytest.approx(health.value, abs=1e-6 * bundle.recipe.label_std)
        assert row["low"] == pytest.approx(health.low, abs=1e-6 * bundle.recipe.label_std)
    if kind == "engines":
        short = found[found["unit"] == "engines-2"]
        assert set(short["state"]) == {"warming-up"} and "of 10 rows" in short["reason"].iloc[-1]


def test_the_command_prints_the_most_urgent_first_and_both_engines_agree(tmp_path: Path) -> None:
    bundle = BUNDLE.save(tmp_path / "b")
    table(ENGINES).to_csv(tmp_path / "rows.csv", index=False)
    done = invoke("predict", bundle, tmp_path / "rows.csv")
    assert done.exit_code == 0, done.output
    assert "rul (cycles)" in done.output and "117 rows of 3 units; 3 healths: 2 ok, 1 warming-up" in done.output
    assert invoke("export", bundle, "--onnx", tmp_path / "m.onnx").exit_code == 0
    outs = []
    for k, arguments in enumerate(([bundle], [bundle, "--runtime", "onnx"], [tmp_path / "m.onnx"])):
        outs.append(tmp_path / f"{k}.csv")
        done = invoke("predict", arguments[0], tmp_path / "rows.csv", "--all", "--out", outs[-1], *arguments[1:])
        assert done.exit_code == 0, done.output
    frames = [pd.read_csv(out) for out in outs]
    for other in frames[1:]:
        np.testing.assert_allclose(other["value"], frames[0]["value"], atol=1e-4)
        assert other["flags"].equals(frames[0]["flags"])


def test_the_table_puts_units_in_doubt_first_and_shows_no_number_as_surer_than_it_is() -> None:
    recipe = BUNDLE.recipe.model_copy(update={"target_measure": "cycles"})
    done = FilePrediction(
        [
            Health("young", 5.0, 40.0, 31.0, None, flags=("at-cap",)),
            Health("near", 55.0, 3.0, 0.0, 9.0),
            Health("broken", 50.0, 35.0, reason="heat unchanged for 30 rows", flags=("stuck",)),
            Health("worn", 50.0, 0.0, reason="end of life reached", flags=("worn",)),
            Health("open", 9.0, 38.0, 30.0, None),
            Health("new", 1.0, None, state="warming-up", reason="1 of 10 rows"),
        ],
        Counter(),
    )
    shown = _table(done, Predictor.from_bundle(replace(BUNDLE, recipe=recipe)))
    unit, _, value, interval, _ = (list(column.cells) for column in shown.columns)
    assert unit == ["broken", "worn", "near", "open", "young", "new"]
    assert dict(zip(unit, zip(value, interval, strict=True), strict=True)) == {
        "broken": ("35 ?", "not known"),
        "worn": ("worn", ""),
        "near": ("3", "0 to 9"),
        "open": ("38", "30 or more"),
        "young": ("40 or more", "31 or more"),
        "new": ("warming-up", ""),
    }


def test_a_unit_may_go_on_in_the_next_file(tmp_path: Path) -> None:
    frame = table(ENGINES, seed=None)
    frame[:70].to_csv(tmp_path / "1.csv", index=False)
    frame[70:].to_csv(tmp_path / "2.csv", index=False)
    found = predict_files(Predictor.from_bundle(BUNDLE), tmp_path).now
    expected = Predictor.from_bundle(BUNDLE).predict(ENGINES)
    assert [h.unit for h in found] == [h.unit for h in expected]
    assert [h.position for h in found] == [h.position for h in expected]


def test_of_a_repaired_machine_the_latest_life_is_told(tmp_path: Path) -> None:
    frame = table(ENGINES.select(["engines-0"]), seed=None)
    path = tmp_path / "rows.csv"
    pd.concat([frame, frame[:40]]).assign(remark=range(len(frame) + 40)).to_csv(path, index=False)
    bundle = replace(BUNDLE, table=TableLayout(unit="machine", time="cycle", new_life="time"))
    found = predict_files(Predictor.from_bundle(bundle), path)
    assert ([h.unit for h in found.now], found.past) == (["engines-0#2"], 1)
    done = invoke("predict", bundle.save(tmp_path / "b"), path)
    assert "of repaired machines the latest life; 1 earlier ones are in --all" in done.output
    every = predict_files(Predictor.from_bundle(bundle), path, tmp_path / "all.csv", every=True)
    assert set(pd.read_csv(tmp_path / "all.csv")["unit"]) == {"engines-0", "engines-0#2"}
    assert every.past == 1


def test_a_later_life_is_told_in_the_machine_s_own_clock(tmp_path: Path) -> None:
    """A counter that goes on over a repair is shown as it stands, with the values of a life that counts from one."""
    frame = table(ENGINES.select(["engines-0"]), seed=None)
    again = frame[:40].assign(cycle=frame["cycle"][:40] + len(frame))
    lives = pd.concat([frame.assign(life=1), again.assign(life=2)])
    lives.to_csv(tmp_path / "rows.csv", index=False)
    bundle = replace(BUNDLE, table=TableLayout(unit="machine", time="cycle", life="life"))
    (now,) = predict_files(Predictor.from_bundle(bundle), tmp_path / "rows.csv").now
    assert (now.unit, now.position) == ("engines-0#2", 40 + len(frame))
    frame[:40].to_csv(tmp_path / "first.csv", index=False)
    (alone,) = predict_files(Predictor.from_bundle(bundle), tmp_path / "first.csv").now
    assert (now.value, now.flags) == (alone.value, alone.flags)


def test_rows_passed_over_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    frame = table(ENGINES, seed=None)
    path = tmp_path / "rows.csv"
    late = frame[28:31].iloc[[0, 1]], frame[5:6]
    parts = [frame[:30], *(part.assign(remark="sent again") for part in late), frame[30:]]
    pd.concat(parts).to_csv(path, index=False)
    done = invoke("predict", BUNDLE.save(tmp_path / "b"), path)
    assert done.exit_code == 0
    assert "rows passed over: 2 late, 1 duplicate" in done.output
    assert f"{path}, line 32, unit engines-0: position 29 comes after 30" in done.output


def test_a_file_out_of_order_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    table(ENGINES, seed=None).sample(frac=1, random_state=0).to_csv(path, index=False)
    done = invoke("predict", BUNDLE.save(tmp_path / "b"), path)
    assert "order of time" in done.output and "sort the file" in done.output


def broken(path: Path, column: str, row: int, value: object) -> Path:
    frame = table(ENGINES, seed=None).astype({column: object})
    frame.loc[row, column] = value
    frame.to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    ("column", "value", "values"),
    [
        ("pressure", "hot", ("line 22", "unit engines-0", "'hot'", "'pressure'")),
        ("pressure", "inf", ("line 22", "unit engines-0", "inf", "'pressure'")),
        ("cycle", "x", ("line 22", "unit engines-0", "'x'", "'cycle'")),
        ("machine", None, ("line 22", "'machine'")),
    ],
)
@pytest.mark.parametrize("chunk", [7, 1000])
def test_a_bad_cell_is_named_and_nothing_is_written(
    column: str, value: object, values: tuple[str, ...], chunk: int, tmp_path: Path
) -> None:
    path = broken(tmp_path / "rows.csv", column, 20, value)
    with refuses(DataError, *values):
        predict_files(Predictor.from_bundle(BUNDLE), path, tmp_path / "out.csv", chunk_rows=chunk, every=True)
    assert [p.name for p in tmp_path.iterdir()] == ["rows.csv"]


def test_blank_cells_are_filled_as_in_training_and_counted(tmp_path: Path) -> None:
    path = broken(tmp_path / "rows.csv", "pressure", 20, None)
    bundle = BUNDLE.save(tmp_path / "b")
    done = invoke("predict", bundle, path, "--all", "--out", tmp_path / "held.csv")
    assert done.exit_code == 0 and "blank cells filled: 1 of pressure" in done.output
    frame = table(ENGINES, seed=None)
    frame.loc[20, "pressure"] = frame.loc[19, "pressure"]
    frame.to_csv(path, index=False)
    invoke("predict", bundle, path, "--all", "--out", tmp_path / "known.csv")
    shown = ["unit", "position", "value"]  # a value that was given is judged as well, a blank is not
    held, known = (pd.read_csv(tmp_path / f"{name}.csv")[shown] for name in ("held", "known"))
    pd.testing.assert_frame_equal(held, known, rtol=1e-5)
    strict = replace(BUNDLE, table=TableLayout(unit="machine", time="cycle", missing="refuse"))
    broken(path, "pressure", 20, None)
    with refuses(DataError, "rows.csv", "line 22", "unit engines-0", "'pressure'"):
        predict_files(Predictor.from_bundle(strict), path)


def test_a_bundle_needs_no_options_and_tells_dates(tmp_path: Path) -> None:
    frame = table(ENGINES, seed=None).rename(columns={"machine": "what", "cycle": "when"})
    frame["when"] = pd.Timestamp("2024-05-01") + pd.to_timedelta(frame["when"], unit="D")
    path = tmp_path / "rows.csv"
    frame.to_csv(path, index=False, sep=";", decimal=",")
    recipe = BUNDLE.recipe.model_copy(update={"time_measure": "days", "target_measure": "days"})
    bundle = replace(BUNDLE, recipe=recipe, table=TableLayout(unit="what", time="when")).save(tmp_path / "b")
    done = invoke("predict", bundle, path, "--out", tmp_path / "out.csv")
    assert done.exit_code == 0, done.output
    out = pd.read_csv(tmp_path / "out.csv").set_index("unit")
    expected = {health.unit: health.value for health in Predictor.from_bundle(BUNDLE).predict(ENGINES)}
    assert out.loc["engines-0", "value"] == pytest.approx(expected["engines-0"], abs=1e-5)
    assert out.loc["engines-0", "date"] == "2024-06-30T00:00:00"
    left = pd.Timestamp(out.loc["engines-0", "end_date"]) - pd.Timestamp("2024-06-30")
    assert left.total_seconds() / 86400 == pytest.approx(out.loc["engines-0", "value"], abs=1e-4)
    shown = invoke("predict", bundle, path).output
    assert "until" in shown and "2024-06-30T00:00:00" in shown


def test_names_cannot_steer_the_terminal_and_no_intervals_are_said(tmp_path: Path) -> None:
    frame = table(ENGINES, seed=None)
    frame["machine"] = "pump" + chr(27) + "[2J[bold]" + frame["machine"]
    frame.to_csv(tmp_path / "rows.csv", index=False)
    bare = replace(BUNDLE, calibration=None).save(tmp_path / "b")
    done = invoke("predict", bare, tmp_path / "rows.csv")
    assert chr(27) not in done.output and "pump[bold]engines-0" in done.output
    assert "no intervals: this model was not calibrated" in done.output
    few = replace(BUNDLE, calibration=None, provenance={"no_intervals": "3 units are too few"}).save(tmp_path / "few")
    assert "no intervals: 3 units are too few" in invoke("predict", few, tmp_path / "rows.csv").output


def test_what_a_model_cannot_check_is_said(tmp_path: Path) -> None:
    table(ENGINES, seed=None).to_csv(tmp_path / "rows.csv", index=False)
    provenance = {"no_novelty": "a masked sum needs 3 clients"}
    blind = replace(BUNDLE, recipe=BUNDLE.recipe.model_copy(update={"usual": None}), provenance=provenance)
    output = " ".join(invoke("predict", blind.save(tmp_path / "blind"), tmp_path / "rows.csv").output.split())
    for part in ("how far sensors go", "contradict one another", "unknown way (a masked sum needs 3 clients)"):
        assert part in output.partition("not checked: ")[2]
    width = BUNDLE.network.spec.widths[-1]
    novelty = Novelty(mean=(0.0,) * width, whitening=((0.0,) * width,) * width)
    known = replace(BUNDLE, novelty=novelty)
    assert Predictor.from_bundle(known).unchecked == ("whether sensors contradict one another",)


def test_columns_that_are_not_there_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    predictor = Predictor.from_bundle(BUNDLE)
    table(ENGINES).rename(columns={"pressure": "presure"}).to_csv(path, index=False)
    with refuses(DataError, "'pressure'", "'presure'"):
        predict_files(predictor, path)
    table(ENGINES).rename(columns={"machine": "what", "cycle": "when"}).to_csv(path, index=False)
    with refuses(DataError, "--time", "remark, what, when"):
        predict_files(predictor, path)
    with refuses(DataError, "--unit", "remark, what"):
        predict_files(predictor, path, time="when")
    assert len(predict_files(predictor, path, time="when", unit="what").now) == 3
    table(ENGINES.select(["engines-0"])).drop(columns=["machine", "remark"]).to_csv(path, index=False)
    assert [h.unit for h in predict_files(predictor, path).now] == ["rows"]


@pytest.mark.parametrize(
    ("content", "values"),
    [
        (b"", ("rows.csv",)),
        (b"machine,cycle,pressure,temperature,altitude,mach\n", ("rows.csv",)),
        (b"machine,machine\n1,2\n", ("'machine'",)),
        (
            b"machine,cycle,pressure,temperature,altitude,mach\na,1,\xff,3,4,5\n",
            ("line 2", "unit a", "'pressure'"),
        ),
    ],
)
def test_files_that_are_no_tables_are_refused(content: bytes, values: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(content)
    with refuses(DataError, *values):
        predict_files(Predictor.from_bundle(BUNDLE), tmp_path / "rows.csv")


def test_a_cut_archive_and_a_false_parquet_are_refused(tmp_path: Path) -> None:
    packed = gzip.compress(table(ENGINES).to_csv(index=False).encode())
    (tmp_path / "rows.csv.gz").write_bytes(packed[: len(packed) // 2])
    with refuses(DataError, "rows.csv.gz"):
        predict_files(Predictor.from_bundle(BUNDLE), tmp_path / "rows.csv.gz")
    (tmp_path / "rows.parquet").write_bytes(b"rubbish")
    with refuses(DataError, "rows.parquet", "Parquet"):
        predict_files(Predictor.from_bundle(BUNDLE), tmp_path / "rows.parquet")


def test_names_that_are_formulas_stay_text_in_a_spreadsheet(tmp_path: Path) -> None:
    names = {"engines-0": "=cmd|' /C calc'!A0", "engines-1": "@SUM(A1)", "engines-2": "-12"}
    frame = table(ENGINES).replace({"machine": names})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    predict_files(Predictor.from_bundle(BUNDLE), tmp_path / "rows.csv", tmp_path / "out.csv")
    found = pd.read_csv(tmp_path / "out.csv", dtype=str)["unit"].tolist()
    assert sorted(found) == sorted(["'=cmd|' /C calc'!A0", "'@SUM(A1)", "-12"])
    predict_files(Predictor.from_bundle(BUNDLE), tmp_path / "rows.csv", tmp_path / "out.parquet")
    assert set(pd.read_parquet(tmp_path / "out.parquet")["unit"]) == set(names.values())


def test_a_run_in_place_of_its_bundle_is_recognised(tmp_path: Path) -> None:
    BUNDLE.save(tmp_path / "run" / "bundle")
    done = invoke("predict", tmp_path / "run", tmp_path / "rows.csv")
    assert isinstance(done.exception, FedprognosError)
    assert done.exception.hint == f"this is a run; its model is {tmp_path / 'run' / 'bundle'}"


def test_wrong_usage_has_its_exit_code(tmp_path: Path) -> None:
    bundle, rows = BUNDLE.save(tmp_path / "b"), tmp_path / "rows.csv"
    table(ENGINES).to_csv(rows, index=False)
    for arguments, code in (
        ([bundle, rows, "--runtime", "tensorflow"], 2),
        ([bundle, rows, "--coverage", "1.5"], 2),
        ([bundle, rows, "--out", tmp_path / "o.xlsx"], 2),
        ([bundle, rows, "--out", rows], 2),
        ([bundle, rows, "--cycle", "cycle"], 2),
        ([bundle, tmp_path / "none.csv"], 3),
        ([tmp_path, rows], 4),
    ):
        done = invoke("predict", *arguments)
        assert isinstance(done.exception, FedprognosError), done.output
        assert done.exception.exit_code == code
    with refuses(ConfigError, "rows.csv"):
        predict_files(Predictor.from_bundle(BUNDLE), rows, rows)


@pytest.mark.soak
def test_a_killed_prediction_leaves_what_was_there(tmp_path: Path) -> None:
    bundle, rows, out = BUNDLE.save(tmp_path / "b"), tmp_path / "rows.csv", tmp_path / "out.csv"
    big = pd.concat([table(ENGINES, seed=None).assign(machine=f"m{k}") for k in range(100)])
    big.to_csv(rows, index=False)
    out.write_text("what was there")
    command = [sys.executable, "-m", "fedprognos", "predict", str(bundle), str(rows), "--all", "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 30
        while time.monotonic() < until and not list(tmp_path.glob(".out.csv-*/out.csv")):
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert out.read_text() == "what was there"


def test_predicting_loads_nothing_that_only_training_and_downloads_need(tmp_path: Path) -> None:
    BUNDLE.save(tmp_path / "bundle")
    table(ENGINES).to_csv(tmp_path / "rows.csv", index=False)
    unneeded = ("scipy", "pooch", "requests", "optuna", "matplotlib", "plotly", "flwr", "onnxruntime")
    code = (
        "import sys; from fedprognos.cli import app\n"
        "try: app(sys.argv[1:])\nexcept SystemExit as end: print('EXIT', end.code)\n"
        f"print('LOADED', *(name for name in {unneeded} if name in sys.modules))"
    )
    arguments = ["predict", "bundle", "rows.csv", "--all", "--out", "health.csv"]
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, cwd=tmp_path, capture_output=True, text=True
    )
    assert "EXIT 0" in run.stdout, run.stderr
    assert run.stdout.split("LOADED")[1].split() == []
