"""Tables turned into a fleet: frames of one's own or files that were read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from fedprognos.arrays import FloatArray
from fedprognos.errors import ConfigError, DataError, unknown_name
from fedprognos.fleet.checks import MIN_ROWS
from fedprognos.fleet.columns import Columns
from fedprognos.fleet.levels import decimals_of_levels
from fedprognos.fleet.owners import one_spelling
from fedprognos.fleet.table_files import Table, unit_files
from fedprognos.fleet.table_units import UnitRows, Values, lives_of, make_unit
from fedprognos.fleet.time_axis import SECONDS, measure_of, seconds_since_1970, time_format, time_measure_of, with_clock
from fedprognos.fleet.unit import Fleet, Schema, Unit

_FILLED = {
    "hold": "filled with the last value",
    "interpolate": "interpolated",
    "mean": "filled with the mean of the operating condition",
}


def fleet_of_tables(tables: Sequence[Table], columns: Columns, *, name: str, require_labels: bool = True) -> Fleet:
    """One fleet from the rows of one or more tables.

    Parameters
    ----------
    require_labels
        Refuse data nothing can be learnt from; False reads a fleet to be predicted.

    Raises
    ------
    DataError
        For the first thing wrong, naming table, row, column and unit.
    """
    sensors = columns.sensors if columns.sensors is not None else _other_numbers(tables[0], columns.roles)
    if not sensors:
        raise DataError("no sensor columns", where=tables[0].where, hint="name at least one sensor")
    for column in columns.missing if not isinstance(columns.missing, str) else ():
        if column not in (*sensors, *columns.settings):
            raise unknown_name("sensor", column, sensors)
    tables[0].require([columns.time])
    tables = [with_clock(table, columns.time, columns.clock) for table in tables]
    form = columns.time_format or time_format(tables[0].frame[columns.time])
    schema = _schema(columns, sensors, dated=form != "number")
    units: list[Unit] = []
    homes: dict[str, Table] = {}
    blanks: Counter[str] = Counter()
    dropped: list[str] = []
    files, spelling = unit_files(tables), _spelling(tables, columns.site)
    for table, file in zip(tables, files, strict=True):
        table.require([*columns.roles, *sensors])
        values = _values(table, columns, sensors, form, SECONDS.get(schema.time_measure, 1.0))
        values = replace(values, ids=values.ids if columns.unit else [file] * len(table.frame))
        values = replace(values, sites=_sites(table, columns, files, spelling))
        blanks.update({c: n for c in values.means if (n := int(np.isnan(values.numbers[c]).sum()))})
        for own in _pieces(values, columns):
            if len(own.rows) < MIN_ROWS:
                dropped.append(own.unit)
                continue
            unit = make_unit(own, values, columns, sensors)
            if unit.id in homes:
                raise DataError(
                    f"unit '{unit.id}' is in two files: {Path(homes[unit.id].where).name} and {Path(table.where).name}",
                    where=table.where,
                    hint="a unit belongs to one site and one file; make the ids unique, such as plantA-7",
                )
            homes[unit.id] = table
            units.append(unit)
    where = tables[0].where if len(tables) == 1 else str(Path(tables[0].where).parent)
    if not units:
        raise DataError("every unit has one row only", where=where, hint="a unit needs two rows or more: its history")
    if require_labels and all(unit.labels() is None for unit in units):
        if columns.task == "soh":
            raise DataError("no label to learn from", where=where, hint="name the health column: target = '...'")
        raise DataError(
            f"no label to learn from: no unit failed (column '{columns.failed}')",
            where=where,
            hint="RUL is known only of units that ran to failure; name a target column or add failed units",
        )
    rows = sum(len(table.frame) for table in tables)
    notes = [*dict.fromkeys(table.note for table in tables if table.note)]
    policies = dict(zip((*sensors, *columns.settings), columns.policies((*sensors, *columns.settings)), strict=True))
    notes += [f"{c}: {n} of {rows} values are missing; {_FILLED[policies[c]]}" for c, n in blanks.items()]
    if merged := sorted({name for name, usual in spelling.items() if name != usual}):
        notes += [f"{columns.site}: other spellings of the same owners are taken as one: {', '.join(merged)}"]
    notes += [f"left out, as they have one row only: {', '.join(dropped)}"] if dropped else []
    if unlabelled := sum(unit.labels() is None for unit in units):
        notes += [f"{unlabelled} of {len(units)} units have not failed: used for scaling, given no label"]
    return Fleet(name, schema, tuple(units), where, tuple(notes))


def _spelling(tables: Sequence[Table], site: str | None) -> dict[str, str]:
    """Owners as they are mostly spelt: case and spaces make no other owner."""
    if site is None:
        return {}
    for table in tables:
        table.require([site])
    named = [replace(table, frame=table.frame.dropna(subset=[site])) for table in tables]
    return one_spelling([name for table in named for name in table.names(site)])


def _sites(
    table: Table, columns: Columns, files: Sequence[str], spelling: Mapping[str, str]
) -> Sequence[str] | str | None:
    """Owner of every row, or of the whole file: a site of its own, or a file of a site's folder."""
    if columns.site is not None:
        return [spelling[name] for name in table.names(columns.site)]
    if len(files) < 2:
        return None
    if columns.unit is not None:
        return table.stem
    return table.path.parent.name if table.path is not None and "/" in files[0] else None


def _values(table: Table, columns: Columns, sensors: Sequence[str], form: str, seconds: float) -> Values:
    ids = [table.stem] * len(table.frame) if columns.unit is None else table.names(columns.unit)
    numbers: dict[str, FloatArray] = {}
    if form == "number":
        numbers[columns.time] = table.numbers(columns.time, ids)
    else:
        numbers[columns.time] = seconds_since_1970(table, columns.time, form, ids) / seconds
    for column in (columns.cycle, columns.target):
        if column is not None:
            numbers[column] = table.numbers(column, ids)
    measured = (*columns.settings, *sensors)
    for column, policy in zip(measured, columns.policies(measured), strict=True):
        numbers[column] = table.numbers(column, ids, gaps=policy != "refuse")
    return Values(
        table=table,
        ids=ids,
        numbers=numbers,
        means=_means(table, numbers, columns.settings, measured),
        sites=None,
        failed=None if columns.failed is None else table.flags(columns.failed),
        lives=None if columns.life is None else table.names(columns.life),
        seconds=None if form == "number" else seconds,
    )


def _means(
    table: Table, numbers: dict[str, FloatArray], settings: Sequence[str], measured: Sequence[str]
) -> dict[str, FloatArray]:
    """Mean of each column that has blanks in the operating condition of every row; NaN for settings."""
    gappy = [c for c in measured if np.isnan(numbers[c]).any()]
    if not gappy:
        return {}
    keys = []
    for column in settings:
        known = numbers[column][~np.isnan(numbers[column])]
        decimals = decimals_of_levels(known) if known.size else None
        if decimals is not None:
            keys.append(np.round(numbers[column], decimals) + 0.0)
    means: dict[str, FloatArray] = {}
    for column in gappy:
        series = pd.Series(numbers[column])
        if series.isna().all():
            raise DataError(f"no value at all in column '{column}'", where=table.where, hint="leave the column out")
        if column in settings:
            means[column] = np.full(len(series), np.nan)
        else:
            of_all = pd.Series(series.mean(), index=series.index)
            within = series.groupby(keys, dropna=False).transform("mean") if keys else of_all
            means[column] = np.asarray(within.fillna(of_all), dtype=np.float64)
    return means


def _pieces(values: Values, columns: Columns) -> Iterator[UnitRows]:
    """Rows of each unit, lives of one machine apart, in order of appearance."""
    codes, names = pd.factorize(np.asarray(values.ids, dtype=object))
    order = np.argsort(codes, kind="stable")
    stops = np.cumsum(np.bincount(codes))
    for code, machine in enumerate(names):
        rows = order[stops[code - 1] if code else 0 : stops[code]]
        if columns.sort:
            keys = [values.numbers[c][rows] for c in (columns.time, columns.cycle) if c is not None]
            rows = rows[np.lexsort(keys)]
        yield from lives_of(UnitRows(values.table, str(machine), rows), values, columns)


def _other_numbers(table: Table, roles: Sequence[str]) -> tuple[str, ...]:
    """Numeric columns without another role; a mostly numeric one counts, so that a stray text is complained about."""
    table.require(roles)
    found = []
    for column in table.frame.columns:
        series = table.frame[column]
        if column in roles or series.isna().all() or pd.api.types.is_datetime64_any_dtype(series):
            continue
        known = series.dropna()
        if pd.api.types.is_numeric_dtype(series) or pd.to_numeric(known, errors="coerce").notna().mean() > 0.5:
            found.append(str(column))
    return tuple(found)


def _schema(columns: Columns, sensors: tuple[str, ...], *, dated: bool) -> Schema:
    if dated and columns.time_measure not in (None, *SECONDS):
        raise ConfigError(
            f"time_measure = '{columns.time_measure}', but column '{columns.time}' holds dates",
            hint=f"give one of {', '.join(SECONDS)}",
        )
    if columns.task == "rul":
        measure = columns.time_measure or ("hours" if dated else time_measure_of(columns.time) or "steps")
        target, target_measure = columns.target or "rul", columns.target_measure or measure
    else:
        measure = columns.time_measure or ("seconds" if dated else time_measure_of(columns.time) or "seconds")
        target = columns.target or "health"
        target_measure = columns.target_measure or measure_of(target) or target
    return Schema(columns.task, sensors, columns.settings, columns.time, measure, target, target_measure)
