"""Typed rows of tables turned into the units of a fleet: order, cycles and labels checked, blanks filled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedprognos.arrays import BoolArray, FloatArray, IntArray, RowStack
from fedprognos.errors import ConfigError, DataError, unknown_name
from fedprognos.fleet.checks import MIN_ROWS
from fedprognos.fleet.data_remarks import quality_notes
from fedprognos.fleet.unit import MACHINE, START, Fleet, Schema, Unit
from fedprognos.tables import (
    SECONDS,
    Columns,
    FileFormat,
    RowReader,
    Rows,
    Table,
    broken_off,
    decimals_of_levels,
    end_of_life,
    fill,
    find_time_format,
    iso,
    measure_of,
    one_spelling,
    open_tables,
    time_measure_of,
    unit_files,
)

_Codes = np.ndarray[tuple[int, ...], np.dtype[np.int32]]
"""Numbers of units, tables and conditions by row: half as large as other whole numbers."""
_FILLED = {
    "hold": "filled with the last value",
    "interpolate": "interpolated",
    "mean": "filled with the mean of the operating condition",
}


def read_table(
    source: str | Path | Sequence[str | Path],
    columns: Columns,
    file_format: FileFormat | None = None,
    *,
    name: str = "table",
    require_labels: bool = True,
) -> Fleet:
    """A fleet from CSV, Excel or Parquet files.

    Parameters
    ----------
    source
        A file, several, a folder, or a pattern such as `plants/*.csv`.
    file_format
        What is said about the format of the files; the rest is found out.
    require_labels
        Refuse data nothing can be learnt from; False reads a fleet to be predicted.

    Raises
    ------
    DataError
        For the first thing wrong, naming file, line, column and unit.
    """
    return fleet_from_tables(
        open_tables(source, file_format, columns.text), columns, name=name, require_labels=require_labels
    )


def fleet_from_tables(tables: Sequence[Table], columns: Columns, *, name: str, require_labels: bool = True) -> Fleet:
    """One fleet from the rows of one or more tables; see :func:`read_table`."""
    tables[0].require([*columns.roles, *(columns.sensors or ())])
    others = [c for c in tables[0].names if c not in columns.roles]
    sensors = columns.sensors if columns.sensors is not None else tuple(tables[0].numeric(others))
    if not sensors:
        raise DataError("no sensor columns", where=tables[0].where, hint="name at least one sensor")
    for column in columns.missing if not isinstance(columns.missing, str) else ():
        if column not in (*sensors, *columns.settings):
            raise unknown_name("sensor", column, sensors)
    if columns.health is not None and columns.health not in sensors:
        raise unknown_name("sensor", columns.health, sensors)
    form = columns.time_format or find_time_format(tables[0], columns.time, columns.clock)
    columns = columns.model_copy(update={"time_format": form})
    schema = _schema(columns, sensors, dated=form != "number")
    reader = RowReader(columns, sensors, schema.time_measure, labels=True)
    rows = _read(reader, tables)
    units, dropped, left_out = [], list[str](), Counter[str]()
    for code, name_of_unit in enumerate(rows.units):
        unit_rows = rows.rows_of_unit(code)
        if len(unit_rows) < MIN_ROWS:
            dropped.append(name_of_unit)
            continue
        unit = _unit(unit_rows, rows.machines[code], columns, sensors)
        if unit.is_cyclic:
            unit = _without_odd_cycles(unit, left_out)
        elif columns.ahead is not None:
            if require_labels:
                unit = _with_later_health(unit, sensors.index(str(columns.health)), columns.ahead, left_out)
        elif columns.health is not None:
            unit = _until_worn(unit, sensors.index(columns.health), columns.end_of_life, left_out)
        if unit.rows < MIN_ROWS:
            dropped.append(name_of_unit)
        else:
            units.append(unit)
    where = tables[0].where if len(tables) == 1 else str(Path(tables[0].where).parent)
    if not units:
        raise DataError("every unit has one row only", where=where, hint="a unit needs two rows or more: its history")
    if require_labels and all(unit.labels() is None for unit in units):
        raise _no_labels(columns, schema, where)
    notes = _notes(tables, rows, columns, sensors)
    notes += [f"left out, as they have fewer than two rows: {', '.join(dropped)}"] if dropped else []
    notes += [f"left out: {count} {what}" for what, count in left_out.items() if count]
    if unlabelled := sum(unit.labels() is None for unit in units):
        if columns.ahead is None:
            why, use = "have not failed", "for training by train.running"
        else:
            why, use = "end before so far ahead", "given no label"
        notes += [f"{unlabelled} of {len(units)} units {why}: used for scaling, {use}"]
    fleet = Fleet(name, schema, tuple(units), where, tuple(notes))
    return replace(fleet, notes=(*notes, *quality_notes(fleet))) if require_labels else fleet


def _no_labels(columns: Columns, schema: Schema, where: str) -> DataError:
    """Why nothing can be learnt from units of which none has a label."""
    if columns.task == "soh":
        return DataError("no label to learn from", where=where, hint="name the health column: target = '...'")
    if columns.ahead is not None:
        what = (
            f"no label to learn from: no unit has two rows {columns.ahead:g} {schema.time_measure} before its last one"
        )
        return DataError(what, where=where, hint="look less far ahead (data.ahead, init --ahead)")
    if columns.health is not None:
        what = f"no label to learn from: no unit's {columns.health} falls below {columns.end_of_life:.0%} of its first"
        return DataError(what, where=where, hint="set data.end_of_life higher, such as 0.9")
    return DataError(
        f"no label to learn from: no unit failed (column '{columns.failed}')",
        where=where,
        hint="RUL is known only of units that ran to failure; name a target column or add failed units",
    )


@dataclass(frozen=True, eq=False)
class _AllRows:
    """All rows of all tables, unit after unit, column by column.

    Parameters
    ----------
    table_of, places : (rows,)
        The table of each row, and where it stands there.
    units, machines, stops : (units,)
        Names of units, the machine of each, and where its rows end.
    values : (rows, C + S)
        Sensors and settings.
    blanks
        How many values are missing in each column of `values` that has blanks.
    conditions, means : (rows,), (conditions, columns with blanks)
        The operating condition of each row, and what a column with blanks has on average there; NaN for settings.
    sites
        By unit: its owners, as they are spelled, each with the table and the place of the first row that says so.
    """

    tables: Sequence[Table]
    table_of: _Codes
    places: IntArray
    units: list[str]
    machines: list[str]
    stops: IntArray
    times: FloatArray
    dates: FloatArray | None
    cycles: IntArray | None
    values: FloatArray
    blanks: dict[int, int]
    conditions: _Codes
    means: FloatArray
    targets: FloatArray | None
    failed: BoolArray | None
    sites: dict[int, dict[str, tuple[int, int]]]
    spelling: dict[str, str]
    repeated: int
    again: set[str]

    def rows_of_unit(self, code: int) -> _UnitRows:
        return _UnitRows(self, code, slice(int(self.stops[code - 1]) if code else 0, int(self.stops[code])))


@dataclass(frozen=True, eq=False)
class _UnitRows:
    """Rows of one unit: where they stand in all rows."""

    whole: _AllRows
    code: int
    rows: slice

    def __len__(self) -> int:
        return int(self.rows.stop - self.rows.start)

    @property
    def unit(self) -> str:
        """The unit's name."""
        return self.whole.units[self.code]

    def at(self, k: int) -> str:
        """File, line and unit of the k-th row."""
        table, row = self._place(k)
        return table.at(row, self.unit)

    def cell(self, column: str, k: int) -> str:
        """What the file says in a column of the k-th row."""
        table, row = self._place(k)
        return table.cell(column, row)

    def _place(self, k: int) -> tuple[Table, int]:
        row = self.rows.start + k
        return self.whole.tables[int(self.whole.table_of[row])], int(self.whole.places[row])


def _read(reader: RowReader, tables: Sequence[Table]) -> _AllRows:
    """All rows. What is kept of each row is a few numbers; sensors of a large table are in a file."""
    columns, files = reader.columns, unit_files(tables)
    measured, missing = RowStack(np.float64), np.zeros(len(reader.sensors) + len(columns.settings), dtype=np.int64)
    numbers: dict[str, list[Any]] = {name: [] for name in ("places", "times", "dates", "cycles", "targets", "failed")}
    code_parts: list[_Codes] = []
    table_parts: list[_Codes] = []
    units: dict[str, int] = {}
    machines: list[str] = []
    sites: dict[int, dict[str, tuple[int, int]]] = {}
    site_counts: Counter[str] = Counter()
    repeated = 0
    for k, (table, file) in enumerate(zip(tables, files, strict=True)):
        for piece in reader.read(table, file):
            within, names, firsts = _coded(piece.units)
            for name, first in zip(names, firsts, strict=True):
                if name not in units:
                    units[name] = len(units)
                    machines.append(piece.machines[first])
            codes = np.array([units[name] for name in names], dtype=np.int32)[within]
            owners = piece.sites if columns.site is not None else _file_sites(piece, columns, files)
            if owners is not None:
                site_of_row, site_names, _ = _coded(owners)
                site_counts.update(dict(zip(site_names, np.bincount(site_of_row).tolist(), strict=True)))
                for first in _coded(codes.astype(np.int64) * len(site_names) + site_of_row)[2]:
                    sites_of_unit = sites.setdefault(int(codes[first]), {})
                    sites_of_unit.setdefault(site_names[site_of_row[first]], (k, int(piece.places[first])))
            measured.add(np.column_stack([piece.sensors, piece.settings]))
            missing += np.concatenate([np.isnan(block).sum(axis=0) for block in (piece.sensors, piece.settings)])
            code_parts.append(codes)
            table_parts.append(np.full(len(piece), k, dtype=np.int32))
            for name, parts in numbers.items():
                column = getattr(piece, name)
                parts.append(None if column is None else column.copy())  # a view would keep the piece's sensors, too
            repeated += piece.repeated
    if reader.goes_on and columns.site is None and columns.unit is not None:
        sites = {}  # files are parts of a history, not owners
    code = np.concatenate(code_parts)
    order = np.argsort(code, kind="stable") if (code[1:] < code[:-1]).any() else None
    table_of = _joined(table_parts, order)
    values, gaps = measured.whole(order), {c: int(n) for c, n in enumerate(missing) if n}
    conditions, means = _condition_means(
        tables, table_of, values, len(reader.sensors), list(gaps), (*reader.sensors, *columns.settings)
    )
    return _AllRows(
        tables=tables,
        table_of=table_of,
        units=list(units),
        machines=machines,
        stops=np.cumsum(np.bincount(code)),
        values=values,
        blanks=gaps,
        conditions=conditions,
        means=means,
        sites=sites,
        spelling=one_spelling(site_counts) if columns.site is not None else {name: name for name in site_counts},
        repeated=repeated,
        again=reader.again,
        **{name: _joined(parts, order) for name, parts in numbers.items()},
    )


def _coded(values: Sequence[str] | IntArray) -> tuple[IntArray, list[Any], list[int]]:
    """Numbers for values, the values in the order in which they come, and where each comes first."""
    codes, different = pd.factorize(
        np.asarray(values) if isinstance(values, np.ndarray) else np.asarray(values, object)
    )
    firsts = np.zeros(len(different), dtype=np.int64)
    firsts[codes[::-1]] = np.arange(len(codes))[::-1]
    return codes, different.tolist(), firsts.tolist()


def _joined(parts: list[Any], order: IntArray | None) -> Any:
    """One array of all parts; the parts are let go. None where there are none."""
    present = [part for part in parts if part is not None]
    parts.clear()
    if not present:
        return None
    whole = np.concatenate(present)
    return whole if order is None else whole[order]


def _file_sites(piece: Rows, columns: Columns, files: Sequence[str]) -> list[str] | None:
    """Owners where no column names them: every file is a site of its own, or lies in the folder of its site."""
    if len(files) < 2:
        return None
    if columns.unit is not None:
        return [piece.table.stem] * len(piece)
    return [piece.table.path.parent.name] * len(piece) if piece.table.path is not None and "/" in files[0] else None


def _condition_means(
    tables: Sequence[Table],
    table_of: _Codes,
    values: FloatArray,
    split: int,
    gaps: Sequence[int],
    names: Sequence[str],
) -> tuple[_Codes, FloatArray]:
    """The operating condition of each row within its table; means of columns with blanks there, NaN for settings.

    One column of the table is in memory at a time.
    """
    conditions, means = np.zeros(len(values) if gaps else 0, dtype=np.int32), [np.empty((0, len(gaps)))]
    for k, table in enumerate(tables) if gaps else ():
        rows = np.flatnonzero(table_of == k) if len(tables) > 1 else slice(None)
        levels = []
        for c in range(split, values.shape[1]):
            setting = values[rows, c]
            present = setting[~np.isnan(setting)]
            decimals = decimals_of_levels(present) if present.size else None
            if decimals is not None:
                levels.append(np.round(setting, decimals) + 0.0)
        count = len(values) if isinstance(rows, slice) else len(rows)
        within = np.zeros(count, dtype=np.int32)
        if levels:
            by_levels = pd.DataFrame(dict(enumerate(levels))).groupby(list(range(len(levels))), dropna=False)
            within = np.asarray(by_levels.ngroup(), dtype=np.int32)
        of_table = np.full((int(within.max(initial=-1)) + 1, len(gaps)), np.nan)
        for g, c in enumerate(gaps):
            column = pd.Series(values[rows, c])
            if column.isna().all():
                what = f"no value at all in column '{names[c]}'"
                raise DataError(what, where=table.where, hint="leave the column out")
            if c < split:
                of_table[:, g] = column.groupby(within).mean().fillna(column.mean()) if levels else column.mean()
        conditions[rows] = within + sum(map(len, means))
        means.append(of_table)
    return conditions, np.concatenate(means)


def _unit(unit_rows: _UnitRows, machine: str, columns: Columns, sensors: Sequence[str]) -> Unit:
    """One unit from its rows."""
    rows = unit_rows.whole
    target = None if rows.targets is None else rows.targets[unit_rows.rows]
    offsets = numbers = rul_at_end = None
    if rows.cycles is not None:
        offsets, numbers = _cycles(unit_rows, rows.cycles[unit_rows.rows], str(columns.cycle))
        target = None if target is None else _one_per_cycle(unit_rows, target, offsets, str(columns.target))
    elif target is not None:
        _check_not_negative(unit_rows, target, str(columns.target))
        rul_at_end = float(target[-1])
    time = _time(unit_rows, columns, offsets)
    failed = rul_at_end is None or rul_at_end == 0
    if rows.failed is not None:
        failed = _has_failed(unit_rows, rows.failed[unit_rows.rows], str(columns.failed))
    if columns.task == "rul" and target is None and failed:
        rul_at_end = 0.0
    has_lives = columns.life is not None or columns.new_life is not None
    began = None if rows.dates is None else iso(float(rows.dates[unit_rows.rows.start]))
    facts = {"site": _site(unit_rows), MACHINE: machine if has_lives else None, START: began}
    values = _filled(unit_rows, columns, (*sensors, *columns.settings), time, offsets)
    return Unit(
        id=unit_rows.unit,
        time=time,
        sensors=values[:, : len(sensors)],
        settings=values[:, len(sensors) :],
        target=target,
        failed=failed,
        rul_at_end=rul_at_end,
        cycles=offsets,
        cycle_numbers=numbers,
        attributes={fact: value for fact, value in facts.items() if value is not None},
    )


def _without_odd_cycles(unit: Unit, left_out: Counter[str]) -> Unit:
    """The unit without cycles that were broken off, and without those whose health is blank or stands alone."""
    if unit.cycles is None:
        return unit
    kept = np.ones(len(unit.cycles) - 1, dtype=np.bool_)
    if unit.target is not None:
        kept = np.isfinite(unit.target)
        left_out["cycles without a health"] += int((~kept).sum())
        with_health = np.flatnonzero(kept)
        health = unit.target[with_health]
        odd = with_health[broken_off(health) & bool((health >= 0).all())]
        left_out["cycles with less than half the health of those around them"] += len(odd)
        kept[odd] = False
    if unit.rows > len(kept):  # else every cycle is one row, and none has a duration
        durations = unit.time[unit.cycles[1:] - 1] - unit.time[unit.cycles[:-1]]
        broken = kept & broken_off(durations)
        left_out["cycles that were broken off: less than half as long as those around them"] += int(broken.sum())
        kept &= ~broken
    return unit if kept.all() else unit.keep_cycles(kept)


def _until_worn(unit: Unit, health: int, share: float, left_out: Counter[str]) -> Unit:
    """The unit up to its end of life by a threshold of the sensor `health`, without cycles that were broken off."""
    rows = _whole_rows(unit, health, left_out)
    end = end_of_life(unit.sensors[rows, health], share)
    if end is not None:
        left_out["rows after the end of life"] += len(rows) - end - 1
        rows = rows[: end + 1]
    worn = end is not None
    return replace(_with_rows(unit, rows), failed=worn, rul_at_end=0.0 if worn else None)


def _with_later_health(unit: Unit, health: int, ahead: float, left_out: Counter[str]) -> Unit:
    """The unit with its health `ahead` of each row as label, on the line between neighbours; rows without one go."""
    unit = _with_rows(unit, _whole_rows(unit, health, left_out))
    labelled = np.flatnonzero(unit.time + ahead <= unit.time[-1])
    if len(labelled) < MIN_ROWS:
        return replace(unit, failed=False)
    left_out["rows whose later health is not known yet"] += unit.rows - len(labelled)
    later = np.interp(unit.time[labelled] + ahead, unit.time, unit.sensors[:, health])
    return replace(_with_rows(unit, labelled), target=later, failed=False)


def _whole_rows(unit: Unit, health: int, left_out: Counter[str]) -> IntArray:
    """Rows that were not broken off; a health that falls below zero cannot tell."""
    values = unit.sensors[:, health]
    broken = broken_off(values) & bool((values >= 0).all())
    left_out["rows that were broken off: less than half the health of those around them"] += int(broken.sum())
    return np.flatnonzero(~broken)


def _with_rows(unit: Unit, rows: IntArray) -> Unit:
    return replace(unit, **{name: getattr(unit, name)[rows] for name in ("time", "sensors", "settings")})


def _filled(
    unit_rows: _UnitRows, columns: Columns, names: Sequence[str], time: FloatArray, offsets: IntArray | None
) -> FloatArray:
    """Sensors and settings of the unit, (T, C + S), their blanks filled within each cycle."""
    values, gaps = unit_rows.whole.values[unit_rows.rows], list(unit_rows.whole.blanks)
    if not gaps or not np.isnan(values).any():
        return values
    values = values.copy()
    policies = [columns.policies(names)[c] for c in gaps]
    means = unit_rows.whole.means[unit_rows.whole.conditions[unit_rows.rows]]
    edges = [0, len(values)] if offsets is None else offsets.tolist()
    for a, b in pairwise(edges):
        values[a:b, gaps] = fill(values[a:b, gaps], time[a:b], policies, means[a:b])
    left = np.argwhere(np.isnan(values))
    if left.size:
        row, column = int(left[0][0]), names[int(left[0][1])]
        what = f"no value of the operating setting '{column}' before the unit's first one"
        raise DataError(what, where=unit_rows.at(row), hint="fill it, or drop the rows before")
    return values


def _site(unit_rows: _UnitRows) -> str | None:
    whole = unit_rows.whole
    site: str | None = None
    for spelled, (table, place) in whole.sites.get(unit_rows.code, {}).items():
        name = whole.spelling[spelled]
        if site not in (None, name):
            raise DataError(
                f"the unit is in two sites: '{site}' and '{name}'",
                where=whole.tables[table].at(place, unit_rows.unit),
                hint="a unit belongs to one site; make the unit ids unique, such as plantA-7",
            )
        site = name
    return site


def _cycles(unit_rows: _UnitRows, cycle: IntArray, column: str) -> tuple[IntArray, IntArray]:
    """Row offsets and numbers of the cycles."""
    back = np.flatnonzero(np.diff(cycle) < 0)
    if back.size:
        k = int(back[0]) + 1
        raise DataError(
            f"unsorted {column}: {cycle[k]} after {cycle[k - 1]}",
            where=unit_rows.at(k),
            hint=f"sort the rows of each unit by {column}",
        )
    starts = np.concatenate([[0], np.flatnonzero(np.diff(cycle) != 0) + 1]).astype(np.int64)
    return np.append(starts, len(cycle)), cycle[starts]


def _one_per_cycle(unit_rows: _UnitRows, target: FloatArray, offsets: IntArray, column: str) -> FloatArray:
    values = target[offsets[:-1]]
    repeated = np.repeat(values, np.diff(offsets))
    blank = np.isnan(target)
    some = np.repeat(np.logical_or.reduceat(~blank, offsets[:-1]), np.diff(offsets))
    for k in np.flatnonzero(blank & some)[:1]:  # a health that no row of the cycle has is not measured at all
        hint = "write it in all rows of the cycle, or in none"
        raise DataError(f"missing value in column '{column}'", where=unit_rows.at(int(k)), hint=hint)
    spread = np.flatnonzero((target != repeated) & ~blank)
    if spread.size:
        k = int(spread[0])
        raise DataError(
            f"column '{column}' changes within a cycle, to {target[k]:g}",
            where=unit_rows.at(k),
            hint="the health label must be the same in all rows of a cycle",
        )
    return values


def _time(unit_rows: _UnitRows, columns: Columns, offsets: IntArray | None) -> FloatArray:
    """Time of every row, refused where it does not rise; dates count from the unit's first row."""
    time = unit_rows.whole.times[unit_rows.rows]
    steps = np.diff(time)
    if offsets is not None:
        steps[offsets[1:-1] - 1] = 1.0  # time starts anew with each cycle
    bad = np.flatnonzero(steps <= 0)
    if bad.size:
        k = int(bad[0]) + 1
        kind = "duplicate" if time[k] == time[k - 1] else "unsorted"
        repaired = "; data.sort = true sorts them. Where time restarts after a repair, set data.new_life = 'time'"
        raise DataError(
            f"{kind} {columns.time}: {unit_rows.cell(columns.time, k)} after {unit_rows.cell(columns.time, k - 1)}",
            where=unit_rows.at(k),
            hint=f"sort the rows of each unit by {columns.time} and keep one row for each value"
            + (repaired if kind == "unsorted" else ""),
        )
    return time - time[0] if unit_rows.whole.dates is not None and offsets is None else time


def _check_not_negative(unit_rows: _UnitRows, target: FloatArray, column: str) -> None:
    below = np.flatnonzero(target < 0)
    if below.size:
        k = int(below[0])
        raise DataError(
            f"negative RUL {target[k]:g} in column '{column}'",
            where=unit_rows.at(k),
            hint="RUL ends at 0; drop the rows after the failure",
        )


def _has_failed(unit_rows: _UnitRows, flags: BoolArray, column: str) -> bool:
    """What the flags say; they may stand in every row or in the last one only."""
    if flags.any() and not flags.all() and (flags[:-1].any() or not flags[-1]):
        raise DataError(
            f"column '{column}' says failed before the last row",
            where=unit_rows.at(int(np.argmax(flags))),
            hint="drop the rows after the failure; if the machine was repaired, set data.new_life = 'failed'",
        )
    return bool(flags[-1])


def _notes(tables: Sequence[Table], rows: _AllRows, columns: Columns, sensors: Sequence[str]) -> list[str]:
    """What people should know about how the rows were read."""
    names = (*sensors, *columns.settings)
    notes = [*dict.fromkeys(table.note for table in tables if table.note)]
    notes += [f"{rows.repeated} rows that occur twice are read once"] if rows.repeated else []
    count, policies = len(rows.values), columns.policies(names)
    notes += [f"{names[c]}: {n} of {count} values are missing; {_FILLED[policies[c]]}" for c, n in rows.blanks.items()]
    if merged := sorted({name for name, usual in rows.spelling.items() if name != usual}):
        notes += [f"{columns.site}: other spellings of the same owners are taken as one: {', '.join(merged)}"]
    if rows.again:
        shown = ", ".join(sorted(rows.again)[:5]) + (", ..." if len(rows.again) > 5 else "")
        notes += [f"machines of several files have the same name: {shown}; the later ones are called FILE/NAME"]
    return notes


def _schema(columns: Columns, sensors: tuple[str, ...], *, dated: bool) -> Schema:
    if dated and columns.time_measure not in (None, *SECONDS):
        raise ConfigError(
            f"time_measure = '{columns.time_measure}', but column '{columns.time}' holds dates",
            hint=f"give one of {', '.join(SECONDS)}",
        )
    if columns.task != "soh":
        measure = columns.time_measure or ("hours" if dated else time_measure_of(columns.time) or "steps")
        if columns.health is not None and columns.ahead is not None:
            target = f"{columns.health} in {columns.ahead:g} {measure}"
            target_measure = columns.target_measure or measure_of(columns.health) or columns.health
            names = (columns.settings, columns.time, measure, target, target_measure, columns.health)
            return Schema("forecast", sensors, *names, ahead=columns.ahead)
        target, target_measure = columns.target or "rul", columns.target_measure or measure
    else:
        measure = columns.time_measure or ("seconds" if dated else time_measure_of(columns.time) or "seconds")
        target = columns.target or "health"
        target_measure = columns.target_measure or measure_of(target) or target
    return Schema(columns.task, sensors, columns.settings, columns.time, measure, target, target_measure)
