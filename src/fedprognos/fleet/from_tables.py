"""Typed rows of tables turned into the units of a fleet: order, cycles and labels checked, blanks filled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from fedprognos.arrays import BoolArray, FloatArray, IntArray
from fedprognos.errors import ConfigError, DataError, unknown_name
from fedprognos.fleet.checks import MIN_ROWS
from fedprognos.fleet.data_remarks import quality_notes
from fedprognos.fleet.gathered_rows import GatheredRows, gather_rows
from fedprognos.fleet.unit import MACHINE, START, Fleet, Schema, Unit
from fedprognos.tables import (
    SECONDS,
    Columns,
    FileFormat,
    RowReader,
    Table,
    broken_off,
    end_of_life,
    fill,
    find_time_format,
    iso,
    measure_of,
    open_tables,
    time_measure_of,
)

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
        open_tables(source, file_format, columns.text), columns, name="table", require_labels=require_labels
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
    rows = gather_rows(reader, tables)
    units, dropped, left_out = [], list[str](), Counter[str]()
    for code, name_of_unit in enumerate(rows.units):
        unit_rows = rows.of_unit(code)
        if len(unit_rows) < MIN_ROWS:
            dropped.append(name_of_unit)
            continue
        unit = _unit(unit_rows, columns, sensors)
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


def _unit(rows: GatheredRows, columns: Columns, sensors: Sequence[str]) -> Unit:
    """One unit from its rows."""
    target = rows.targets
    offsets = numbers = rul_at_end = None
    if rows.cycles is not None:
        offsets, numbers = _cycles(rows, rows.cycles, str(columns.cycle))
        target = None if target is None else _one_per_cycle(rows, target, offsets, str(columns.target))
    elif target is not None:
        _check_not_negative(rows, target, str(columns.target))
        rul_at_end = float(target[-1])
    time = _time(rows, columns, offsets)
    failed = rul_at_end is None or rul_at_end == 0
    if rows.failed is not None:
        failed = _has_failed(rows, rows.failed, str(columns.failed))
    if columns.task == "rul" and target is None and failed:
        rul_at_end = 0.0
    has_lives = columns.life is not None or columns.new_life is not None
    began = None if rows.dates is None else iso(float(rows.dates[0]))
    facts = {"site": rows.site(), MACHINE: rows.machines[0] if has_lives else None, START: began}
    values = _filled(rows, columns, (*sensors, *columns.settings), time, offsets)
    return Unit(
        id=rows.units[0],
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
    rows: GatheredRows, columns: Columns, names: Sequence[str], time: FloatArray, offsets: IntArray | None
) -> FloatArray:
    """Sensors and settings of the unit, (T, C + S), their blanks filled within each cycle."""
    values, gaps = rows.values, list(rows.blanks)
    if not gaps or not np.isnan(values).any():
        return values
    values = values.copy()
    policies = [columns.policies(names)[c] for c in gaps]
    means = rows.means[rows.conditions]
    edges = [0, len(values)] if offsets is None else offsets.tolist()
    for a, b in pairwise(edges):
        values[a:b, gaps] = fill(values[a:b, gaps], time[a:b], policies, means[a:b])
    left = np.argwhere(np.isnan(values))
    if left.size:
        row, column = int(left[0][0]), names[int(left[0][1])]
        what = f"no value of the operating setting '{column}' before the unit's first one"
        raise DataError(what, where=rows.at(row), hint="fill it, or drop the rows before")
    return values


def _cycles(rows: GatheredRows, cycle: IntArray, column: str) -> tuple[IntArray, IntArray]:
    """Row offsets and numbers of the cycles."""
    back = np.flatnonzero(np.diff(cycle) < 0)
    if back.size:
        k = int(back[0]) + 1
        raise DataError(
            f"unsorted {column}: {cycle[k]} after {cycle[k - 1]}",
            where=rows.at(k),
            hint=f"sort the rows of each unit by {column}",
        )
    starts = np.concatenate([[0], np.flatnonzero(np.diff(cycle) != 0) + 1]).astype(np.int64)
    return np.append(starts, len(cycle)), cycle[starts]


def _one_per_cycle(rows: GatheredRows, target: FloatArray, offsets: IntArray, column: str) -> FloatArray:
    values = target[offsets[:-1]]
    repeated = np.repeat(values, np.diff(offsets))
    blank = np.isnan(target)
    some = np.repeat(np.logical_or.reduceat(~blank, offsets[:-1]), np.diff(offsets))
    for k in np.flatnonzero(blank & some)[:1]:  # a health that no row of the cycle has is not measured at all
        hint = "write it in all rows of the cycle, or in none"
        raise DataError(f"missing value in column '{column}'", where=rows.at(int(k)), hint=hint)
    spread = np.flatnonzero((target != repeated) & ~blank)
    if spread.size:
        k = int(spread[0])
        raise DataError(
            f"column '{column}' changes within a cycle, to {target[k]:g}",
            where=rows.at(k),
            hint="the health label must be the same in all rows of a cycle",
        )
    return values


def _time(rows: GatheredRows, columns: Columns, offsets: IntArray | None) -> FloatArray:
    """Time of every row, refused where it does not rise; dates count from the unit's first row."""
    time = rows.times
    steps = np.diff(time)
    if offsets is not None:
        steps[offsets[1:-1] - 1] = 1.0  # time starts anew with each cycle
    bad = np.flatnonzero(steps <= 0)
    if bad.size:
        k = int(bad[0]) + 1
        kind = "duplicate" if time[k] == time[k - 1] else "unsorted"
        hint = f"sort the rows of each unit by {columns.time} and keep one row for each value"
        hint += (
            "; does data.unit (init --unit) name the machine?"
            if kind == "duplicate"
            else "; data.sort = true sorts them. Where time restarts after a repair, set data.new_life = 'time'"
        )
        raise DataError(
            f"{kind} {columns.time}: {rows.cell(columns.time, k)} after {rows.cell(columns.time, k - 1)}",
            where=rows.at(k),
            hint=hint,
        )
    return time - time[0] if rows.dates is not None and offsets is None else time


def _check_not_negative(rows: GatheredRows, target: FloatArray, column: str) -> None:
    below = np.flatnonzero(target < 0)
    if below.size:
        k = int(below[0])
        raise DataError(
            f"negative RUL {target[k]:g} in column '{column}'",
            where=rows.at(k),
            hint="RUL ends at 0; drop the rows after the failure",
        )


def _has_failed(rows: GatheredRows, flags: BoolArray, column: str) -> bool:
    """What the flags say; they may stand in every row or in the last one only."""
    if flags.any() and not flags.all() and (flags[:-1].any() or not flags[-1]):
        raise DataError(
            f"column '{column}' says failed before the last row",
            where=rows.at(int(np.argmax(flags))),
            hint="drop the rows after the failure; if the machine was repaired, set data.new_life = 'failed'",
        )
    return bool(flags[-1])


def _notes(tables: Sequence[Table], rows: GatheredRows, columns: Columns, sensors: Sequence[str]) -> list[str]:
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
