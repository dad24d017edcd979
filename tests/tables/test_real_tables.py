"""Tables as people have them: other separators and decimal marks, dates, blanks, repaired machines, Excel."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedprognos.errors import ConfigError, DataError, MissingExtraError
from fedprognos.fleet import Fleet
from fedprognos.fleet.from_tables import read_table
from fedprognos.fleet.readers import ReadContext, read
from fedprognos.fleet.readers.table_reader import TableOptions
from fedprognos.tables.columns import Columns
from fedprognos.tables.csv_format import FileFormat, find_csv_format
from refusals import refuses

PUMPS = Columns(unit="pump", time="hour", sensors=("heat", "flow"))
PLAIN = "pump,hour,heat,flow\na,1,20.5,1234.5\na,2,21.25,1200\nb,1,19.5,999.75\nb,2,0.125,1500\n"
HEAT, FLOW = [20.5, 21.25], [1234.5, 1200.0]


def written(folder: Path, text: str, name: str = "fleet.csv", encoding: str = "utf-8") -> Path:
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


WAYS = {
    "semicolons and decimal commas": PLAIN.replace(",", ";").replace(".", ","),
    "semicolons and decimal points": PLAIN.replace(",", ";"),
    "tabs": PLAIN.replace(",", "\t"),
    "bars": PLAIN.replace(",", "|"),
    "German thousands": "pump;hour;heat;flow\na;1;20,5;1.234,5\na;2;21,25;1.200\nb;1;19,5;999,75\nb;2;0,125;1.500\n",
    "English thousands": PLAIN.replace("1234.5", '"1,234.5"').replace("1200", '"1,200"').replace("1500", '"1,500"'),
    "a separator at the end of every line": PLAIN.replace(",", ";").replace("\n", ";\n"),
    "Windows line ends": PLAIN.replace("\n", "\r\n"),
}


@pytest.mark.parametrize("way", WAYS)
def test_separators_and_marks_are_found_out(tmp_path: Path, way: str) -> None:
    fleet = read_table(written(tmp_path, WAYS[way]), PUMPS)
    assert fleet.ids == ("a", "b")
    assert fleet["a"].sensors[:, 0].tolist() == HEAT
    assert fleet["a"].sensors[:, 1].tolist() == FLOW
    assert fleet["b"].sensors.tolist() == [[19.5, 999.75], [0.125, 1500.0]]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_encodings_are_found_out(tmp_path: Path, encoding: str) -> None:
    text = PLAIN.replace("pump", "Größe").replace("a,", "Müller,")
    fleet = read_table(written(tmp_path, text, encoding=encoding), Columns(unit="Größe", time="hour"))
    assert fleet.ids == ("Müller", "b")
    assert (encoding == "cp1252") == any("cp1252" in note for note in fleet.notes)


@pytest.mark.parametrize(
    ("unit", "name", "encoding"),
    [
        ("m³h_Größe", "Cœur", "cp1252"),
        ("Strom [m³/h]", "Škoda", "cp1252"),
        ("débit à m²", "Žák", "cp1252"),
        ("zakład", "Łódź", "cp1250"),
        ("snímač", "Plzeň šest", "cp1250"),
    ],
)
def test_letters_of_the_east_and_of_the_west(tmp_path: Path, unit: str, name: str, encoding: str) -> None:
    text = PLAIN.replace("pump", unit).replace("a,", f"{name},")
    fleet = read_table(written(tmp_path, text, encoding=encoding), Columns(unit=unit, time="hour"))
    assert fleet.ids == (name, "b")


def test_what_is_said_about_a_file_counts(tmp_path: Path) -> None:
    path = written(tmp_path, "pump;hour;heat\na;1;1,234\na;2;2,345\n")
    columns = Columns(unit="pump", time="hour")
    assert read_table(path, columns)["a"].sensors[0, 0] == 1.234
    assert read_table(path, columns, FileFormat(decimal=".", thousands=","))["a"].sensors[0, 0] == 1234
    with refuses(DataError, "utf-9"):
        find_csv_format(path, FileFormat(encoding="utf-9"))
    with refuses(DataError, "ascii"):
        find_csv_format(written(tmp_path, "ö;b\n1;2\n"), FileFormat(encoding="ascii"))


def test_a_late_umlaut_does_not_stop_the_reading(tmp_path: Path) -> None:
    lines = [f"m,{k},{k}" for k in range(200_000)]
    path = written(tmp_path, "\n".join(["pump,hour,heat", *lines, "Süd,1,1", "Süd,2,2"]), encoding="cp1252")
    assert read_table(path, Columns(unit="pump", time="hour")).ids == ("m", "Süd")


def test_a_table_of_a_million_columns_is_refused_at_once(tmp_path: Path) -> None:
    names = ",".join(f"c{k}" for k in range(1_000_000))
    path = written(tmp_path, f"{names}\n{','.join('1' * 1_000_000)}\n")
    began = time.process_time()
    with refuses(DataError, "5,000"):
        read_table(path, Columns(time="c0"))
    assert time.process_time() - began < 2


def test_excel_files_are_read(tmp_path: Path) -> None:
    frame = pd.read_csv(written(tmp_path, PLAIN))
    frame["pump"] = ["007", "007", "b", "b"]
    with pd.ExcelWriter(tmp_path / "fleet.xlsx") as book:
        pd.DataFrame({"note": ["not this one"]}).to_excel(book, sheet_name="about", index=False)
        frame.to_excel(book, sheet_name="rows", index=False)
    columns = Columns(unit="pump", time="hour")
    fleet = read_table(tmp_path / "fleet.xlsx", columns, FileFormat(sheet="rows"))
    assert fleet.ids == ("007", "b")
    assert fleet["007"].sensors[:, 0].tolist() == HEAT
    with refuses(DataError, "'row'", "about, rows"):
        read_table(tmp_path / "fleet.xlsx", columns, FileFormat(sheet="row"))
    frame = frame.astype(object)
    frame.loc[1, "heat"] = "hot"
    frame.to_excel(tmp_path / "fleet.xlsx", index=False)
    with refuses(DataError, "fleet.xlsx", "row 3", "unit 007", "'hot'", "'heat'"):
        read_table(tmp_path / "fleet.xlsx", PUMPS)
    written(tmp_path, "no zip", "bad.xlsx")
    with refuses(DataError, "bad.xlsx", "Excel"):
        read_table(tmp_path / "bad.xlsx", PUMPS)


def test_excel_without_openpyxl_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "PK", "fleet.xlsx")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with refuses(MissingExtraError, "fedprognos[excel]"):
        read_table(tmp_path / "fleet.xlsx", PUMPS)


DAYS = ["2024-02-28 06:00", "2024-02-28 18:00", "2024-03-01 06:00"]


@pytest.mark.parametrize(
    ("times", "form"),
    [
        (DAYS, None),
        ([d.replace(" ", "T") + ":00+01:00" for d in DAYS], None),
        (["28.02.2024 06:00", "28.02.2024 18:00", "01.03.2024 06:00"], None),
        (["02/28/2024 06:00", "02/28/2024 18:00", "03/01/2024 06:00"], None),
        (["1709100000", "1709143200", "1709272800"], None),
        (["1709100000000", "1709143200000", "1709272800000"], None),
        (["20240228-06", "20240228-18", "20240301-06"], "%Y%m%d-%H"),
    ],
)
def test_dates_are_a_time_axis(tmp_path: Path, times: list[str], form: str | None) -> None:
    lines = [f"a;{when};{k}" for k, when in enumerate(times)]
    path = written(tmp_path, "\n".join(["pump;when;heat", *lines]))
    columns = Columns(unit="pump", time="when", time_format=form)
    hours = read_table(path, columns)
    assert hours["a"].time.tolist() == [0, 12, 48]
    assert hours["a"].labels().tolist() == [48, 36, 0]
    assert (hours.schema.time_measure, hours.schema.target_measure) == ("hours", "hours")
    assert str(hours["a"].attributes["start"]).startswith("2024-02-28T0")
    days = read_table(path, columns.model_copy(update={"time_measure": "days"}))
    assert days["a"].labels().tolist() == [2, 1.5, 0]
    assert days.schema.target_measure == "days"


@pytest.mark.parametrize(
    ("times", "more", "error", "values"),
    [
        (["01/02/2024", "02/02/2024"], {}, ConfigError, ("%d/%m/%Y", "%m/%d/%Y", "data.time_format")),
        (
            ["2024-01-02", "soon"],
            {"time_format": "iso"},
            DataError,
            ("line 3", "unit a", "'soon'", "'when'"),
        ),
        (["2024-01-02", "2024-01-02"], {}, DataError, ("when", "2024-01-02 after 2024-01-02")),
        (["2024-01-03", "2024-01-02"], {}, DataError, ("when", "data.new_life = 'time'")),
        (
            ["2024-01-02", "2024-01-03"],
            {"time_measure": "cycles"},
            ConfigError,
            ("'cycles'", "'when'"),
        ),
    ],
)
def test_wrong_dates_are_named(
    tmp_path: Path, times: list[str], more: dict[str, Any], error: type[Exception], values: tuple[str, ...]
) -> None:
    path = written(tmp_path, "\n".join(["pump,when,heat", *(f"a,{when},{k}" for k, when in enumerate(times))]))
    with refuses(error, *values):
        read_table(path, Columns(unit="pump", time="when", **more))


@pytest.mark.parametrize(
    ("column", "said", "measure"),
    [
        ("hour", None, "hours"),
        ("age_in_d", None, "days"),
        ("cycle", None, "cycles"),
        ("t", None, "steps"),
        ("t", "km", "km"),
    ],
)
def test_the_measure_of_time_is_that_of_the_labels(column: str, said: str | None, measure: str) -> None:
    frame = pd.DataFrame({"pump": ["a", "a"], column: [1, 2], "heat": [1, 2]})
    schema = Fleet.from_frame(frame, unit="pump", time=column, time_measure=said).schema
    assert (schema.time_measure, schema.target_measure) == (measure, measure)


BLANKS = pd.DataFrame(
    {
        "pump": ["a"] * 5 + ["b"] * 3,
        "hour": [1, 2, 3, 5, 6, 1, 2, 3],
        "load": [0, 0, 1, np.nan, 1, 0, 1, 1],
        "heat": [np.nan, 20, np.nan, 26, np.nan, 10, np.nan, 30],
    }
)


@pytest.mark.parametrize(
    ("policy", "a", "b"),
    [
        ("hold", [15, 20, 20, 26, 26], [10, 10, 30]),
        ("interpolate", [20, 20, 22, 26, 26], [10, 20, 30]),
        ("mean", [15, 20, 30, 26, 30], [10, 30, 30]),
    ],
)
def test_blanks_are_filled_and_counted(policy: str, a: list[float], b: list[float]) -> None:
    columns = {"unit": "pump", "time": "hour", "sensors": ["heat"], "settings": ["load"]}
    fleet = Fleet.from_frame(BLANKS, **columns, missing=policy)  # type: ignore[arg-type]
    assert {unit.id: unit.sensors[:, 0].tolist() for unit in fleet} == {"a": a, "b": b}
    assert fleet["a"].settings[:, 0].tolist() == [0, 0, 1, 1, 1]
    assert any(note.startswith("heat: 4 of 8 values are missing; ") for note in fleet.notes)
    assert any(note.startswith("load: 1 of 8 values are missing; filled with the last") for note in fleet.notes)


def test_blanks_may_be_filled_by_sensor_or_refused() -> None:
    frame = BLANKS.assign(flow=BLANKS["heat"])
    columns = {"unit": "pump", "time": "hour", "sensors": ["heat", "flow"], "settings": ["load"]}
    fleet = Fleet.from_frame(frame, **columns, missing={"heat": "interpolate"})  # type: ignore[arg-type]
    assert fleet["a"].sensors[2].tolist() == [22, 20]
    with refuses(DataError, "row 0", "unit a", "'heat'", "4"):
        Fleet.from_frame(frame, **columns, missing={"heat": "refuse"})  # type: ignore[arg-type]
    with refuses(ConfigError, "'heet'"):
        Fleet.from_frame(frame, **columns, missing={"heet": "hold"})  # type: ignore[arg-type]
    with refuses(ConfigError, "mean", "'hold'", "'refuse'"):
        Fleet.from_frame(frame, **columns, missing={"load": "mean"})  # type: ignore[arg-type]
    with refuses(DataError, "'load'"):
        Fleet.from_frame(frame.assign(load=[np.nan, *frame["load"][1:]]), **columns)  # type: ignore[arg-type]
    with refuses(DataError, "'heat'"):
        Fleet.from_frame(frame.assign(heat=np.nan), **columns)  # type: ignore[arg-type]


def test_four_blanks_in_many_rows_are_told_as_a_note(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"pump": np.repeat(["a", "b"], 500), "hour": np.tile(np.arange(500), 2)})
    frame["heat"] = rng.normal(size=1000)
    frame.loc[[3, 40, 700, 701], "heat"] = np.nan
    frame.to_csv(tmp_path / "fleet.csv", index=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        source = read(TableOptions(path="fleet.csv", unit="pump", time="hour"), ReadContext(folder=tmp_path))
    assert [str(w.message).split(": ", 1)[1] for w in caught] == [
        "heat: 4 of 1000 values are missing; filled with the last value"
    ]
    assert source.fleet["b"].sensors[201, 0] == source.fleet["b"].sensors[199, 0]


def test_cycles_are_filled_each_for_itself() -> None:
    frame = pd.DataFrame(
        {"cell": "c", "no": [1, 1, 2, 2], "t": [0, 5, 0, 5], "v": [4.0, 3.0, np.nan, 2.0], "soh": [9, 9, 8, 8]}
    )
    fleet = Fleet.from_frame(frame, task="soh", unit="cell", cycle="no", time="t", target="soh", missing="interpolate")
    assert fleet["c"].sensors[:, 0].tolist() == [4, 3, 2, 2]
    assert fleet.schema.target_measure == "soh"


REPAIRED = pd.DataFrame(
    {
        "pump": ["a"] * 7 + ["b"] * 2,
        "hour": [1, 2, 3, 1, 2, 3, 4, 1, 2],
        "total": [1, 2, 3, 4, 5, 6, 7, 1, 2],
        "life": [1, 1, 1, 2, 2, 2, 2, 1, 1],
        "broken": [0, 0, 1, 0, 0, 0, 0, 0, 1],
        "heat": np.arange(9.0),
    }
)


@pytest.mark.parametrize(
    "columns",
    [
        {"time": "hour", "life": "life"},
        {"time": "total", "life": "life"},
        {"time": "hour", "new_life": "time"},
        {"time": "total", "new_life": "failed"},
    ],
)
def test_a_repaired_machine_has_several_lives(columns: dict[str, str]) -> None:
    fleet = Fleet.from_frame(REPAIRED, unit="pump", sensors=["heat"], failed="broken", **columns)  # type: ignore[arg-type]
    assert fleet.ids == ("a", "a#2", "b")
    assert [u.rows for u in fleet] == [3, 4, 2]
    assert fleet["a"].labels().tolist() == [2, 1, 0]
    assert fleet["a#2"].time.tolist() == [1, 2, 3, 4]
    assert (fleet["a#2"].labels(), fleet["a#2"].failed) == (None, False)
    assert [u.attributes["machine"] for u in fleet] == ["a", "a", "b"]
    assert any(note.startswith("1 of 3 units have not failed") for note in fleet.notes)


def test_cures_for_repaired_machines_are_told() -> None:
    with refuses(DataError, "data.new_life = 'time'"):
        Fleet.from_frame(REPAIRED, unit="pump", time="hour", sensors=["heat"])
    with refuses(DataError, "data.new_life = 'failed'"):
        Fleet.from_frame(REPAIRED, unit="pump", time="total", sensors=["heat"], failed="broken")
    with refuses(ConfigError, "new_life", "failed"):
        Fleet.from_frame(REPAIRED, unit="pump", time="total", new_life="failed")
    short = pd.concat([REPAIRED, pd.DataFrame([{"pump": "b", "hour": 0, "heat": 1.0}])])
    fleet = Fleet.from_frame(short, unit="pump", time="hour", sensors=["heat"], new_life="time")
    assert any(note.endswith(" b#2") for note in fleet.notes)
