"""Tables turned into a fleet: frames of one's own or files that were read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fedprognos.errors import DataError
from fedprognos.fleet.columns import Columns
from fedprognos.fleet.table_files import Table
from fedprognos.fleet.table_units import UnitRows, Values, make_unit
from fedprognos.fleet.unit import Fleet, Schema, Unit


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
    units: list[Unit] = []
    homes: dict[str, Table] = {}
    for table in tables:
        table.require([*columns.roles, *sensors])
        for unit in _units(table, columns, sensors, several=len(tables) > 1):
            if unit.id in homes:
                raise DataError(
                    f"unit '{unit.id}' is in two files: {Path(homes[unit.id].where).name} and {Path(table.where).name}",
                    where=table.where,
                    hint="a unit belongs to one site and one file; make the ids unique, such as plantA-7",
                )
            homes[unit.id] = table
            units.append(unit)
    where = tables[0].where if len(tables) == 1 else str(Path(tables[0].where).parent)
    if require_labels and all(unit.labels() is None for unit in units):
        if columns.task == "soh":
            raise DataError("no label to learn from", where=where, hint="name the health column: target = '...'")
        raise DataError(
            f"no label to learn from: no unit failed (column '{columns.failed}')",
            where=where,
            hint="RUL is known only of units that ran to failure; name a target column or add failed units",
        )
    return Fleet(name, _schema(columns, sensors), tuple(units), where)


def _units(table: Table, columns: Columns, sensors: Sequence[str], several: bool) -> Iterable[Unit]:
    ids = [table.stem] * len(table.frame) if columns.unit is None else table.names(columns.unit)
    numbers = {c: table.numbers(c, ids) for c in _numeric(columns, sensors)}
    sites: Sequence[str] | str | None = None
    if columns.site is not None:
        sites = table.names(columns.site)
    elif several and columns.unit is not None:
        sites = table.stem
    values = Values(
        table=table,
        numbers=numbers,
        sites=sites,
        failed=None if columns.failed is None else table.flags(columns.failed),
    )
    codes, names = pd.factorize(np.asarray(ids, dtype=object))
    order = np.argsort(codes, kind="stable")
    stops = np.cumsum(np.bincount(codes))
    for code, unit_id in enumerate(names):
        rows = order[stops[code - 1] if code else 0 : stops[code]]
        yield make_unit(UnitRows(table, str(unit_id), rows), values, columns, sensors)


def _numeric(columns: Columns, sensors: Sequence[str]) -> list[str]:
    return [c for c in (columns.time, columns.cycle, columns.target, *columns.settings, *sensors) if c is not None]


def _other_numbers(table: Table, roles: Sequence[str]) -> tuple[str, ...]:
    """Numeric columns without another role; a mostly numeric one counts, so that a stray text is complained about."""
    table.require(roles)
    found = []
    for column in table.frame.columns:
        if column in roles:
            continue
        series = table.frame[column]
        if pd.api.types.is_numeric_dtype(series) or pd.to_numeric(series, errors="coerce").notna().mean() > 0.5:
            found.append(str(column))
    return tuple(found)


def _schema(columns: Columns, sensors: tuple[str, ...]) -> Schema:
    if columns.task == "rul":
        return Schema("rul", sensors, columns.settings, columns.time, "cycles", columns.target or "rul")
    target = columns.target or "health"
    return Schema(
        "soh", sensors, columns.settings, columns.time, _measure_in(columns.time) or "s", target, _measure_in(target)
    )


def _measure_in(column: str) -> str:
    """Measure from a name such as `capacity_in_Ah`; empty where the name has none."""
    match = re.search(r"_in_(\w+)$", column)
    return match[1] if match else ""
