"""What a table that nobody has described seems to hold: the roles of its columns, found one after the other.

Roles are guessed here, and no more. Blank owners, labels in words and rows that occur twice are left to the reader of a
run, which `init` lets read the rows before it writes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from fedprognos.errors import DataError
from fedprognos.tables import roles
from fedprognos.tables.column_names import by_name, one_spelling, pick, rank
from fedprognos.tables.columns import Columns, Task
from fedprognos.tables.csv_format import FileFormat
from fedprognos.tables.cycle_rules import END_OF_LIFE
from fedprognos.tables.lengths import Lengths, measure_lengths, until_worn
from fedprognos.tables.loaded_rows import LoadedRows, load_rows
from fedprognos.tables.table import yes_and_no
from fedprognos.tables.table_files import unit_files
from fedprognos.tables.times import (
    COMPACT,
    ELAPSED,
    EXCEL,
    SECONDS,
    date_format,
    fitting_measure,
    is_clock,
    is_compact_dates,
    is_excel_days,
    measure_of,
    seconds_since_1970,
    time_format,
    time_measure_of,
)

_MOST_BLANK = 0.5
_MOST_TOTALS = 0.05
"""Largest share of rows without a time that are taken for totals."""
_STRAIGHT = 0.999
"""Least correlation of a straight line with the number of a row; values may be rounded."""
_SHARES = (END_OF_LIFE, 0.85, 0.9, 0.95)
WHY_LEFT_OUT = {
    "text": "not numbers in every row",
    "answer": "they tell the end of life",
    "held": "held at one level in every cycle",
    "blank": "mostly blank",
    "absent": "not in every file",
    "clock": "they say the time in another way",
    "constant": "always the same",
    "counter": "they number the rows",
    "constant_in_condition": "the same in all rows of an operating condition",
}
"""Why a column gets no role, in words."""


class NoTimeError(DataError):
    """No column rises within every unit as rows stand."""


@dataclass(frozen=True)
class Proposal:
    """What a table seems to hold.

    Parameters
    ----------
    columns
        Roles of the columns, ready for :func:`fedprognos.fleet.from_tables.read_table`.
    conditions
        Decimals by which each operating setting is rounded into operating conditions.
    left_out
        Columns without a role, by the reason (:data:`WHY_LEFT_OUT`). What a controller holds at one level says nothing
        of health where that breaks off; what tells the end of life would give the answer away.
    gaps
        Columns with blanks that are filled, and how many.
    owners, sites
        Columns that may say who owns a unit, the likeliest first, and who owns units, as far as known.
    owners_are_numbers, separator
        Whether owners are whole numbers in a column that is not called so, and what ends the owner at the beginning of
        units' names where nothing else tells owners.
    units, rows, lengths
        Counts, and how long units and cycles are.
    worn
        Units whose health falls to the end of life, where the threshold of a health says where lives end.
    note
        How the file is written, where it is not plain CSV.
    file_format
        What has to be said about the file's format so that it is read in the same way again.
    """

    path: Path
    columns: Columns
    conditions: dict[str, int]
    left_out: dict[str, list[str]]
    gaps: dict[str, str]
    owners: tuple[str, ...]
    owners_are_numbers: bool
    sites: tuple[str, ...]
    separator: str | None
    units: int
    rows: int
    lengths: Lengths
    worn: int | None = None
    note: str = ""
    file_format: FileFormat = field(default_factory=FileFormat)


def propose(path: str | Path, given: Mapping[str, Any] | None = None) -> Proposal:
    """Read whole files and guess the role of every column from its name and its values.

    Parameters
    ----------
    path
        A file, or a folder of files.
    given
        Roles that are known already, as options of :class:`Columns`; None means that there is no such column.
    """
    return propose_columns(load_rows(path), Path(path), given)


def propose_columns(rows: LoadedRows, path: Path, given: Mapping[str, Any] | None = None) -> Proposal:
    """The same for rows that are loaded already; another answer of a person needs no second reading."""
    search = _RoleSearch(path, rows, given or {})
    try:
        return search.propose()
    except NoTimeError:
        # Perhaps nobody sorted the rows: try the order of each column that may be the time.
        for column in by_name(search.complete, "time"):
            named = column in search.forms or rank(column, "time") is not None
            if named and not search.within_a_day(column):
                in_order = rows.take(np.argsort(search.frame[column].to_numpy(), kind="stable"))
                try:
                    return _RoleSearch(path, in_order, {"time": column, **search.given}, is_sorted=True).propose()
                except NoTimeError:
                    continue
        raise


class _RoleSearch:
    """Finds roles one after the other; those that a person gave are taken as they are.

    Attributes
    ----------
    frame
        All rows, dates as seconds since 1970.
    forms
        How dates are written in each column of dates.
    date_and_clock
        A column of dates and one of times of day that were made one, called as the dates are.
    absent
        Columns that some file lacks, and which.
    files : (rows,)
        Number of the file, or of the sheet.
    numeric, complete
        Columns of numbers, and those of them that have no blank.
    """

    def __init__(self, path: Path, rows: LoadedRows, given: Mapping[str, Any], *, is_sorted: bool = False) -> None:
        self.path, self.rows, self.given, self.is_sorted = path, rows, given, is_sorted
        named = [v for k, v in given.items() if k in ("unit", "time", "site", "failed", "target") and v]
        rows.tables[0].require([*named, *(given.get("sensors") or ())])
        self.files = pd.Series(rows.table_of, index=rows.frame.index)
        lacking = {c: t.path for t in rows.tables for c in rows.frame.columns if c not in t.names}
        self.absent = [f"{c} (not in {'' if p is None else p.name})" for c, p in lacking.items()]
        self.date_and_clock = _date_and_clock(rows.frame)
        frame = rows.frame.drop(columns=[c for c in lacking if c not in (*named, *(given.get("sensors") or ()))])
        if self.date_and_clock is not None:
            date, clock = self.date_and_clock
            day = frame[date]
            text = day.dt.strftime("%Y-%m-%d") if pd.api.types.is_datetime64_any_dtype(day) else day.astype(str)
            frame[date] = text + " " + frame.pop(clock).astype(str)
        self.names = [str(c) for c in frame.columns]
        self.forms: dict[str, str] = {}
        for column in self.names:
            numeric = pd.api.types.is_numeric_dtype(frame[column])
            cells = frame[column]
            form = EXCEL if numeric and is_excel_days(column, cells) else date_format(cells)
            if numeric and is_compact_dates(cells):
                form, cells = COMPACT, cells.astype(np.int64).astype(str)
            if form is not None:
                self.forms[column] = form
                frame[column] = seconds_since_1970(cells, form)
        self.frame = frame
        self.numeric = [c for c in self.names if pd.api.types.is_numeric_dtype(frame[c])]
        self.complete = [c for c in self.numeric if frame[c].notna().all()]

    def propose(self) -> Proposal:
        """Roles of all columns, or :class:`NoTimeError`."""
        frame, given = self.frame, self.given

        # Which rows belong together: machines, who owns them, and lives that a column counts.
        unit = self._given_or("unit", lambda: roles.unit_column(frame, self.complete, self.files, self.forms))
        names, unit_names = (self.files, list[str]()) if unit is None else roles.names_of(frame[unit])
        machines = names if unit is None else self._machines(names)
        free = roles.without(self.names, unit, given.get("site"))
        failed = self._given_or("failed", lambda: roles.failed_column(frame, free))
        owners = roles.owner_columns(
            frame, roles.without(self.names, unit, failed, *self.forms), self.numeric, machines
        )
        site = self._given_or("site", lambda: next((c for c in owners if roles.counts_owners(c, frame[c])), None))
        sites, separator = self._owners(site, machines, unit_names)
        free = roles.without(free, failed, site)
        life = self._life(free, machines)
        lives = machines if life is None else roles.pairs(machines, frame[life])

        # What is predicted, and over which time.
        numbers = roles.without([c for c in free if c in self.complete], life)
        by_cycle = self._health_by_cycle(free, numbers, lives, failed)
        task: Task = "rul" if by_cycle is None else "soh"
        time, cycle, target = by_cycle or (self._time(free, numbers, lives), None, None)
        new_life = None
        if task == "rul":
            target = self._target(roles.without(free, time), time, lives)
            _check_wide(self.path, frame, machines, time, unit)
            new_life = None if unit is None or life is not None else self._new_life(time, failed, machines)
        if new_life is not None:
            lives = self._lives(machines, time, failed if new_life == "failed" else None)
        form, measure = self._time_format(time, cycle, lives)
        ahead, health, share, worn = given.get("ahead"), None, END_OF_LIFE, None
        if ahead is not None:
            task, target, failed = "forecast", None, None
            health = self._forecast_column(roles.without(numbers, time))
        elif task == "rul" and target is None and failed is None:
            health, share, worn = self._health(roles.without(numbers, time), lives)
        columns = Columns(
            task=task,
            unit=unit,
            time=time,
            time_measure=measure,
            time_format=form,
            clock=self.date_and_clock[1] if self.date_and_clock and self.date_and_clock[0] == time else None,
            sort=self.is_sorted,
            life=life,
            new_life=new_life,
            cycle=cycle,
            site=site,
            target=target,
            target_measure=measure_of(target) if cycle and target else None,
            failed=failed,
            health=health,
            end_of_life=share,
            ahead=ahead,
        )

        # Sensors are what is left.
        sensors, conditions, gaps, left_out = self._sensors(free, columns, machines, lives)
        columns = columns.model_copy(update={"sensors": sensors, "settings": tuple(conditions)})
        return Proposal(
            path=self.path,
            columns=columns,
            conditions=conditions,
            left_out={reason: unfit for reason, unfit in left_out.items() if unfit},
            gaps=gaps,
            owners=tuple(owners),
            owners_are_numbers=site in self.numeric and rank(str(site), "site") is None,
            sites=sites,
            separator=separator,
            units=int(lives.nunique()),
            rows=len(frame),
            lengths=measure_lengths(frame, columns, machines, lives),
            worn=worn,
            note=self.rows.note,
            file_format=self.rows.file_format,
        )

    def _given_or(self, role: str, guess: Callable[[], str | None]) -> str | None:
        """The column that a person gave for a role, else the guess."""
        return self.given[role] if role in self.given else guess()

    # --- machines, owners and lives ----------------------------------------------------------

    def _machines(self, names: pd.Series) -> pd.Series:
        """The machine of every row; one that begins anew in another file or at another site only has the same name."""
        if roles.constant_within(self.files, names):
            return self._machines_at_sites(names)
        within = roles.pairs(names, self.files)
        for column in roles.time_order(self.frame, self.complete, [within]):
            first = self.frame[column].groupby([names, self.files], sort=False).first()
            if roles.nearly_rises(self.frame[column], [within]):
                begins_anew = (first.groupby(level=0).diff() <= 0).any()
                return within if begins_anew else names
        return within

    def _machines_at_sites(self, names: pd.Series) -> pd.Series:
        """The machine of every row, where plants may all count from 1: then time only rises within a site."""
        called = [c for c in by_name(self.names, "site") if rank(c, "site") is not None or self._in_blocks(c)]
        for site in [self.given["site"]] if self.given.get("site") else called:
            values = self.frame[site]
            if roles.constant_within(values, names) or values.isna().any():
                continue
            within = roles.pairs(names, values)
            time = next(roles.time_order(self.frame, roles.without(self.complete, site), [within]), None)
            if time is None or not roles.nearly_rises(self.frame[time], [within]):
                continue
            if roles.counts_steadily(self.frame[time], names):  # whoever works on a machine changes; its clock goes on
                continue
            first = self.frame[time].groupby([names, values], sort=False).first()
            last = self.frame[time].groupby([names, values], sort=False).last()
            # A machine that was moved goes on at the next site, later than it ended at the one before.
            if (first <= last.groupby(level=0).shift()).groupby(level=0).any().any():
                return within
        return names

    def _in_blocks(self, column: str) -> bool:
        """Whether a column of names has all rows of a name one after the other, as files of owners put together do.

        With one sensor the names may be those of sensors, in a table with a row a sensor.
        """
        cells = self.frame[column]
        if column in self.numeric or column in self.forms or cells.isna().any() or len(self.numeric) <= 3:
            return False
        return 2 <= cells.nunique() == int((cells != cells.shift()).sum()) <= roles.MOST_OWNERS

    def _owners(
        self, site: str | None, machines: pd.Series, unit_names: Sequence[str]
    ) -> tuple[tuple[str, ...], str | None]:
        """Owners named in the column `site`, else by files or folders of several units, else by the names of units.

        The second value is what ends the owner at the beginning of units' names.
        """
        if site is not None:
            codes, spelled = roles.names_of(self.frame[site].dropna())
            usual = one_spelling(dict(zip(spelled, np.bincount(codes).tolist(), strict=True)))
            return tuple(sorted(set(usual.values()))), None
        if self.files.nunique() > 1:
            if not unit_names:  # every file is a unit
                folders = {table.path.parent.name for table in self.rows.tables if table.path is not None}
                return tuple(sorted(folders)) if len(folders) > 1 else (), None
            goes_on = not roles.constant_within(self.files, machines)
            return () if goes_on else tuple(sorted(unit_files(self.rows.tables))), None
        if "site" in self.given:
            return (), None
        separator = roles.name_separator(unit_names)
        return tuple(sorted({name.split(separator)[0] for name in unit_names} if separator else ())), separator

    def _life(self, free: list[str], groups: pd.Series) -> str | None:
        """A column that counts the lives of a machine."""

        def fits(column: str) -> bool:
            series = self.frame[column]
            counts = roles.rises(series, [groups], strictly=False) and (series == series.round()).all()
            several = series.groupby([groups, series]).size().median() > 1  # a life of one row is none
            return bool(counts and several and 2 <= series.nunique() <= max(2, len(series) // 10))

        return pick([c for c in free if c in self.complete], "life", fits, named=True)

    def _new_life(self, time: str, failed: str | None, machines: pd.Series) -> Literal["time", "failed"] | None:
        """What begins a new life of a machine that was repaired: a time that goes back, or a failure before."""
        if not self.is_sorted and roles.restarts(self.frame[time], [machines]):
            return "time"
        if failed is None:
            return None
        flags = self._flags(failed)
        last = ~machines.duplicated(keep="last")
        mixed = flags.groupby(machines).transform("nunique") > 1
        return "failed" if (flags & ~last & mixed).any() else None

    def _lives(self, machines: pd.Series, time: str, failed: str | None) -> pd.Series:
        """The life of every row: a new one after a row that says failed, or where the time goes back."""
        if failed is None:
            begins = self.frame[time].groupby(machines).diff() < 0
        else:
            begins = self._flags(failed).groupby(machines).shift(fill_value=False)
        return roles.pairs(machines, begins.groupby(machines).cumsum())

    def _flags(self, column: str) -> pd.Series:
        return pd.Series(yes_and_no(self.frame[column])[0], index=self.frame.index)

    # --- task, time and target ---------------------------------------------------------------

    def _health_by_cycle(
        self, free: list[str], numbers: list[str], lives: pd.Series, failed: str | None
    ) -> tuple[str, str, str] | None:
        """Time, cycle and health of task `soh`.

        The health is constant in cycles within which a time runs, or fades from cycle to cycle where each is one row.
        """
        if "time" in self.given or self.given.get("task") == "rul":
            return None
        frame, ahead = self.frame, self.given.get("ahead")
        # A cycle whose health was not measured is left out later, so that blanks are allowed here.
        healths = [c for c in self.numeric if c in numbers or (c in free and c not in self.complete)]
        health = pick(healths, "health", lambda c: not self._is_derived(c, lives, failed), named=True)
        if health is None:
            return None
        rest = roles.without(numbers, health)

        def counts_cycles(column: str) -> bool:
            rises = roles.rises(frame[column], [lives], strictly=False)
            return rises and roles.constant_within(frame[health], lives, frame[column])

        cycle = pick(rest, "cycle", counts_cycles, named=True)
        if cycle is None:
            return None
        rest = roles.without(rest, cycle)
        time = pick(rest, "time", lambda c: roles.rises(frame[c], [lives, frame[cycle]]))
        if time is not None and ahead is not None:
            what = f"a forecast reads one row a cycle; here '{time}' runs within each {cycle}"
            pivot = f"table.groupby([UNIT, '{cycle}']).mean(numeric_only=True).reset_index()"
            raise DataError(what, where=str(self.path), hint=f"write one row a cycle; in pandas: {pivot}")
        if time is not None:
            return time, cycle, health
        measured = [c for c in rest if c not in self.forms and not roles.is_constant(frame[c])]
        row_a_cycle = roles.rises(frame[cycle], [lives]) and roles.fades(frame[health], lives)
        return (cycle, cycle, health) if ahead is None and measured and row_a_cycle else None

    def _time(self, free: list[str], numbers: list[str], lives: pd.Series) -> str:
        """The column that rises within every life, at worst but for the falls of a counter that starts anew."""
        frame = self.frame
        time: str | None = self.given.get("time")
        if time is None:
            time = next((c for c in roles.time_order(frame, numbers, [lives]) if roles.rises(frame[c], [lives])), None)
        if time is None:
            time = pick(numbers, "time", lambda c: roles.nearly_rises(frame[c], [lives]), named=True)
        may_be = roles.rises if self.is_sorted or self.within_a_day(time) else roles.nearly_rises
        if time is not None and may_be(frame[time], [lives]):
            return time
        self._check_blank_times(free)
        raise NoTimeError(
            "no column rises from row to row within every unit, so none can be the time",
            where=str(self.path),
            hint="add a column that counts the rows of each unit, or one of dates. If the file has no names or a "
            "long title on top, data.header says which line names the columns",
        )

    def within_a_day(self, column: str | None) -> bool:
        """Whether times such as 12:30:00 may be times of day, whose falls are midnights and no new lives."""
        return self.forms.get(str(column)) == ELAPSED and bool(self.frame[column].max() < SECONDS["days"])

    def _check_blank_times(self, columns: list[str]) -> None:
        """Refuse a few rows without a time by their line: they are mostly totals below a table."""
        for column in by_name(columns, "time"):
            cells = self.frame[column]
            numbers = pd.to_numeric(cells, errors="coerce") if column not in self.forms else cells
            blank = np.flatnonzero(numbers.isna().to_numpy())
            if rank(column, "time") is not None and 0 < len(blank) <= _MOST_TOTALS * len(cells):
                raise NoTimeError(
                    f"{len(blank)} of {len(cells)} rows have no number in column '{column}', which may be the time",
                    where=self.rows.at(int(blank[0])),
                    hint="delete such rows if they are totals or remarks; else fill in the time, or give --time",
                )

    def _time_format(self, time: str, cycle: str | None, lives: pd.Series) -> tuple[str | None, str | None]:
        """How times are written where they are dates, and their measure; epoch times become seconds."""
        form, given = self.forms.get(time) or time_format(self.frame[time]), self.given.get("time_measure")
        if form == "number":
            return None, given or time_measure_of(time)
        if time not in self.forms:  # an epoch time
            self.frame[time] = seconds_since_1970(self.frame[time], form)
        step_in_s = float(self.frame[time].groupby(lives).diff().median())
        return form, given or ("seconds" if cycle else fitting_measure(step_in_s))

    def _target(self, columns: list[str], time: str, lives: pd.Series) -> str | None:
        """A column called a remaining life; one in words stands back behind one in numbers."""
        if self.given.get("ahead") is not None:
            return None

        def counts_down(column: str) -> bool:
            cells = self.frame[column]
            if column in self.complete:
                return not roles.is_share_of_life(cells, self.frame[time], lives)
            return bool(pd.to_numeric(cells, errors="coerce").notna().any())  # else classes, such as red and green

        numbers_first = sorted(columns, key=lambda c: c not in self.numeric)
        return self._given_or("target", lambda: pick(numbers_first, "rul", counts_down, named=True))

    # --- a health that fades -----------------------------------------------------------------

    def _health(self, columns: list[str], lives: pd.Series) -> tuple[str | None, float, int | None]:
        """A health that fades, the share of its first value at which a life ends, and how many units get there.

        Unless a person says so, the share is the usual one, or the next higher one that two units reach.
        """
        given = self.given.get("end_of_life", 0.0)
        if self.given.get("sensors"):
            columns = [c for c in columns if c in self.given["sensors"]]

        def fades(column: str) -> bool:
            return roles.fades(self.frame[column], lives) and not self._is_derived(column, lives, None)

        health = pick(columns, "health", fades, named=True)
        if health is None or given is None:
            return None, END_OF_LIFE, None
        for share in (given,) if given else _SHARES:
            worn = until_worn(self.frame[health], lives, share)[1]
            if given or worn >= min(2, lives.nunique()):
                return health, share, worn
        return None, END_OF_LIFE, None

    def _forecast_column(self, columns: list[str]) -> str:
        """The column to predict ahead: the target that a person named, else a health by its name."""
        named = self.given.get("target")
        health = named or pick(columns, "health", lambda c: True, named=True)
        if health is None:
            raise DataError(
                "no column is called a health, so it is not clear what to predict ahead",
                where=str(self.path),
                hint=f"name it: --target COLUMN, one of: {', '.join(columns) or 'none'}",
            )
        if health not in columns:
            what = f"column '{health}' cannot be predicted: it is the time, or has cells that are not numbers"
            raise DataError(what, where=str(self.path), hint=f"name one of: {', '.join(columns) or 'none'}")
        return health

    def _is_derived(self, health: str, lives: pd.Series, failed: str | None) -> bool:
        """Whether a health was worked out from the last row of each life, such as the share of rows that are left.

        What is measured may end alike in all units, too, but it does not fall on a straight line from the first row.
        """
        lives = lives[self._ran_to_failure(failed, lives)]
        values, left = self.frame.loc[lives.index, health], lives.groupby(lives).cumcount(ascending=False)
        straight = values.groupby(lives).corr(left).abs() > _STRAIGHT
        return bool(straight.mean() > 0.9) and roles.tells_the_end(values, left, lives)

    def _ran_to_failure(self, failed: str | None, lives: pd.Series) -> pd.Series:
        """Which rows are of lives that ended in failure, as far as a column says it."""
        return lives.notna() if failed is None else self._flags(failed).groupby(lives).transform("any")

    # --- sensors -----------------------------------------------------------------------------

    def _sensors(
        self, free: list[str], columns: Columns, machines: pd.Series, lives: pd.Series
    ) -> tuple[tuple[str, ...], dict[str, int], dict[str, str], dict[str, list[str]]]:
        """Sensors, settings with their decimals, blanks that are filled, and what is left out for which reason."""
        frame, health, chosen = self.frame, columns.health, self.given.get("sensors")
        taken = (columns.life, columns.time, columns.cycle, columns.target, *self.forms)
        left = roles.without([c for c in free if c in self.numeric], *taken)
        left_out = {"text": [c for c in free if c not in (*self.numeric, columns.target)], "absent": self.absent}

        def leave_out(reason: str, unfit: Sequence[str]) -> None:
            nonlocal left
            left_out[reason] = [*left_out.get(reason, ()), *unfit]
            left = [c for c in left if c not in unfit]

        if chosen:
            left = [c for c in left if c in (*chosen, health)]
        else:
            leave_out("answer", self._answers(roles.without(left, health), columns, lives))
            if columns.cycle not in (None, columns.time):
                held = [c for c in left if roles.held_constant(frame[c], machines)]
                leave_out("held", held)
        gaps = {c: self._gap(c) for c in left if c not in self.complete}
        sparse = [c for c in gaps if frame[c].isna().mean() > _MOST_BLANK]
        leave_out("blank", sparse)
        left_out["blank"] = [f"{c} ({gaps[c]})" for c in sparse]
        leave_out("constant", [c for c in left if roles.is_constant(frame[c])])
        leave_out("counter", [c for c in left if self._numbers_rows(c)])
        time = frame[columns.time]
        clocks = [c for c in left if c != health and c in self.complete and roles.says_time(frame[c], time)]
        if columns.task != "soh" and not chosen and len(clocks) < len(left):
            leave_out("clock", clocks)
        conditions = roles.setting_columns(frame, roles.without(left, health), machines, columns.task)
        if conditions:
            keys = roles.conditions(frame, conditions)
            others = roles.without(left, *conditions, health)
            same = [c for c in others if roles.constant_within(frame[c], *keys)]
            leave_out("constant_in_condition", same)
        sensors = tuple(roles.without(left, *conditions))
        if not sensors:
            hint = "every sensor needs a column of numbers that change"
            raise DataError("no numeric column is left for a sensor", where=str(self.path), hint=hint)
        return sensors, conditions, {c: gap for c, gap in gaps.items() if c in left}, left_out

    def _answers(self, left: Sequence[str], columns: Columns, lives: pd.Series) -> list[str]:
        """Columns that tell the end of life by their name, or by their values where units have failed.

        As sensors they would give the answer away, and a machine that runs does not have them.
        """
        called = [c for c in left if rank(c, "rul") is not None]
        if columns.task == "forecast":
            return called
        if columns.cycle not in (None, columns.time):
            return []
        times = self.frame[columns.time]
        remaining = times.groupby(lives).transform("max") - times
        if columns.task == "rul" and columns.target in self.complete:
            remaining = self.frame[columns.target]
        whole = self._ran_to_failure(columns.failed, lives)
        values = self.frame[whole]
        return [c for c in left if c in called or roles.tells_the_end(values[c], remaining[whole], lives[whole])]

    def _numbers_rows(self, column: str) -> bool:
        """Whether a column numbers the rows of its file, of which these may be a sample."""
        series, rows = self.frame[column], self.rows
        if roles.numbers_rows(series) or not rows.is_sample:
            return roles.numbers_rows(series)
        return series.is_unique and roles.constant_within(series - rows.places, self.files)

    def _gap(self, column: str) -> str:
        missing = np.flatnonzero(self.frame[column].isna().to_numpy())
        if len(missing) == len(self.frame):
            return "no value at all"
        place = self.rows.at(int(missing[0])).rsplit(", ", 1)[-1]
        return f"{len(missing)} missing, first in {place}"


def _check_wide(path: Path, frame: pd.DataFrame, units: pd.Series, time: str, unit: str | None) -> None:
    """Refuse a table with a row a sensor instead of a column a sensor."""
    rows = pd.concat([units, frame[time]], axis=1)
    if not rows.duplicated().any():
        return
    others = [c for c in map(str, frame.columns) if c not in (time, unit)]
    free = [c for c in others if not roles.constant_within(frame[c], units)]
    values = [c for c in free if pd.api.types.is_numeric_dtype(frame[c])]
    if len(values) != 1:
        return
    for column in roles.without(free, values[0]):
        several = 2 <= frame[column].nunique() <= len(rows) / 10
        if several and not pd.concat([rows, frame[column]], axis=1).duplicated().any():
            keys = [time] if unit is None else [unit, time]
            pivot = f"table.pivot(index={keys}, columns='{column}', values='{values[0]}').reset_index()"
            raise DataError(
                f"every row holds one sensor: column '{column}' names it, '{values[0]}' is its value",
                where=str(path),
                hint=f"write one row a measurement and one column a sensor; in pandas: {pivot}",
            )


def _date_and_clock(frame: pd.DataFrame) -> tuple[str, str] | None:
    """A column of dates and one of times of day, where a table keeps them apart."""
    clocks = [str(c) for c in frame.columns if is_clock(frame[c])]
    for column in map(str, frame.columns) if clocks else ():
        form = None if column in clocks else date_format(frame[column])
        if form is not None and not (seconds_since_1970(frame[column], form) % SECONDS["days"]).any():
            return column, clocks[0]
    return None
