"""Tables with titles, stray texts, rows out of order, dates apart from times: read, or refused with a cure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_init import fleet_of, owners, pumps

from fedprognos.errors import ConfigError, DataError
from fedprognos.fleet import Fleet
from fedprognos.fleet.from_tables import read_table
from fedprognos.tables.columns import Columns
from fedprognos.tables.csv_format import FileFormat
from fedprognos.tables.proposal import propose
from refusals import refuses

MEASURES = ["", "h", "°C", "dB", ""]


def unchanged(clients: dict[str, Fleet], sensor: str = "heat") -> None:
    """Units that were not held out hold the very values of the table."""
    table = pumps()
    for fleet in clients.values():
        for unit in fleet:
            expected = table.loc[table["machine"] == unit.id, sensor].to_numpy()
            assert unit.sensors[:, 0].tolist() == pytest.approx(expected.tolist(), rel=1e-14)


def titled(path: Path) -> None:
    path.write_text("Log of the pumps,,,\n\n" + pumps().to_csv(index=False))


def commented(path: Path) -> None:
    path.write_text("# logger 3\n# exported today\n" + pumps().to_csv(index=False))


def measured(path: Path) -> None:
    names, rows = pumps().to_csv(index=False).split("\n", 1)
    path.write_text("\n".join([names, ",".join(MEASURES), rows]))


def spaced(path: Path) -> None:
    pumps().to_csv(path, index=False, sep=" ")


def backwards(path: Path) -> None:
    pumps().iloc[::-1].to_csv(path, index=False)


def shuffled(path: Path) -> None:
    pumps().sample(frac=1, random_state=0).to_csv(path, index=False)


def repeated(path: Path) -> None:
    pd.concat([pumps(), pumps().iloc[30:70]]).to_csv(path, index=False)


def joined(path: Path) -> None:
    """Several exports in one file, each with its names on top."""
    names, *rows = pumps().to_csv(index=False).splitlines()
    path.write_text("\n".join([names, *rows[:90], names, *rows[90:200], names, *rows[200:], ""]))


def numbered(path: Path) -> None:
    pumps().reset_index().to_csv(path)


@pytest.mark.parametrize(
    "write",
    [titled, commented, measured, spaced, backwards, shuffled, repeated, joined, numbered],
    ids=lambda w: w.__name__,
)
def test_a_table_is_found_in_a_file_as_it_is(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path / "p.csv")
    experiment, clients = fleet_of(tmp_path / "p.csv")
    assert experiment.data.sensors == ("heat", "noise")  # type: ignore[attr-defined]
    assert owners(clients) == ["north", "south", "west"]
    unchanged(clients)


def test_what_was_done_to_a_file_is_said(tmp_path: Path) -> None:
    notes = {}
    for write in (titled, measured, repeated):
        write(tmp_path / "p.csv")
        notes[write.__name__] = propose(tmp_path / "p.csv").note
    named = {"titled": " 1 and 2 ", "measured": " 2 ", "repeated": "40 "}
    assert all(named[how] in notes[how] for how in named)


def test_lines_below_a_title_are_still_counted_from_the_top(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("Log\n\npump,hour,heat\na,1,2\na,2,hot\na,3,1\n")
    with refuses(DataError, "line 5", "unit a", "'hot'", "data.blanks = ['hot']"):
        read_table(path, Columns(unit="pump", time="hour", sensors=("heat",)))


def test_the_line_of_names_may_be_said(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("one,two,three\npump,hour,heat\na,1,2\na,2,3\n")
    fleet = read_table(path, Columns(unit="pump", time="hour"), FileFormat(header=2))
    assert fleet["a"].sensors[:, 0].tolist() == [2, 3]


def test_a_file_without_names_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("1,1,2.5\n1,2,2.6\n")
    with refuses(DataError, "p.csv"):
        propose(tmp_path / "p.csv")


def test_texts_among_numbers_count_as_blanks(tmp_path: Path) -> None:
    frame = pumps().assign(heat=lambda f: [f"{heat:.3f}".replace(".", ",") for heat in f["heat"]])
    frame.loc[[7, 90], "heat"] = ["err", "<0,1"]
    frame.to_csv(tmp_path / "p.csv", index=False, sep=";", decimal=",")
    experiment, clients = fleet_of(tmp_path / "p.csv")
    assert experiment.data.blanks == ("err", "<0,1")  # type: ignore[attr-defined]
    assert experiment.data.sensors == ("heat", "noise")  # type: ignore[attr-defined]
    assert any("heat: 2 of" in note for note in clients["north"].notes)


def test_numbers_that_stand_for_no_value_count_as_blanks(tmp_path: Path) -> None:
    frame = pumps()
    frame.loc[[7, 90], "heat"] = -999
    frame.to_csv(tmp_path / "p.csv", index=False)
    experiment, clients = fleet_of(tmp_path / "p.csv")
    assert experiment.data.blanks == ("-999",)  # type: ignore[attr-defined]
    assert min(unit.sensors[:, 0].min() for fleet in clients.values() for unit in fleet) > 0
    frame.assign(depth=np.linspace(-999, 900, len(frame)).round()).to_csv(tmp_path / "p.csv", index=False)
    assert propose(tmp_path / "p.csv").file_format.blanks == ()


def test_semicolons_are_found_where_every_cell_has_a_decimal_comma(tmp_path: Path) -> None:
    for machine, rows in pumps().groupby("machine"):
        rows[["cycle", "heat", "noise"]].to_csv(tmp_path / f"{machine}.csv", index=False, sep=";", decimal=",")
    guess = propose(tmp_path)
    assert (guess.units, guess.columns.time, guess.columns.sensors) == (8, "cycle", ("heat", "noise"))


def test_texts_among_names_are_names(tmp_path: Path) -> None:
    frame = pumps().assign(machine=lambda f: f["machine"].str[1:].replace("3", "3a"))
    frame.to_csv(tmp_path / "p.csv", index=False)
    guess = propose(tmp_path / "p.csv")
    assert (guess.file_format.blanks, guess.columns.unit, guess.units) == ((), "machine", 8)


def test_a_date_and_a_time_of_day_are_one_time(tmp_path: Path) -> None:
    frame = pumps(time="when")
    when = pd.Timestamp("2024-03-01") + pd.to_timedelta(2 * frame.pop("when"), unit="h")
    frame.assign(Datum=when.dt.strftime("%d.%m.%Y"), Uhrzeit=when.dt.strftime("%H:%M")).to_csv(
        tmp_path / "p.csv", index=False, sep=";"
    )
    experiment, clients = fleet_of(tmp_path / "p.csv")
    assert (experiment.data.time, experiment.data.clock) == ("Datum", "Uhrzeit")  # type: ignore[attr-defined]
    unit = clients["south"].units[0]
    assert unit.time.tolist() == pytest.approx([2.0 * k for k in range(unit.rows)])
    assert unit.attributes["start"] == "2024-03-01T02:00:00"


@pytest.mark.parametrize("form", ["%d.%m.%y %H:%M", "excel"])
def test_short_years_and_days_of_excel_are_dates(tmp_path: Path, form: str) -> None:
    frame = pumps(time="Datum")
    when = pd.Timestamp("2024-03-20") + pd.to_timedelta(6 * (frame["Datum"] - 1), unit="h")
    days = (when - pd.Timestamp("1899-12-30")) / pd.Timedelta("1D")
    frame.assign(Datum=days if form == "excel" else when.dt.strftime(form)).to_csv(tmp_path / "p.csv", index=False)
    experiment, clients = fleet_of(tmp_path / "p.csv")
    data = experiment.data
    assert (data.time_format, data.time_measure) == (form, "hours")  # type: ignore[attr-defined]
    assert clients["north"].units[0].time[:3].tolist() == pytest.approx([0, 6, 12], abs=1e-4)
    assert clients["north"].units[0].attributes["start"] == "2024-03-20T00:00:00"


@pytest.mark.parametrize("form", ["%Y%m%d", "%d-%b-%Y"])
def test_days_as_numbers_and_months_as_words_are_dates(tmp_path: Path, form: str) -> None:
    days = pd.Timestamp("2024-01-20") + pd.to_timedelta(pumps()["cycle"], unit="D")
    pumps().assign(cycle=days.dt.strftime(form)).rename(columns={"cycle": "day"}).to_csv(
        tmp_path / "p.csv", index=False
    )
    experiment, clients = fleet_of(tmp_path / "p.csv")
    assert (experiment.data.time, experiment.data.time_format) == ("day", form)  # type: ignore[attr-defined]
    assert all(np.diff(unit.time).max() == 1.0 for fleet in clients.values() for unit in fleet)


def test_owners_that_some_rows_do_not_have_are_refused(tmp_path: Path) -> None:
    frame = pumps()
    frame["plant"] = frame["plant"].where(frame.index % 60 != 3)
    frame.to_csv(tmp_path / "p.csv", index=False)
    with refuses(DataError, "'plant'", "line 5"):
        read_table(tmp_path / "p.csv", propose(tmp_path / "p.csv").columns)
    assert propose(tmp_path / "p.csv", {"site": None}).columns.site is None


def test_a_remaining_life_in_classes_stands_back_behind_one_in_numbers(tmp_path: Path) -> None:
    frame = pumps()
    left = frame.groupby("machine")["cycle"].transform("max") - frame["cycle"]
    classes = np.where(left < 10, "red", "green")
    frame.assign(ttf_class=classes, time_to_failure=left).to_csv(tmp_path / "p.csv", index=False)
    columns = propose(tmp_path / "p.csv").columns
    assert (columns.time, columns.target, columns.sensors) == ("cycle", "time_to_failure", ("heat", "noise"))


def test_owners_are_one_however_they_are_spelt(tmp_path: Path) -> None:
    frame = pumps(owner="airline").replace({"airline": {"north": "KLM, Royal"}})
    frame["airline"] = [name.upper() + " " if k % 7 == 0 else name for k, name in enumerate(frame["airline"])]
    frame.to_csv(tmp_path / "p.csv", index=False)
    experiment, clients = fleet_of(tmp_path / "p.csv")
    assert experiment.data.site == "airline"  # type: ignore[attr-defined]
    assert owners(clients) == ["KLM, Royal", "south", "west"]
    assert any("KLM, ROYAL" in note for note in clients["south"].notes)


@pytest.mark.parametrize(("yes", "no"), [("ja", "nein"), ("broken", "running"), ("WAHR", "FALSCH")])
def test_failures_are_told_in_words(tmp_path: Path, yes: str, no: str) -> None:
    frame = pumps()
    last = ~frame.duplicated("machine", keep="last") & ~frame["machine"].isin(["p1", "p2"])
    frame.assign(Status=np.where(last, yes, no)).to_csv(tmp_path / "p.csv", index=False)
    guess = propose(tmp_path / "p.csv")
    assert guess.columns.failed == "Status"
    fleet = read_table(tmp_path / "p.csv", guess.columns)
    assert [unit.id for unit in fleet if not unit.failed] == ["p1", "p2"]


def test_a_mode_in_words_is_no_failure(tmp_path: Path) -> None:
    pumps().assign(failure_mode=lambda f: np.where(f["machine"] < "p4", "seal", "bearing")).to_csv(
        tmp_path / "p.csv", index=False
    )
    assert propose(tmp_path / "p.csv").columns.failed is None


def test_repaired_machines_on_a_counter_that_goes_on_have_the_lives_they_have(tmp_path: Path) -> None:
    frame = pumps(time="hours", lives=3)
    last = ~frame.duplicated(["machine", "life"], keep="last")
    frame.assign(hours=frame.groupby("machine").cumcount() + 1, failed=last.astype(int)).drop(columns="life").to_csv(
        tmp_path / "p.csv", index=False
    )
    guess = propose(tmp_path / "p.csv")
    assert (guess.columns.new_life, guess.units) == ("failed", 24)
    assert 40 <= guess.lengths.median_life + 1 <= 60


def test_rows_of_single_sensors_are_refused_with_the_cure(tmp_path: Path) -> None:
    pumps().melt(["machine", "cycle", "plant"], var_name="sensor").to_csv(tmp_path / "p.csv", index=False)
    with refuses(DataError, "'sensor'", "table.pivot(index=['machine'"):
        propose(tmp_path / "p.csv")


def test_two_rows_at_the_same_time_are_refused(tmp_path: Path) -> None:
    frame = pumps()
    frame.loc[20, "cycle"] = frame.loc[19, "cycle"]
    frame.to_csv(tmp_path / "p.csv", index=False)
    with refuses(DataError, "line 22", "cycle", "20"):
        read_table(tmp_path / "p.csv", propose(tmp_path / "p.csv").columns)


def test_sheets_of_excel_files(tmp_path: Path) -> None:
    with pd.ExcelWriter(tmp_path / "p.xlsx") as book:
        pd.DataFrame({"About": ["Log of our pumps"]}).to_excel(book, index=False, sheet_name="Read me")
        for plant, rows in pumps().groupby("plant"):
            rows.drop(columns="plant").to_excel(book, index=False, sheet_name=str(plant))
    experiment, clients = fleet_of(tmp_path / "p.xlsx")
    assert experiment.data.sheet == "*"  # type: ignore[attr-defined]
    assert owners(clients) == ["north", "south", "west"]
    unchanged(clients)
    bad = read_table(tmp_path / "p.xlsx", Columns(unit="machine", time="cycle"))  # the one with the most rows
    assert {unit.attributes.get("site") for unit in bad} == {None}


def test_an_excel_file_with_a_title_and_a_row_of_measures(tmp_path: Path) -> None:
    names = [list(pumps().columns), MEASURES]
    with pd.ExcelWriter(tmp_path / "p.xlsx") as book:
        pd.DataFrame([["Log of the pumps"]]).to_excel(book, index=False, header=False)
        pd.DataFrame(names).to_excel(book, index=False, header=False, startrow=2)
        pumps().to_excel(book, index=False, header=False, startrow=4)
    _, clients = fleet_of(tmp_path / "p.xlsx")
    assert owners(clients) == ["north", "south", "west"]
    unchanged(clients)


def test_a_folder_of_folders_has_a_site_in_each(tmp_path: Path) -> None:
    for (plant, machine), rows in pumps().groupby(["plant", "machine"]):
        (tmp_path / "fleet" / str(plant)).mkdir(parents=True, exist_ok=True)
        rows[["cycle", "heat", "noise"]].to_csv(tmp_path / "fleet" / str(plant) / f"{machine}.csv", index=False)
    _, clients = fleet_of(tmp_path / "fleet")
    assert owners(clients) == ["north", "south", "west"]
    assert all(unit.id.startswith("north/p") for unit in clients["north"])


def test_a_unit_of_one_row_is_left_out_and_named(tmp_path: Path) -> None:
    frame = pumps()
    frame[(frame["machine"] != "p1") | (frame["cycle"] == 1)].to_csv(tmp_path / "p.csv", index=False)
    _, clients = fleet_of(tmp_path / "p.csv")
    assert any(note.endswith(" p1") for note in clients["north"].notes)


def test_text_files_are_read_where_they_are_named(tmp_path: Path) -> None:
    pumps().to_csv(tmp_path / "p.txt", index=False, sep="\t")
    assert propose(tmp_path / "p.txt").units == 8
    with pytest.raises(DataError):
        propose(tmp_path)  # in a folder it is rarely a table


def test_sorted_rows_cannot_restart() -> None:
    with refuses(ConfigError, "sort", "new_life"):
        Columns(unit="pump", time="hour", sort=True, new_life="time")


@pytest.mark.parametrize("first", [9007199254740992, 8007199254740993000])
def test_ids_too_long_for_a_number_stay_apart(tmp_path: Path, first: int) -> None:
    names = {name: str(first + k) for k, name in enumerate(pumps()["machine"].unique())}
    table = pumps().assign(machine=lambda frame: frame["machine"].map(names))
    table.to_csv(tmp_path / "pumps.csv", index=False)
    proposal = propose(tmp_path / "pumps.csv")
    assert (proposal.units, proposal.columns.new_life) == (len(names), None)
    _, clients = fleet_of(tmp_path / "pumps.csv")
    assert {unit.id for fleet in clients.values() for unit in fleet} <= set(names.values())


def test_infinite_values_among_numbers_are_blanks(tmp_path: Path) -> None:
    table = pumps()
    table.loc[[5, 9], "heat"] = [np.inf, -np.inf]
    table.to_csv(tmp_path / "pumps.csv", index=False)
    proposal = propose(tmp_path / "pumps.csv")
    assert set(proposal.file_format.blanks) == {"inf", "-inf"}
    fleet = read_table(tmp_path / "pumps.csv", proposal.columns, proposal.file_format)
    assert np.isfinite(np.concatenate([unit.sensors for unit in fleet])).all()


def test_a_row_of_totals_is_named_by_its_line(tmp_path: Path) -> None:
    totals = ["Total" if name == "machine" else "" for name in pumps().columns]
    (tmp_path / "pumps.csv").write_text(pumps().to_csv(index=False) + ",".join(totals) + "\n")
    with refuses(DataError, f"line {len(pumps()) + 2}", "cycle", "--time"):
        propose(tmp_path / "pumps.csv")


def test_a_health_in_percent_ends_lives(tmp_path: Path) -> None:
    cycle = np.arange(1, 101)
    cells = [pd.DataFrame({"id": f"Z {k}", "cycle": cycle, "SoH [%]": 100 - 0.3 * cycle}) for k in range(4)]
    pd.concat(cells).to_csv(tmp_path / "cells.csv", index=False, sep=";", decimal=",")
    columns = propose(tmp_path / "cells.csv").columns
    assert (columns.unit, columns.health, columns.end_of_life) == ("id", "SoH [%]", 0.8)
