"""What a table nobody has described yet seems to hold: the roles of its columns, found one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedprognos.arrays import BoolArray
from fedprognos.errors import DataError
from fedprognos.tables import roles
from fedprognos.tables.columns import Columns, Task
from fedprognos.tables.csv_format import NUMBER, FileFormat
from fedprognos.tables.cycle_rules import (
    END_OF_LIFE,
    LEAST_LOAD,
    READ_SHARE,
    broken_off,
    end_of_life,
    load_ends,
    passes_levels,
)
from fedprognos.tables.loaded_rows import LoadedRows, load_rows
from fedprognos.tables.table import yes_and_no
from fedprognos.tables.table_files import unit_files
from fedprognos.tables.times import (
    COMPACT,
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
    constant, text, counters, answers
        Columns left out because they never change (within an operating condition), are not numbers, number the rows, or
        tell the end of life, by name or by value, without being the target.
    held
        Columns left out because a controller holds them at one level: where that breaks off, it says nothing of health.
    sparse, gaps
        Columns with blanks, and how many: those left out because most values are missing, and those that are filled.
    owners, sites
        Columns that may say who owns a unit, the likeliest first, and who owns units, as far as known.
    owners_are_numbers, separator
        Whether owners are whole numbers in a column that is not called so, and what ends the owner at the beginning of
        units' names where nothing else tells owners.
    units, rows
        Counts.
    median_rows, median_life, short_life, from_new
        Rows of the median unit; the median lifespan, and the one that nine units in ten exceed, of units that failed
        where a column says which; and whether records begin when units are new.
    shortest_cycle, cycle_samples, levels, fewest_cycles
        Duration of the shortest cycle, or of its load where a sensor falls under load; samples of the median cycle;
        that sensor, if every cycle can be read at common levels of it; and cycles of the unit with the fewest (soh).
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
    constant: tuple[str, ...]
    text: tuple[str, ...]
    sparse: dict[str, str]
    gaps: dict[str, str]
    owners: tuple[str, ...]
    sites: tuple[str, ...]
    units: int
    rows: int
    median_rows: int
    median_life: float
    short_life: float
    from_new: bool = False
    shortest_cycle: float | None = None
    cycle_samples: int | None = None
    levels: str | None = None
    fewest_cycles: int | None = None
    note: str = ""
    file_format: FileFormat = field(default_factory=FileFormat)
    counters: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    owners_are_numbers: bool = False
    separator: str | None = None
    worn: int | None = None
    held: tuple[str, ...] = ()


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
        proposal = search.propose()
    except NoTimeError as error:
        proposal = search.propose_sorted(error)
    folders = {t.path.parent.name for t in rows.tables if t.path is not None}
    if len(folders) > 1 and proposal.columns.unit is None:
        proposal = replace(proposal, sites=tuple(sorted(folders)))
    return replace(proposal, note=rows.note, file_format=rows.file_format)


@dataclass(frozen=True)
class _Measured:
    """Sensors, operating settings with their decimals, and what was left out."""

    sensors: tuple[str, ...]
    settings: dict[str, int]
    constant: tuple[str, ...]
    counters: tuple[str, ...]
    sparse: dict[str, str]
    gaps: dict[str, str]


class _RoleSearch:
    """Looks at all rows; its steps find the roles one after the other."""

    def __init__(self, path: Path, rows: LoadedRows, given: Mapping[str, Any], *, is_sorted: bool = False) -> None:
        self.path, self.rows, self.given, self.sort = path, rows, given, is_sorted
        self.files = pd.Series(rows.table_of, index=rows.frame.index)
        self.file_names = unit_files(rows.tables)
        self.clocked = _date_and_clock(rows.frame)
        frame = rows.frame.copy(deep=False)
        if self.clocked is not None:
            date, clock = self.clocked
            day = frame[date]
            text = day.dt.strftime("%Y-%m-%d") if pd.api.types.is_datetime64_any_dtype(day) else day.astype(str)
            frame[date] = text + " " + frame.pop(clock).astype(str)
        self.names = [str(c) for c in frame.columns]
        named = [v for k, v in given.items() if k in ("unit", "time", "site", "failed", "target") and v]
        rows.tables[0].require([*named, *(given.get("sensors") or ())])
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

    def propose_sorted(self, error: DataError) -> Proposal:
        """What the table holds once its rows are in the order of some column that may be the time."""
        named = [
            c for c in roles.by_name(self.complete, "time") if c in self.forms or roles.rank(c, "time") is not None
        ]
        for column in named:
            rows = self.rows.take(np.argsort(self.frame[column].to_numpy(), kind="stable"))
            search = _RoleSearch(self.path, rows, {"time": column, **self.given}, is_sorted=True)
            try:
                return search.propose()
            except NoTimeError:
                continue
        raise error

    def _clock_of(self, time: str) -> str | None:
        return self.clocked[1] if self.clocked and self.clocked[0] == time else None

    def propose(self) -> Proposal:
        """Roles of all columns, or :class:`NoTimeError`."""
        frame = self.frame
        unit = self._say("unit", lambda: roles.unit_column(frame, self.complete, self.files, self.forms))
        named, names = (None, self.file_names) if unit is None else roles.names_of(frame[unit])
        groups = self.files if named is None else self._machines(named)
        free = roles.without(self.names, unit, self.given.get("site"))
        failed = self._say("failed", lambda: roles.failed_column(frame, free))
        owners = roles.owner_columns(frame, roles.without(self.names, unit, failed, *self.forms), self.numeric, groups)
        if "site" not in self.given and not any(roles.rank(c, "site") is not None for c in owners):
            self._check_blank_owners(roles.without(self.names, unit, failed), groups)
        site = self._say("site", lambda: next((c for c in owners if roles.counts_owners(c, frame[c])), None))
        sites, separator = self._owners(site, groups, named, names)
        free = roles.without(free, failed, site)
        life = self._life(free, groups)
        lives = groups if life is None else roles.pairs(groups, frame[life])
        numbers = roles.without([c for c in free if c in self.complete], life)
        task, time, cycle, target, restarts = self._task(free, numbers, lives, failed)
        if cycle is None:
            _check_wide(self.path, frame, groups, time, unit)
        new_life = self._new_life(unit, life, failed, groups, restarts)
        if new_life is not None:
            lives = self._lives(groups, time, failed if new_life == "failed" else None)
        health, share, worn = None, END_OF_LIFE, None
        ahead = self.given.get("ahead")
        if ahead is not None:
            task, target, failed = "forecast", None, None
            health = self._forecast_column(roles.without(numbers, time))
        elif task == "rul" and target is None and failed is None:
            health, share, worn = self._health(roles.without(numbers, time), lives)
        self._check_once([lives, frame[time], *([] if cycle is None else [frame[cycle]])], time)
        left = roles.without([c for c in free if c in self.numeric], life, time, cycle, target, *self.forms)
        answers: tuple[str, ...] = ()
        if task == "rul" or cycle == time:
            answers = self._answers(roles.without(left, health), time, target if task == "rul" else None, failed, lives)
        elif task == "forecast":
            answers = tuple(c for c in left if roles.rank(c, "rul") is not None)
        if self.given.get("sensors"):
            left = [c for c in left if c in (*self.given["sensors"], health)]
        else:
            left = roles.without(left, *answers)
        held: list[str] = []
        if cycle not in (None, time) and not self.given.get("sensors"):
            held = [c for c in left if roles.held_constant(frame[c], groups)]
            left = roles.without(left, *held)
        measured = self._measured(left, groups, task, health)
        form, measure = self._time(time, cycle, lives)
        columns = Columns(
            task=task,
            unit=unit,
            time=time,
            time_measure=measure,
            time_format=form,
            clock=self._clock_of(time),
            sort=self.sort,
            life=life,
            new_life=new_life,
            cycle=cycle,
            sensors=measured.sensors,
            settings=tuple(measured.settings),
            site=site,
            target=target,
            target_measure=measure_of(target) if cycle and target else None,
            failed=failed,
            health=health,
            end_of_life=share,
            ahead=ahead,
        )
        return Proposal(
            path=self.path,
            columns=columns,
            conditions=measured.settings,
            constant=measured.constant,
            held=tuple(held),
            text=tuple(c for c in free if c not in self.numeric),
            sparse=measured.sparse,
            gaps=measured.gaps,
            owners=tuple(owners),
            owners_are_numbers=site in self.numeric and roles.rank(str(site), "site") is None,
            sites=sites,
            separator=separator,
            units=int(lives.nunique()),
            rows=len(frame),
            counters=measured.counters,
            answers=() if self.given.get("sensors") else answers,
            worn=worn,
            **self._extent(columns, groups, lives),
        )

    def _measured(self, columns: list[str], groups: pd.Series, task: str, health: str | None) -> _Measured:
        """Sensors and operating settings among the columns that have no other role; `health` is a sensor."""
        frame = self.frame
        gaps = {c: self._gap(c) for c in columns if c not in self.complete}
        sparse = {c: gap for c, gap in gaps.items() if frame[c].isna().mean() > _MOST_BLANK}
        columns = roles.without(columns, *sparse)
        constant = tuple(c for c in columns if roles.is_constant(frame[c]))
        counters = tuple(c for c in columns if self._numbers_rows(c))
        columns = roles.without(columns, *constant, *counters)
        settings = roles.setting_columns(frame, roles.without(columns, health), groups, task)
        if settings:
            keys = roles.conditions(frame, settings)
            constant += tuple(
                c for c in roles.without(columns, *settings, health) if roles.constant_within(frame[c], *keys)
            )
            columns = roles.without(columns, *constant)
        sensors = tuple(roles.without(columns, *settings))
        if not sensors:
            hint = "every sensor needs a column of numbers that change"
            raise DataError("no numeric column is left for a sensor", where=str(self.path), hint=hint)
        filled = {c: gap for c, gap in gaps.items() if c in columns}
        return _Measured(sensors, settings, constant, counters, sparse, filled)

    def _falling_sensor(
        self, columns: Columns, rows_of: Mapping[Any, Any], durations: pd.Series, scale: float
    ) -> tuple[float, str | None]:
        """How long the load of every cycle lasts, and a sensor that falls under it to levels that every cycle passes.

        Without a sensor that falls it is the whole cycle; where cycles have no levels in common there is no sensor.

        Parameters
        ----------
        rows_of
            The rows of each cycle.
        durations
            Of the cycles that were not broken off, those of a unit one after the other.
        """
        load = float(durations.min())
        if columns.cycle == columns.time:
            return load, None
        time = self.frame[columns.time].to_numpy(np.float64) / scale
        times = [time[rows_of[key]] - time[rows_of[key][0]] for key in durations.index]
        for sensor in (c for c in columns.sensors or () if c in self.complete):
            values = self.frame[sensor].to_numpy(np.float64)
            cycles = [(t, values[rows_of[key]]) for t, key in zip(times, durations.index, strict=True)]
            ends = [load_ends(*cycle) for cycle in cycles]
            if any(end is None for end in ends):
                continue
            lasting = pd.Series(ends, durations.index, dtype=np.float64)
            least = min(float(p[~broken_off(p.to_numpy())].min()) for _, p in lasting.groupby(level=0))
            if least >= LEAST_LOAD * durations.min():
                load = min(load, least)
                if not columns.settings and passes_levels(cycles, READ_SHARE * least):
                    return least, sensor
        return load, None

    def _numbers_rows(self, column: str) -> bool:
        """Whether a column numbers the rows of its file, of which these may be a sample."""
        series, rows = self.frame[column], self.rows
        if roles.numbers_rows(series) or not rows.is_sample:
            return roles.numbers_rows(series)
        return series.is_unique and roles.constant_within(series - rows.places, self.files)

    def _extent(self, columns: Columns, groups: pd.Series, lives: pd.Series) -> dict[str, Any]:
        """How long units and cycles are."""
        time = self.frame[columns.time]
        scale = 1.0 if columns.time_format is None else SECONDS.get(columns.time_measure or "", 1.0)
        rows = int(lives.groupby(lives).size().median())
        if columns.cycle is not None:
            cycle = self.frame[columns.cycle]
            within = time.groupby([groups, cycle])
            durations = (within.max() - within.min()) / scale
            broken = [broken_off(part.to_numpy()) for _, part in durations.groupby(level=0)]
            whole = durations[~np.concatenate(broken)]
            load, levels = self._falling_sensor(columns, within.indices, whole, scale)
            cycles = cycle.groupby(groups).max()
            return {
                "median_rows": rows,
                "median_life": float(cycles.median()),
                "short_life": float(cycles.quantile(0.1)),
                "shortest_cycle": load,
                "cycle_samples": int(within.size().median()),
                "levels": levels,
                "fewest_cycles": int(whole.groupby(level=0).size().min()),
            }
        if columns.health is not None:
            alive, _ = self._until_worn(columns.health, columns.end_of_life, lives)
            time, lives = time[alive], lives[alive]
        spans = time.groupby(lives).agg(["min", "max"])
        if columns.failed is not None:  # machines that still run have not shown how long they live
            failed = pd.Series(self._flags(columns.failed), index=self.frame.index)[lives.index].groupby(lives).any()
            spans = spans[failed] if failed.any() else spans
        from_first = columns.time_format is not None or columns.life is not None or columns.new_life == "failed"
        life_spans = spans["max"] - spans["min"] if from_first else spans["max"]
        new = columns.time_format is None and roles.begins_when_new(time, lives)
        median, short = life_spans.median() / scale, life_spans.quantile(0.1) / scale
        return {"median_rows": rows, "median_life": float(median), "short_life": float(short), "from_new": new}

    def _say(self, role: str, find: Any) -> str | None:
        """What is given for a role, else what is found."""
        return self.given[role] if role in self.given else find()  # type: ignore[no-any-return]

    def _life(self, free: list[str], groups: pd.Series) -> str | None:
        """A column that counts the lives of a machine."""

        def fits(column: str) -> bool:
            series = self.frame[column]
            counts = roles.rises(series, [groups], strictly=False) and (series == series.round()).all()
            return bool(counts and 2 <= series.nunique() <= max(2, len(series) // 10))

        return roles.pick([c for c in free if c in self.complete], "life", fits, named=True)

    def _task(
        self, free: list[str], numbers: list[str], groups: pd.Series, failed: str | None
    ) -> tuple[Task, str, str | None, str | None, bool]:
        """Task, time, cycle, target and whether the time restarts.

        The task is soh where a health column is constant in cycles within which a time runs, or fades from cycle to
        cycle where each is one row.
        """
        frame = self.frame
        # A cycle whose health was not measured is left out later, so that blanks are allowed here.
        healths = [c for c in self.numeric if c in numbers or (c in free and c not in self.complete)]
        health = roles.pick(healths, "health", lambda c: not self._is_derived(c, groups, failed), named=True)
        if health is not None and "time" not in self.given and self.given.get("task") != "rul":
            rest = roles.without(numbers, health)
            cycle = roles.pick(
                rest,
                "cycle",
                lambda c: (
                    roles.rises(frame[c], [groups], strictly=False)
                    and roles.constant_within(frame[health], groups, frame[c])
                ),
                named=True,
            )
            if cycle is not None:
                times = roles.without(rest, cycle)
                time = roles.pick(times, "time", lambda c: roles.rises(frame[c], [groups, frame[cycle]]))
                measured = [c for c in times if c not in self.forms and not roles.is_constant(frame[c])]
                ahead = self.given.get("ahead")
                if time is not None and ahead is not None:
                    what = f"a forecast reads one row a cycle; here '{time}' runs within each {cycle}"
                    pivot = f"table.groupby([UNIT, '{cycle}']).mean(numeric_only=True).reset_index()"
                    raise DataError(what, where=str(self.path), hint=f"write one row a cycle; in pandas: {pivot}")
                if time is not None:
                    return "soh", time, cycle, health, False
                if (
                    ahead is None
                    and measured
                    and roles.rises(frame[cycle], [groups])
                    and roles.fades(frame[health], groups)
                ):
                    return "soh", cycle, cycle, health, False  # a row a cycle
        time, restarts = self.given.get("time"), False
        rising = (c for c in roles.time_order(frame, numbers, [groups]) if roles.rises(frame[c], [groups]))
        time = time or next(rising, None)
        if time is None or not roles.rises(frame[time], [groups]):
            time = time or roles.pick(numbers, "time", lambda c: roles.nearly_rises(frame[c], [groups]), named=True)
            restarts = time is not None and roles.restarts(frame[time], [groups])
        may_stay = roles.rises if self.sort else roles.nearly_rises
        if time is None or not may_stay(frame[time], [groups]):
            self._check_blank_times(free)
            raise NoTimeError(
                "no column rises from row to row within every unit, so none can be the time",
                where=str(self.path),
                hint="add a column that counts the rows of each unit, or one of dates. If the file has no names or a "
                "long title on top, data.header says which line names the columns",
            )
        others = roles.without(free, time)
        target = None
        if self.given.get("ahead") is None:
            counts_down = self._counts_down(time, groups)
            others = [*(c for c in others if c in self.numeric), *(c for c in others if c not in self.numeric)]
            target = self._say("target", lambda: roles.pick(others, "rul", counts_down, named=True))
        self._check_labels(target)
        return "rul", time, None, target, restarts

    def _ran_to_failure(self, failed: str | None, lives: pd.Series) -> pd.Series:
        """Which rows are of lives that ended in failure, as far as a column says it."""
        if failed is None:
            return lives.notna()
        return pd.Series(self._flags(failed), index=lives.index).groupby(lives).transform("any")

    def _is_derived(self, health: str, lives: pd.Series, failed: str | None) -> bool:
        """Whether a health was worked out from the last row of each life, such as the share of rows that are left.

        What is measured may end alike in all units, too, but it does not fall on a straight line from the first row.
        """
        lives = lives[self._ran_to_failure(failed, lives)]
        values, left = self.frame.loc[lives.index, health], lives.groupby(lives).cumcount(ascending=False)
        straight = values.groupby(lives).corr(left).abs() > _STRAIGHT
        return bool(straight.mean() > 0.9) and roles.tells_the_end(values, left, lives)

    def _counts_down(self, time: str, lives: pd.Series) -> Callable[[str], bool]:
        """Whether a column may be a remaining life, not the share of a life that remains."""
        complete, times = self.complete, self.frame[time]
        return lambda c: c not in complete or not roles.is_share_of_life(self.frame[c], times, lives)

    def _answers(
        self, columns: Sequence[str], time: str, target: str | None, failed: str | None, lives: pd.Series
    ) -> tuple[str, ...]:
        """Columns that tell the end of life by their name, or by their values where units have failed.

        As sensors they would give the answer away, and a machine that runs does not have them.
        """
        times = self.frame[time]
        remaining = times.groupby(lives).transform("max") - times if target is None else self.frame[target]
        whole = self._ran_to_failure(failed, lives)
        values = self.frame[whole]
        return tuple(
            c
            for c in columns
            if roles.rank(c, "rul") is not None or roles.tells_the_end(values[c], remaining[whole], lives[whole])
        )

    def _check_blank_times(self, columns: list[str]) -> None:
        """Refuse a few rows without a time by their line: they are mostly totals below a table."""
        for column in roles.by_name(columns, "time"):
            cells = self.frame[column]
            numbers = pd.to_numeric(cells, errors="coerce") if column not in self.forms else cells
            blank = np.flatnonzero(numbers.isna().to_numpy())
            if roles.rank(column, "time") is not None and 0 < len(blank) <= _MOST_TOTALS * len(cells):
                raise NoTimeError(
                    f"{len(blank)} of {len(cells)} rows have no number in column '{column}', which may be the time",
                    where=self.rows.at(int(blank[0])),
                    hint="delete such rows if they are totals or remarks; else fill in the time, or give --time",
                )

    def _check_blank_owners(self, columns: list[str], groups: pd.Series) -> None:
        """Refuse owners that some rows do not have: without them the owners' units would be dealt out by lot."""
        for column in roles.by_name(columns, "site"):
            cells = self.frame[column]
            if column in self.numeric or roles.rank(column, "site") is None or cells.nunique() < 2:
                continue
            blank = np.flatnonzero(cells.isna().to_numpy())
            if 0 < len(blank) <= _MOST_BLANK * len(cells) and roles.constant_within(cells, groups):
                raise DataError(
                    f"column '{column}' seems to name the owner, but {len(blank)} of its {len(cells)} cells are blank",
                    where=self.rows.at(int(blank[0])),
                    hint="write the owner in every row, or say that the column is none: --site -",
                )

    def _check_labels(self, target: str | None) -> None:
        """Refuse a target with blanks or texts: as a sensor it would give the answer away."""
        if target is None or target in self.complete:
            return
        cells = self.frame[target]
        strays = cells.isna() | ~cells.astype(str).str.strip().str.fullmatch(NUMBER.pattern)
        row = int(np.flatnonzero(strays.to_numpy())[0])
        blank = bool(pd.isna(cells.iloc[row]))
        text = ", ".join(self.rows.file_format.blanks) if blank else str(cells.iloc[row]).strip()
        first = f"'{text}'" if text else "blank"
        raise DataError(
            f"column '{target}' seems to hold the remaining life, but {int(strays.sum())} of its {len(cells)} cells "
            f"are not plain numbers; the first one is {first}",
            where=self.rows.at(row),
            hint="write a number in every row, or leave the column out: --target -",
        )

    def _health(self, columns: list[str], lives: pd.Series) -> tuple[str | None, float, int | None]:
        """A health that fades, the share of its first value at which a life ends, and how many units get there.

        Unless a person says so, the share is the usual one, or the next higher one that two units reach.
        """
        given = self.given.get("end_of_life", 0.0)
        if self.given.get("sensors"):
            columns = [c for c in columns if c in self.given["sensors"]]

        def fades(column: str) -> bool:
            return roles.fades(self.frame[column], lives) and not self._is_derived(column, lives, None)

        health = roles.pick(columns, "health", fades, named=True)
        if health is None or given is None:
            return None, END_OF_LIFE, None
        for share in (given,) if given else _SHARES:
            worn = self._until_worn(health, share, lives)[1]
            if given or worn >= min(2, lives.nunique()):
                return health, share, worn
        return None, END_OF_LIFE, None

    def _forecast_column(self, columns: list[str]) -> str:
        """The column to predict ahead: the target that a person named, else a health by its name."""
        named = self.given.get("target")
        health = named or roles.pick(columns, "health", lambda c: True, named=True)
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

    def _until_worn(self, health: str, share: float, lives: pd.Series) -> tuple[BoolArray, int]:
        """Rows up to the end of each life, and how many units get there."""
        alive, worn = np.ones(len(lives), dtype=np.bool_), 0
        values = self.frame[health].to_numpy(np.float64)
        for group in lives.groupby(lives).indices.values():
            rows = np.asarray(group)
            whole = rows[~broken_off(values[rows])]
            end = end_of_life(values[whole], share)
            if end is not None:
                alive[rows[rows > whole[end]]] = False
                worn += 1
        return alive, worn

    def _new_life(
        self, unit: str | None, life: str | None, failed: str | None, groups: pd.Series, restarts: bool
    ) -> Any:
        """Where a new life begins, for machines that were repaired."""
        if unit is None or life is not None:
            return None
        if restarts and not self.sort:
            return "time"
        if failed is None:
            return None
        flags = self._flags(failed)
        last = ~groups.duplicated(keep="last").to_numpy()
        mixed = pd.Series(flags, index=groups.index).groupby(groups).nunique() > 1
        return "failed" if (flags & ~last & groups.map(mixed).to_numpy()).any() else None

    def _lives(self, groups: pd.Series, time: str, failed: str | None) -> pd.Series:
        """The life of every row: a new one after a row that says failed, or where the time goes back."""
        begins = self.frame[time].groupby(groups).diff() < 0
        if failed is not None:
            flags = pd.Series(self._flags(failed), index=groups.index)
            begins = flags.groupby(groups).shift(fill_value=False)
        return roles.pairs(groups, begins.groupby(groups).cumsum())

    def _time(self, time: str, cycle: str | None, groups: pd.Series) -> tuple[str | None, str | None]:
        """How times are written where they are dates, and their measure."""
        form, given = self.forms.get(time) or time_format(self.frame[time]), self.given.get("time_measure")
        if form == "number":
            return None, given or time_measure_of(time)
        if time not in self.forms:  # an epoch time
            self.frame[time] = seconds_since_1970(self.frame[time], form)
        step_in_s = float(self.frame[time].groupby(groups).diff().median())
        return form, given or ("seconds" if cycle else fitting_measure(step_in_s))

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
        called = [c for c in roles.by_name(self.names, "site") if roles.rank(c, "site") is not None]
        for site in [self.given["site"]] if self.given.get("site") else called:
            values = self.frame[site]
            if roles.constant_within(values, names) or values.isna().any():
                continue
            within = roles.pairs(names, values)
            time = next(roles.time_order(self.frame, roles.without(self.complete, site), [within]), None)
            if time is None or not roles.nearly_rises(self.frame[time], [within]):
                continue
            first = self.frame[time].groupby([names, values], sort=False).first()
            last = self.frame[time].groupby([names, values], sort=False).last()
            # A machine that was moved goes on at the next site, later than it ended at the one before.
            if (first <= last.groupby(level=0).shift()).groupby(level=0).any().any():
                return within
        return names

    def _owners(
        self, site: str | None, groups: pd.Series, named: pd.Series | None, names: Sequence[str]
    ) -> tuple[tuple[str, ...], str | None]:
        """Owners named in the column `site`, else by files of several units, else by the names of units.

        The second value is what ends the owner at the beginning of units' names.
        """
        if site is not None:
            codes, owners = roles.names_of(self.frame[site])
            spelling = roles.one_spelling(dict(zip(owners, np.bincount(codes).tolist(), strict=True)))
            return tuple(sorted(set(spelling.values()))), None
        if self.files.nunique() > 1:
            goes_on = named is groups and not roles.constant_within(self.files, groups)
            return () if named is None or goes_on else tuple(sorted(self.file_names)), None
        if "site" in self.given:
            return (), None
        separator = roles.name_separator(names)
        return tuple(sorted({name.split(separator)[0] for name in names} if separator else ())), separator

    def _flags(self, column: str) -> BoolArray:
        return yes_and_no(self.frame[column])[0]

    def _gap(self, column: str) -> str:
        missing = np.flatnonzero(self.frame[column].isna().to_numpy())
        if len(missing) == len(self.frame):
            return "no value at all"
        place = self.rows.at(int(missing[0])).rsplit(", ", 1)[-1]
        return f"{len(missing)} missing, first in {place}"

    def _check_once(self, keys: Sequence[pd.Series], time: str) -> None:
        """Refuse two rows of a unit (and cycle) that have the same time."""
        twice = np.flatnonzero(pd.concat(list(keys), axis=1).duplicated().to_numpy())
        if twice.size:
            raise DataError(
                f"two rows of a unit have the same {time} ({twice.size} such rows)",
                where=self.rows.at(int(twice[0])),
                hint="name the machine's column with --unit if it was guessed wrong; else keep one row for each time",
            )


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
