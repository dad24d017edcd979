"""Files to predict are read as files to learn from are: any separator and decimal mark, Excel, dates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedprognos.errors import DataError
from fedprognos.fleet.from_tables import read_table
from fedprognos.prognosis.table_prediction import ModelInputs, read_pieces
from fedprognos.tables.columns import TableLayout
from fedprognos.tables.rows import Rows
from refusals import refuses

INPUTS = ModelInputs(("heat", "flow"), (), cyclic=False, time_measure="hours", policies=("hold", "refuse"))
FRAME = pd.DataFrame(
    {"pump": ["a", "b", "a", "b"], "hour": [1, 1, 2, 3], "heat": [0.5, 1.5, 2.25, 3], "flow": [4, 5, 6, 7]}
)


def pieces(path: Path, inputs: ModelInputs, rows: int = 100) -> list[Rows]:
    """What a model reads of a file."""
    tables = inputs.open(path)
    return [piece for piece, _ in read_pieces(inputs.reader(tables), tables, rows)]


def save(frame: pd.DataFrame, folder: Path, way: str) -> Path:
    if way == "excel":
        frame.to_excel(folder / "rows.xlsx", index=False)
        return folder / "rows.xlsx"
    marks = {"plain": {}, "semicolon": {"sep": ";", "decimal": ","}, "cp1252": {"encoding": "cp1252"}}[way]
    frame.to_csv(folder / "rows.csv", index=False, **marks)  # type: ignore[call-overload]
    return folder / "rows.csv"


@pytest.mark.parametrize("way", ["plain", "semicolon", "cp1252", "excel"])
@pytest.mark.parametrize("rows", [1, 3, 100])
def test_every_way_to_write_a_file_gives_the_same_rows(tmp_path: Path, way: str, rows: int) -> None:
    frame = FRAME.assign(pump=FRAME["pump"].replace("b", "Süd")) if way == "cp1252" else FRAME
    path = save(frame, tmp_path, way)
    read = pieces(path, INPUTS, rows)
    assert [u for piece in read for u in piece.units] == frame["pump"].tolist()
    assert [p for piece in read for p in piece.times] == [1, 1, 2, 3]
    assert [row for piece in read for row in piece.sensors.tolist()] == FRAME[["heat", "flow"]].to_numpy().tolist()
    assert read[-1].share == 1


def test_dates_are_time_since_1970(tmp_path: Path) -> None:
    when = pd.Timestamp("2024-05-01") + pd.to_timedelta(FRAME["hour"], unit="h")
    path = save(FRAME.assign(hour=when).rename(columns={"hour": "date"}), tmp_path, "plain")
    read = pieces(path, INPUTS, 1)
    assert [p for piece in read for p in piece.times] == pytest.approx([476257, 476257, 476258, 476259])


def test_columns_and_marks_of_the_training_table_are_remembered(tmp_path: Path) -> None:
    strange = FRAME.rename(columns={"pump": "where", "hour": "when"}).assign(run=["1", "1", "2", "1"], cost=1)
    strange["flow"] = [1234, 5678, 2345, 3456]  # with a comma between thousands, or decimals: only training knows
    path = tmp_path / "rows.csv"
    path.write_text(strange.to_csv(index=False, sep=";").replace("1234", "1,234"))
    table = TableLayout(unit="where", time="when", life="run", thousands=",", decimal=".")
    known = replace(INPUTS, table=table)
    (rows,) = pieces(path, known)
    assert rows.units == ["a", "b", "a#2", "b"] and rows.sensors[0, 1] == 1234.0
    whole = replace(INPUTS, table=TableLayout(time="when"))
    assert set(pieces(path, whole)[0].units) == {"rows"}
    other = replace(INPUTS, table=TableLayout(unit="gone", time="gone too"))  # a file with other names is guessed
    assert other.columns(other.open(save(FRAME, tmp_path, "plain"))[0]).unit == "pump"


def test_blank_cells_are_kept_for_the_stream_to_fill_or_refused(tmp_path: Path) -> None:
    path = save(FRAME.assign(heat=[1.0, None, 2.0, 3.0]), tmp_path, "plain")
    (rows,) = pieces(path, INPUTS)
    assert np.isnan(rows.sensors).any(axis=1).tolist() == [False, True, False, False]
    path = save(FRAME.assign(flow=[1.0, None, 2.0, 3.0]), tmp_path, "plain")
    with refuses(DataError, "line 3", "unit b", "'flow'"):
        pieces(path, INPUTS)


def positions(path: Path, layout: TableLayout, rows: int) -> list[tuple[str, float]]:
    """Units and times of a file as a model with this layout reads it."""
    known = replace(INPUTS, table=layout)
    return [pair for part in pieces(path, known, rows) for pair in zip(part.units, part.times.tolist(), strict=True)]


@pytest.mark.parametrize("rows", [1, 2, 100])
@pytest.mark.parametrize("new_life", ["time", "failed", None])
def test_lives_of_repaired_machines_are_those_of_training(tmp_path: Path, rows: int, new_life: str | None) -> None:
    hours = [1, 2, 3, 1, 2] if new_life == "time" else [1, 2, 3, 4, 5]
    frame = pd.DataFrame({"pump": "a", "hour": hours, "heat": 1.5, "flow": 2.0, "broken": [0, 0, 1, 0, 1]})
    path = save(frame.assign(life=[1, 1, 1, 2, 2]), tmp_path, "plain")
    layout = TableLayout(unit="pump", time="hour", new_life=new_life, failed="broken")  # type: ignore[arg-type]
    if new_life is None:
        layout = TableLayout(unit="pump", time="hour", life="life", failed="broken")
    lives = ["a", "a", "a", "a#2", "a#2"]
    # Prediction answers in the machine's own clock; training counts each life from its beginning.
    assert positions(path, layout, rows) == list(zip(lives, hours, strict=True))
    fleet = read_table(path, layout)
    trained = [(unit.id, time) for unit in fleet for time in unit.time]
    assert trained == list(zip(lives, [1, 2, 3, 1, 2], strict=True))


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_rows_are_sorted_where_those_of_training_were(tmp_path: Path, rows: int) -> None:
    path = save(FRAME.iloc[::-1], tmp_path, "plain")
    read = positions(path, TableLayout(unit="pump", time="hour", sort=True), rows)
    assert [time for _, time in read] == [1, 1, 2, 3]
    bad = FRAME.astype({"flow": object}).iloc[::-1]
    bad.iloc[1, 3] = "hot"
    path = save(bad, tmp_path, "plain")
    with refuses(DataError, "line 3", "unit a", "'hot'"):
        positions(path, TableLayout(unit="pump", time="hour", sort=True), rows)


def test_titles_clocks_and_texts_are_read_as_in_training(tmp_path: Path) -> None:
    lines = ["log of today;;;;", "pump;day;clock;heat;flow", "a;01.05.2024;00:00;0,5;1", "a;01.05.2024;06:00;err;2"]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    layout = TableLayout(unit="pump", time="day", clock="clock", time_format="%d.%m.%Y %H:%M", blanks=("err",))
    known = replace(INPUTS, table=layout)
    path = tmp_path / "rows.csv"
    (rows,) = pieces(path, known)
    assert rows.times.tolist() == pytest.approx([476256, 476262])
    assert np.isnan(rows.sensors).any(axis=1).tolist() == [False, True]


def test_a_sheet_of_training_may_be_called_otherwise_now(tmp_path: Path) -> None:
    path = save(FRAME, tmp_path, "excel")
    for sheet in ("Measurements", "*"):
        known = replace(INPUTS, table=TableLayout(unit="pump", time="hour", sheet=sheet))
        assert pieces(path, known)[0].units == ["a", "b", "a", "b"]


def test_every_sheet_is_a_unit_where_no_column_names_it(tmp_path: Path) -> None:
    with pd.ExcelWriter(tmp_path / "p.xlsx") as book:
        for pump in ("north", "south"):
            pd.DataFrame({"hour": [1, 2, 3], "heat": [1.0, 2.0, 3.0]}).to_excel(book, index=False, sheet_name=pump)
    inputs = ModelInputs(("heat",), (), False, "hours", ("hold",), TableLayout(time="hour", sheet="*"))
    read = pieces(tmp_path / "p.xlsx", inputs, 2)
    assert [piece.units for piece in read] == [["north"] * 2, ["north"], ["south"] * 2, ["south"]]
    assert read[-1].share == 1.0
    assert "sheet south, row 4" in read[-1].at(0)
