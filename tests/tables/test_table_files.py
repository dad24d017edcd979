from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedprognos.errors import ConfigError, DataError, DataNotFoundError
from fedprognos.fleet import Fleet
from fedprognos.fleet.from_tables import read_table
from fedprognos.tables.columns import Columns
from refusals import refuses

COLUMNS = Columns(unit="machine", time="cycle", sensors=["vibration", "heat"], settings=["load"], site="plant")


def rows(machine: str = "m1", plant: str = "A", n: int = 4) -> list[str]:
    return [f"{machine},{k},{0.1 * k},{20 + k},{k % 2},{plant}" for k in range(1, n + 1)]


def csv(lines: Sequence[str], header: str = "machine,cycle,vibration,heat,load,plant") -> str:
    return "\n".join([header, *lines]) + "\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "fleet.csv", csv([*rows("007", "A", 4), *rows("m2", "B", 3)]))


def test_units_labels_settings_and_sites_are_read(file: Path) -> None:
    fleet = read_table(file, COLUMNS)
    assert fleet.ids == ("007", "m2")
    assert fleet["007"].labels().tolist() == [3, 2, 1, 0]
    assert fleet["007"].attributes == {"site": "A"}
    assert fleet["m2"].settings[:, 0].tolist() == [1, 0, 1]
    assert fleet["m2"].sensors[:, 1].tolist() == [21, 22, 23]
    assert fleet.schema.sensors == ("vibration", "heat")
    assert fleet.schema.time == "cycle"


def test_floats_round_trip(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(500, 2)) * 10.0 ** rng.integers(-12, 12, size=(500, 1))
    frame = pd.DataFrame(values, columns=["vibration", "heat"]).assign(machine="m", cycle=np.arange(500))
    frame.to_csv(tmp_path / "fleet.csv", index=False)
    fleet = read_table(tmp_path / "fleet.csv", Columns(unit="machine", time="cycle"))
    assert np.array_equal(fleet["m"].sensors, values)


def test_rows_of_units_may_be_mixed(tmp_path: Path) -> None:
    mixed = [line for pair in zip(rows("a"), rows("b"), strict=True) for line in pair]
    fleet = read_table(write(tmp_path / "f.csv", csv(mixed)), COLUMNS)
    assert fleet["b"].time.tolist() == [1, 2, 3, 4]


def test_unnamed_sensors_are_all_other_numbers(tmp_path: Path) -> None:
    lines = [f"{line},note" for line in rows()]
    path = write(tmp_path / "f.csv", csv(lines, "machine,cycle,vibration,heat,load,plant,remark"))
    assert read_table(path, COLUMNS.model_copy(update={"sensors": None})).schema.sensors == ("vibration", "heat")
    lines[2] = lines[2].replace("23", "hot")
    write(path, csv(lines, "machine,cycle,vibration,heat,load,plant,remark"))
    with refuses(DataError, "line 4", "unit m1", "'hot'", "'heat'"):
        read_table(path, COLUMNS.model_copy(update={"sensors": None}))


@pytest.mark.parametrize("suffix", [".csv.gz", ".parquet", ";", "bom", "blank lines"])
def test_other_ways_to_write_the_same_table(file: Path, tmp_path: Path, suffix: str) -> None:
    text = file.read_text()
    other = tmp_path / "other"
    other.mkdir()
    if suffix == ".csv.gz":
        path = other / "fleet.csv.gz"
        path.write_bytes(gzip.compress(text.encode()))
    elif suffix == ".parquet":
        pytest.importorskip("pyarrow")
        path = other / "fleet.parquet"
        pd.read_csv(file, dtype={"machine": str}).to_parquet(path)
    else:
        changed = {";": text.replace(",", ";"), "bom": "\ufeff" + text, "blank lines": text.replace("\n", "\n\n")}
        path = write(other / "fleet.csv", changed[suffix])
    one, two = read_table(file, COLUMNS), read_table(path, COLUMNS)
    assert one.ids == two.ids
    for unit in one:
        assert np.array_equal(unit.sensors, two[unit.id].sensors)
        assert unit.attributes == two[unit.id].attributes


def test_one_file_a_unit_or_a_site(tmp_path: Path) -> None:
    header = "cycle,vibration"
    for name in ("pump-1", "pump-2"):
        write(tmp_path / f"{name}.csv", csv(["1,0.5", "2,0.6"], header))
    per_unit = read_table(tmp_path, Columns(time="cycle"))
    assert per_unit.ids == ("pump-1", "pump-2")
    sites = tmp_path / "sites"
    sites.mkdir()
    write(sites / "north.csv", csv(rows("n1")))
    write(sites / "south.csv", csv(rows("s1")))
    by_site = COLUMNS.model_copy(update={"site": None})
    for source in (sites, str(sites / "*.csv"), [sites / "north.csv", sites / "south.csv"]):
        assert [u.attributes["site"] for u in read_table(source, by_site)] == ["north", "south"]
    write(sites / "west.csv", csv(rows("n1")))
    fleet = read_table(sites, by_site)
    assert [(u.id, u.attributes["site"]) for u in fleet] == [("n1", "north"), ("s1", "south"), ("west/n1", "west")]
    assert any("n1" in note for note in fleet.notes)


def test_a_unit_goes_on_in_the_next_file(tmp_path: Path) -> None:
    for name, hours in (("2024-01", (1, 2, 3)), ("2024-02", (4, 5))):
        lines = [f"{pump},{hour},{hour / 2}" for hour in hours for pump in ("a", "b")]
        write(tmp_path / f"{name}.csv", csv(lines, "pump,hour,heat"))
    fleet = read_table(tmp_path, Columns(unit="pump", time="hour"))
    assert fleet.ids == ("a", "b")
    assert fleet["b"].time.tolist() == [1, 2, 3, 4, 5]
    assert "site" not in fleet["a"].attributes


def test_failed_column_tells_censored_units(tmp_path: Path) -> None:
    header = "machine,cycle,heat,dead"
    lines = ["a,1,5,0", "a,2,5,1", "b,1,5,no", "b,2,6,no", "c,1,5,true", "c,2,5,true"]
    columns = Columns(unit="machine", time="cycle", failed="dead", sensors=["heat"])
    fleet = read_table(write(tmp_path / "f.csv", csv(lines, header)), columns)
    assert [(u.failed, u.rul_at_end) for u in fleet] == [(True, 0.0), (False, None), (True, 0.0)]
    with refuses(DataError, "f.csv", "label"):
        read_table(write(tmp_path / "f.csv", csv(lines[2:4], header)), columns)
    censored = read_table(tmp_path / "f.csv", columns, require_labels=False)
    assert censored["b"].labels() is None
    with refuses(DataError, "line 2", "unit a", "'dead'"):
        read_table(write(tmp_path / "f.csv", csv(["a,1,5,1", "a,2,5,0"], header)), columns)
    with refuses(DataError, "line 2", "'maybe'", "'dead'"):
        read_table(write(tmp_path / "f.csv", csv(["a,1,5,maybe", "a,2,5,0"], header)), columns)


def test_rul_column_is_the_label(tmp_path: Path) -> None:
    columns = Columns(unit="machine", time="cycle", sensors=["heat"], target="rul")
    lines = ["a,1,5,9", "a,2,5,8", "b,1,5,1", "b,2,5,0"]
    fleet = read_table(write(tmp_path / "f.csv", csv(lines, "machine,cycle,heat,rul")), columns)
    assert fleet["a"].labels().tolist() == [9, 8]
    assert [(u.failed, u.rul_at_end) for u in fleet] == [(False, 8.0), (True, 0.0)]
    with refuses(DataError, "line 3", "unit a", "RUL", "-1"):
        read_table(write(tmp_path / "f.csv", csv(["a,1,5,0", "a,2,5,-1"], "machine,cycle,heat,rul")), columns)


SOH = Columns(unit="cell", time="t", cycle="no", sensors=["v"], target="capacity_in_Ah", task="soh")
SOH_HEADER = "cell,no,t,v,capacity_in_Ah"
SOH_LINES = ["c,1,0,4,2.0", "c,1,5,3,2.0", "c,3,0,4,1.9", "c,3,5,3,1.9", "c,3,9,2,1.9"]


def test_cycles_and_their_health_are_read(tmp_path: Path) -> None:
    fleet = read_table(write(tmp_path / "f.csv", csv(SOH_LINES, SOH_HEADER)), SOH)
    unit = fleet["c"]
    assert unit.cycles.tolist() == [0, 2, 5]
    assert unit.cycle_numbers.tolist() == [1, 3]
    assert unit.labels().tolist() == [2.0, 1.9]
    assert (fleet.schema.task, fleet.schema.target_measure) == ("soh", "Ah")


@pytest.mark.parametrize(
    ("line", "text", "values"),
    [
        (3, "c,1,5,3,2.1", ("line 3", "unit c", "'capacity_in_Ah'", "2.1")),
        (3, "c,1,0,3,2.0", ("line 3", "unit c", "t: 0 after 0")),
        (4, "c,0,0,4,1.9", ("line 4", "unit c", "no: 0 after 1")),
        (2, "c,0.5,0,4,2.0", ("line 2", "unit c", "0.5", "'no'")),
        (2, "c,1,0,4,", ("line 2", "unit c", "'capacity_in_Ah'")),
    ],
)
def test_bad_cycles_are_named(tmp_path: Path, line: int, text: str, values: tuple[str, ...]) -> None:
    lines = list(SOH_LINES)
    lines[line - 2] = text
    with refuses(DataError, *values):
        read_table(write(tmp_path / "f.csv", csv(lines, SOH_HEADER)), SOH)


def test_health_needs_a_label_to_learn_from(tmp_path: Path) -> None:
    path = write(tmp_path / "f.csv", csv(SOH_LINES, SOH_HEADER))
    with refuses(DataError, "f.csv", "label"):
        read_table(path, SOH.model_copy(update={"target": None}))
    assert read_table(path, SOH.model_copy(update={"target": None}), require_labels=False)["c"].labels() is None


def changed(line: int, text: str) -> str:
    lines = [*rows("m1", "A"), *rows("m2", "B")]
    lines[line - 2] = text
    return csv(lines)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", ()),
        (csv([]), ()),
        (csv(rows(), "mashine,cycle,vibration,heat,load,plant"), ("'machine'", "'mashine'")),
        (csv(rows(), "machine,cycle,heat,heat,load,plant"), ("'heat'",)),
        (changed(4, "m1,3,x,23,1,A"), ("line 4", "unit m1", "'x'", "'vibration'")),
        (changed(4, "m1,3,,23,1,A"), ("line 4", "unit m1", "'vibration'")),
        (changed(4, "m1,3,nan,23,1,A"), ("line 4", "unit m1", "'vibration'")),
        (changed(4, "m1,3,-inf,23,1,A"), ("line 4", "unit m1", "-inf", "'vibration'")),
        (changed(4, "m1,3,0.1,23,NaN,A"), ("line 4", "unit m1", "'load'")),
        (changed(4, "m1,2024-05-01,0.1,23,1,A"), ("line 4", "unit m1", "'2024-05-01'", "'cycle'")),
        (changed(4, 'm1,3,"0,1",23,1,A'), ("'0,1'", "'vibration'", "data.decimal = ','")),
        (changed(4, "m1,2,0.1,23,1,A"), ("line 4", "unit m1", "cycle: 2 after 2")),
        (changed(8, "m2,1,0.1,23,1,B"), ("line 8", "unit m2", "cycle: 1 after 2")),
        (changed(4, "m1,3,0.1,23,1,B"), ("line 4", "unit m1", "'A'", "'B'")),
        (changed(4, ",3,0.1,23,1,A"), ("line 4", "'machine'")),
        (changed(4, "m1,3,0.1,23,1,"), ("line 4", "'plant'")),
        (csv(["m1,1,1,1,1,A", "m2,1,2,2,2,A"]), ()),
        (changed(4, "m1,3,0.1,23,1,A,7"), ("line 4", "7", "6")),
        (changed(4, "m1,3,0.1"), ("line 4", "unit m1", "'heat'")),
        (csv([f"{r},9" for r in rows()]), ("line 2", "7", "6")),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, text: str, values: tuple[str, ...]) -> None:
    path = write(tmp_path / "fleet.csv", text)
    with refuses(DataError, path, *values):
        read_table(path, COLUMNS.model_copy(update={"missing": "refuse"}))


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with refuses(DataNotFoundError, "none.csv"):
        read_table(tmp_path / "none.csv", COLUMNS)
    with refuses(DataNotFoundError, tmp_path, ".csv", ".parquet"):
        read_table(tmp_path, COLUMNS)
    with refuses(DataError, "fleet.doc", ".csv", ".parquet"):
        read_table(write(tmp_path / "fleet.doc", "a"), COLUMNS)
    whole = gzip.compress(csv(rows(n=500)).encode())
    (tmp_path / "cut.csv.gz").write_bytes(whole[: len(whole) // 2])
    with refuses(DataError, "cut.csv.gz"):
        read_table(tmp_path / "cut.csv.gz", COLUMNS)
    (tmp_path / "bad.parquet").write_bytes(b"not parquet")
    with refuses(DataError, "bad.parquet", "Parquet"):
        read_table(tmp_path / "bad.parquet", COLUMNS)


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"task": "rull"}, ("task", "'rul'", "'soh'", "'rull'")),
        ({"task": "soh"}, ("soh", "cycle")),
        ({"cycle": "no"}, ("rul", "'cycle'")),
        ({"sensors": ["a", "t"]}, ("'t'",)),
    ],
)
def test_contradicting_roles_are_refused(options: dict[str, object], values: tuple[str, ...]) -> None:
    with refuses(ConfigError, *values):
        Fleet.from_frame(pd.DataFrame({"u": [1], "t": [1]}), **{"unit": "u", "time": "t", **options})  # type: ignore


def test_a_data_frame_gives_the_fleet_its_file_gives(file: Path) -> None:
    frame = pd.read_csv(file, dtype={"machine": str}).set_index("cycle", drop=False)
    roles = COLUMNS.model_dump()
    one, two = read_table(file, COLUMNS), Fleet.from_frame(frame, **roles)
    assert (one.ids, one.schema) == (two.ids, two.schema)
    for unit in one:
        assert np.array_equal(unit.sensors, two[unit.id].sensors)
        assert np.array_equal(unit.settings, two[unit.id].settings)
        assert unit.labels().tolist() == two[unit.id].labels().tolist()
        assert unit.attributes == two[unit.id].attributes
    whole = Fleet.from_frame(frame[frame["machine"] == "m2"], time="cycle", sensors=["heat"], name="pump")
    assert (whole.ids, whole["pump"].sensors[:, 0].tolist()) == (("pump",), [21, 22, 23])


def test_bad_rows_of_a_data_frame_are_named(file: Path) -> None:
    frame = pd.read_csv(file, dtype={"machine": str})
    frame.loc[5, "heat"] = np.nan
    with refuses(DataError, "pumps", "row 5", "unit m2", "'heat'"):
        Fleet.from_frame(frame, **{**COLUMNS.model_dump(), "missing": "refuse"}, name="pumps")
    with refuses(DataError, "'hour'", "machine, cycle"):
        Fleet.from_frame(frame, unit="machine", time="hour")
