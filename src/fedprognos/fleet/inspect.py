"""Looking at a table nobody has described yet: which column is probably what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedprognos.errors import DataError
from fedprognos.fleet import roles
from fedprognos.fleet.columns import Columns
from fedprognos.fleet.table_files import Table, read_file, table_paths
from fedprognos.fleet.time_axis import (
    SECONDS,
    date_format,
    fitting_measure,
    measure_of,
    seconds_since_1970,
    time_format,
    time_measure_of,
)

_MOST_BLANK = 0.5


@dataclass(frozen=True)
class Guess:
    """What a table seems to hold.

    Parameters
    ----------
    columns
        Roles of the columns, ready for :func:`fedprognos.fleet.readers.table.read_table`.
    conditions
        Decimals by which each operating setting is rounded into operating conditions.
    constant, text
        Columns left out because they never change (within an operating condition) or are not numbers.
    sparse, gaps
        Columns with blanks, and how many: those left out because most values are missing, and those that are filled.
    owners, sites
        Columns that may say who owns a unit, the likeliest first, and who owns units, as far as known.
    units, rows
        Counts.
    median_rows, median_life, from_new
        Rows and lifespan of the median unit, and whether records begin when units are new.
    shortest_cycle, cycle_samples
        Duration of the shortest cycle and samples of the median one (task soh).
    note
        How the file is written, where it is not plain CSV.
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
    from_new: bool = False
    shortest_cycle: float | None = None
    cycle_samples: int | None = None
    note: str = ""


def inspect_table(path: str | Path, given: Mapping[str, Any] | None = None) -> Guess:
    """Read whole files and guess the role of every column from its name and its values.

    Parameters
    ----------
    path
        A file, or a folder of files.
    given
        Roles that are known already, as options of :class:`Columns`; None means that there is no such column.
    """
    paths, given = table_paths(path), given or {}
    tables = [read_file(one) for one in paths]
    frame = pd.concat([t.frame for t in tables], ignore_index=True) if len(tables) > 1 else tables[0].frame
    files = pd.Series(np.repeat([t.stem for t in tables], [len(t.frame) for t in tables]), index=frame.index)
    looked = _Look(Path(path), tables[0] if len(tables) == 1 else Table(Path(path), frame), files, given)
    return looked.guess(tables[0].note)


@dataclass(frozen=True)
class _Measured:
    """Sensors, operating settings with their decimals, and what was left out."""

    sensors: tuple[str, ...]
    settings: dict[str, int]
    constant: tuple[str, ...]
    sparse: dict[str, str]
    gaps: dict[str, str]


class _Look:
    """One look at a table; steps find the roles one after the other."""

    def __init__(self, path: Path, table: Table, files: pd.Series, given: Mapping[str, Any]) -> None:
        self.path, self.table, self.files, self.given = path, table, files, given
        table.require([v for k, v in given.items() if k in ("unit", "time", "site", "failed", "target") and v])
        frame = table.frame.copy()
        self.names = [str(c) for c in frame.columns]
        self.forms: dict[str, str] = {}
        for column in self.names:
            form = date_format(frame[column])
            if form is not None:
                self.forms[column] = form
                frame[column] = seconds_since_1970(table, column, form, [""] * len(frame))
        self.frame = frame
        self.numeric = [c for c in self.names if pd.api.types.is_numeric_dtype(frame[c])]
        self.complete = [c for c in self.numeric if frame[c].notna().all()]

    def guess(self, note: str) -> Guess:
        frame = self.frame
        unit = self._say("unit", lambda: roles.unit_column(frame, self.complete))
        groups = self.files if unit is None else frame[unit]
        free = roles.without(self.names, unit)
        owners = roles.owner_columns(frame, roles.without(free, *self.forms), self.numeric, groups)
        site = self._say("site", lambda: next(iter(owners), None))
        free = roles.without(free, site)
        failed = self._say("failed", lambda: roles.pick(free, "failed", lambda c: frame[c].nunique() <= 2, named=True))
        free = roles.without(free, failed)
        life = self._life(free, groups)
        lives = groups if life is None else groups.astype(str) + "#" + frame[life].astype(str)
        numbers = roles.without([c for c in free if c in self.complete], life)
        task, time, cycle, target, restarts = self._task(numbers, lives)
        new_life = self._new_life(unit, life, failed, groups, restarts)
        if new_life == "time":
            again = (frame[time].groupby(groups).diff() < 0).groupby(groups).cumsum()
            lives = groups.astype(str) + "#" + again.astype(str)
        left = roles.without([c for c in free if c in self.numeric], life, time, cycle, target, *self.forms)
        measured = self._measured(left, groups, task)
        form, measure = self._time(time, cycle, lives)
        columns = Columns(
            task="soh" if task == "soh" else "rul",
            unit=unit,
            time=time,
            time_measure=measure,
            time_format=form,
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
        named = [] if site is None else sorted(frame[site].astype(str).unique())
        by_file = sorted(self.files.unique()) if self.files.nunique() > 1 and unit is not None else []
        return Guess(
            path=self.path,
            columns=columns,
            conditions=measured.settings,
            constant=measured.constant,
            text=tuple(c for c in free if c not in self.numeric),
            sparse=measured.sparse,
            gaps=measured.gaps,
            owners=tuple(owners),
            sites=tuple(named or by_file),
            units=int(lives.nunique()),
            rows=len(frame),
            note=note,
            **self._extent(columns, groups, lives),
        )

    def _measured(self, columns: list[str], groups: pd.Series, task: str) -> _Measured:
        """Sensors and operating settings among the columns that have no other role."""
        frame = self.frame
        gaps = {c: _gap(self.table, c) for c in columns if c not in self.complete}
        sparse = {c: gap for c, gap in gaps.items() if frame[c].isna().mean() > _MOST_BLANK}
        columns = roles.without(columns, *sparse)
        constant = tuple(c for c in columns if frame[c].nunique() <= 1)
        columns = roles.without(columns, *constant)
        settings = roles.setting_columns(frame, columns, groups, task)
        if settings:
            keys = roles.conditions(frame, settings)
            constant += tuple(c for c in roles.without(columns, *settings) if roles.constant_within(frame[c], *keys))
            columns = roles.without(columns, *constant)
        sensors = tuple(roles.without(columns, *settings))
        if not sensors:
            hint = "every sensor needs a column of numbers that change"
            raise DataError("no numeric column is left for a sensor", where=str(self.path), hint=hint)
        return _Measured(sensors, settings, constant, sparse, {c: gap for c, gap in gaps.items() if c in columns})

    def _extent(self, columns: Columns, groups: pd.Series, lives: pd.Series) -> dict[str, Any]:
        """How long units and cycles are."""
        time = self.frame[columns.time]
        scale = 1.0 if columns.time_format is None else SECONDS.get(columns.time_measure or "", 1.0)
        rows = int(lives.groupby(lives).size().median())
        if columns.cycle is not None:
            cycle = self.frame[columns.cycle]
            within = time.groupby([groups, cycle])
            return {
                "median_rows": rows,
                "median_life": float(cycle.groupby(groups).max().median()),
                "shortest_cycle": float((within.max() - within.min()).min() / scale),
                "cycle_samples": int(within.size().median()),
            }
        spans = time.groupby(lives).agg(["min", "max"])
        from_first = columns.time_format is not None or columns.life is not None
        life_spans = spans["max"] - spans["min"] if from_first else spans["max"]
        new = columns.time_format is None and roles.begins_when_new(time, lives)
        return {"median_rows": rows, "median_life": float(life_spans.median() / scale), "from_new": new}

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

        The task is soh where a health column is constant in cycles within which a time runs.
        """
        frame = self.frame
        health = roles.pick(numbers, "health", lambda c: True, named=True)
        if health is not None and "time" not in self.given:
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
                if time is not None:
                    return "soh", time, cycle, health, False
        time, restarts = self.given.get("time"), False
        time = time or roles.pick(numbers, "time", lambda c: roles.rises(frame[c], [groups]))
        if time is None or not roles.rises(frame[time], [groups]):
            time = time or roles.pick(numbers, "time", lambda c: roles.nearly_rises(frame[c], [groups]), named=True)
            restarts = time is not None and roles.nearly_rises(frame[time], [groups])
        if time is None:
            raise DataError(
                "no column rises from row to row within every unit, so none can be the time",
                where=str(self.path),
                hint="sort the rows of each unit by time, or add a column that counts them",
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
        if restarts:
            return "time"
        if failed is None:
            return None
        flags = self.table.flags(failed)
        last = ~groups.duplicated(keep="last").to_numpy()
        mixed = pd.Series(flags, index=groups.index).groupby(groups).nunique() > 1
        return "failed" if (flags & ~last & groups.map(mixed).to_numpy()).any() else None

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
