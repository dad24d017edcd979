"""One look at a table: the roles of its columns, found one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedprognos.errors import DataError
from fedprognos.fleet import roles
from fedprognos.fleet.columns import Columns
from fedprognos.fleet.guess import Guess
from fedprognos.fleet.owners import counts_owners, owner_columns, owners_of
from fedprognos.fleet.table_files import Table
from fedprognos.fleet.table_shape import check_once, check_wide, clocked
from fedprognos.fleet.time_axis import (
    EXCEL,
    SECONDS,
    date_format,
    fitting_measure,
    is_excel_days,
    measure_of,
    seconds_since_1970,
    time_format,
    time_measure_of,
    with_clock,
)

_MOST_BLANK = 0.5


class NoTimeError(DataError):
    """No column rises within every unit as rows stand."""


@dataclass(frozen=True)
class _Measured:
    """Sensors, operating settings with their decimals, and what was left out."""

    sensors: tuple[str, ...]
    settings: dict[str, int]
    constant: tuple[str, ...]
    counters: tuple[str, ...]
    sparse: dict[str, str]
    gaps: dict[str, str]


class Look:
    """One look at a table; steps find the roles one after the other."""

    def __init__(
        self, path: Path, table: Table, files: pd.Series, given: Mapping[str, Any], *, is_sorted: bool = False
    ) -> None:
        self.path, self.files, self.given, self.sort = path, files, given, is_sorted
        self.clocked = clocked(table)
        self.table = table = with_clock(table, *self.clocked) if self.clocked else table
        table.require([v for k, v in given.items() if k in ("unit", "time", "site", "failed", "target") and v])
        frame = table.frame.copy()
        self.names = [str(c) for c in frame.columns]
        self.forms: dict[str, str] = {}
        for column in self.names:
            numeric = pd.api.types.is_numeric_dtype(frame[column])
            form = EXCEL if numeric and is_excel_days(column, frame[column]) else date_format(frame[column])
            if form is not None:
                self.forms[column] = form
                frame[column] = seconds_since_1970(table, column, form, [""] * len(frame))
        self.frame = frame
        self.numeric = [c for c in self.names if pd.api.types.is_numeric_dtype(frame[c])]
        self.complete = [c for c in self.numeric if frame[c].notna().all()]

    def sorted_guess(self, error: DataError) -> Guess:
        """What the table holds once its rows are in the order of some column that may be the time."""
        named = [
            c for c in roles.by_name(self.complete, "time") if c in self.forms or roles.rank(c, "time") is not None
        ]
        for column in named:
            order = self.frame[column].argsort(kind="stable")
            table = replace(self.table, frame=self.table.frame.iloc[order].drop(columns=self._clock_of(column) or []))
            look = Look(self.path, table, self.files.iloc[order], {"time": column, **self.given}, is_sorted=True)
            look.clocked = self.clocked
            try:
                return look.guess()
            except NoTimeError:
                continue
        raise error

    def _clock_of(self, time: str) -> str | None:
        return self.clocked[1] if self.clocked and self.clocked[0] == time else None

    def guess(self) -> Guess:
        """Roles of all columns, or :class:`NoTimeError`."""
        frame = self.frame
        unit = self._say("unit", lambda: roles.unit_column(frame, self.complete, self.files))
        groups = self.files if unit is None else frame[unit]
        free = roles.without(self.names, unit, self.given.get("site"))
        failed = self._say("failed", lambda: roles.failed_column(frame, free))
        owners = owner_columns(frame, roles.without(self.names, unit, failed, *self.forms), self.numeric, groups)
        site = self._say("site", lambda: next((c for c in owners if counts_owners(c, frame[c])), None))
        owned = owners_of(self.table, site, groups, self.files, by_name="site" not in self.given)
        free = roles.without(free, failed, site)
        life = self._life(free, groups)
        lives = groups if life is None else groups.astype(str) + "#" + frame[life].astype(str)
        numbers = roles.without([c for c in free if c in self.complete], life)
        task, time, cycle, target, restarts = self._task(numbers, lives)
        if cycle is None:
            check_wide(self.path, frame, groups, time)
        new_life = self._new_life(unit, life, failed, groups, restarts)
        if new_life is not None:
            lives = self._lives(groups, time, failed if new_life == "failed" else None)
        check_once(self.table, [lives, frame[time], *([] if cycle is None else [frame[cycle]])], time)
        left = roles.without([c for c in free if c in self.numeric], life, time, cycle, target, *self.forms)
        measured = self._measured(left, groups, task)
        form, measure = self._time(time, cycle, lives)
        columns = Columns(
            task="soh" if task == "soh" else "rul",
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
        )
        return Guess(
            path=self.path,
            columns=columns,
            conditions=measured.settings,
            constant=measured.constant,
            text=tuple(c for c in free if c not in self.numeric),
            sparse=measured.sparse,
            gaps=measured.gaps,
            owners=tuple(owners),
            owners_are_numbers=owned.are_numbers,
            sites=owned.names,
            separator=owned.separator,
            units=int(lives.nunique()),
            rows=len(frame),
            counters=measured.counters,
            **self._extent(columns, groups, lives),
        )

    def _measured(self, columns: list[str], groups: pd.Series, task: str) -> _Measured:
        """Sensors and operating settings among the columns that have no other role."""
        frame = self.frame
        gaps = {c: _gap(self.table, c) for c in columns if c not in self.complete}
        sparse = {c: gap for c, gap in gaps.items() if frame[c].isna().mean() > _MOST_BLANK}
        columns = roles.without(columns, *sparse)
        constant = tuple(c for c in columns if frame[c].nunique() <= 1)
        counters = tuple(c for c in columns if roles.numbers_rows(frame[c]))
        columns = roles.without(columns, *constant, *counters)
        settings = roles.setting_columns(frame, columns, groups, task)
        if settings:
            keys = roles.conditions(frame, settings)
            constant += tuple(c for c in roles.without(columns, *settings) if roles.constant_within(frame[c], *keys))
            columns = roles.without(columns, *constant)
        sensors = tuple(roles.without(columns, *settings))
        if not sensors:
            hint = "every sensor needs a column of numbers that change"
            raise DataError("no numeric column is left for a sensor", where=str(self.path), hint=hint)
        filled = {c: gap for c, gap in gaps.items() if c in columns}
        return _Measured(sensors, settings, constant, counters, sparse, filled)

    def _extent(self, columns: Columns, groups: pd.Series, lives: pd.Series) -> dict[str, Any]:
        """How long units and cycles are."""
        time = self.frame[columns.time]
        scale = 1.0 if columns.time_format is None else SECONDS.get(columns.time_measure or "", 1.0)
        rows = int(lives.groupby(lives).size().median())
        if columns.cycle is not None:
            cycle = self.frame[columns.cycle]
            within = time.groupby([groups, cycle])
            cycles = cycle.groupby(groups).max()
            return {
                "median_rows": rows,
                "median_life": float(cycles.median()),
                "short_life": float(cycles.quantile(0.1)),
                "shortest_cycle": float((within.max() - within.min()).min() / scale),
                "cycle_samples": int(within.size().median()),
            }
        spans = time.groupby(lives).agg(["min", "max"])
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

    def _task(self, numbers: list[str], groups: pd.Series) -> tuple[str, str, str | None, str | None, bool]:
        """Task, time, cycle, target and whether the time restarts.

        The task is soh where a health column is constant in cycles within which a time runs, or fades from cycle to
        cycle where each is one row.
        """
        frame = self.frame
        health = roles.pick(numbers, "health", lambda c: True, named=True)
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
                measured = [c for c in times if c not in self.forms and frame[c].nunique() > 1]
                if time is not None:
                    return "soh", time, cycle, health, False
                if measured and roles.rises(frame[cycle], [groups]) and roles.fades(frame[health], groups):
                    return "soh", cycle, cycle, health, False  # a row a cycle
        time, restarts = self.given.get("time"), False
        time = time or roles.pick(numbers, "time", lambda c: roles.rises(frame[c], [groups]))
        if time is None or not roles.rises(frame[time], [groups]):
            time = time or roles.pick(numbers, "time", lambda c: roles.nearly_rises(frame[c], [groups]), named=True)
            restarts = time is not None and roles.restarts(frame[time], [groups])
        may_stay = roles.rises if self.sort else roles.nearly_rises
        if time is None or not may_stay(frame[time], [groups]):
            raise NoTimeError(
                "no column rises from row to row within every unit, so none can be the time",
                where=str(self.path),
                hint="add a column that counts the rows of each unit, or one of dates. If the file has no names or a "
                "long title on top, data.header says which line names the columns",
            )
        others = roles.without(numbers, time)
        target = self._say("target", lambda: roles.pick(others, "rul", lambda c: True, named=True))
        return "rul", time, None, target, restarts

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
        flags = self.table.flags(failed)
        last = ~groups.duplicated(keep="last").to_numpy()
        mixed = pd.Series(flags, index=groups.index).groupby(groups).nunique() > 1
        return "failed" if (flags & ~last & groups.map(mixed).to_numpy()).any() else None

    def _lives(self, groups: pd.Series, time: str, failed: str | None) -> pd.Series:
        """The life of every row: a new one after a row that says failed, or where the time goes back."""
        begins = self.frame[time].groupby(groups).diff() < 0
        if failed is not None:
            flags = pd.Series(self.table.flags(failed), index=groups.index)
            begins = flags.groupby(groups).shift(fill_value=False)
        return groups.astype(str) + "#" + begins.groupby(groups).cumsum().astype(str)

    def _time(self, time: str, cycle: str | None, groups: pd.Series) -> tuple[str | None, str | None]:
        """How times are written where they are dates, and their measure."""
        form, given = self.forms.get(time) or time_format(self.frame[time]), self.given.get("time_measure")
        if form == "number":
            return None, given or time_measure_of(time)
        if time not in self.forms:  # an epoch time
            self.frame[time] = seconds_since_1970(self.table, time, form, [""] * len(self.frame))
        step_in_s = float(self.frame[time].groupby(groups).diff().median())
        return form, given or ("seconds" if cycle else fitting_measure(step_in_s))


def _gap(table: Table, column: str) -> str:
    missing = np.flatnonzero(table.frame[column].isna().to_numpy())
    if len(missing) == len(table.frame):
        return "no value at all"
    place = table.at(int(missing[0])).removeprefix(f"{table.where}, ")
    return f"{len(missing)} missing, first in {place}"
