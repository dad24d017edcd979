"""One's own fleet: CSV or Parquet files, and which column is what."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fedprognos.errors import ConfigError, DataError, unknown_name
from fedprognos.fleet.table_files import Table, read_file, table_paths
from fedprognos.fleet.table_units import UnitRows, Values, make_unit
from fedprognos.fleet.unit import Fleet, Schema, Task, Unit


@dataclass(frozen=True, kw_only=True)
class TableColumns:
    """Which column is what.

    Parameters
    ----------
    time
        Cycle number of each row (task `rul`), or time within a cycle (task `soh`).
    unit
        Machine; None where every file is one unit, named like the file.
    cycle
        Number of the cycle a row belongs to; task `soh` only.
    sensors
        None means every numeric column that has no other role.
    settings
        Operating conditions.
    site
        Owner or plant. Where it is None and there are several files of units, the file's name is the site.
    target
        Label: RUL of each row, or the health of each cycle (the same in all its rows). None derives RUL
        from the end of each unit's history.
    failed
        Whether the unit's history ends in failure (in every row or in the last one); None means all do.
    task
        `rul` or `soh`.

    Examples
    --------
    >>> TableColumns(unit="machine", time="hour", sensors=["vibration"]).task
    'rul'
    """

    time: str
    unit: str | None = None
    cycle: str | None = None
    sensors: Sequence[str] | None = None
    settings: Sequence[str] = ()
    site: str | None = None
    target: str | None = None
    failed: str | None = None
    task: Task = "rul"

    def __post_init__(self) -> None:
        if self.task not in ("rul", "soh"):
            raise unknown_name("task", self.task, ("rul", "soh"))
        if self.task == "soh" and self.cycle is None:
            raise ConfigError("task 'soh' needs the column of the cycle number", hint="set cycle = '...'")
        if self.task == "rul" and self.cycle is not None:
            raise ConfigError(
                "task 'rul' takes no 'cycle' column", hint="for RUL the cycle number is the time: time = '...'"
            )
        used = [*self.roles, *(self.sensors or ())]
        twice = sorted({c for c in used if used.count(c) > 1})
        if twice:
            raise ConfigError(f"column '{twice[0]}' is given two roles", hint="a column can have one role only")

    @property
    def roles(self) -> tuple[str, ...]:
        """Every column named except the sensors."""
        single = (self.unit, self.time, self.cycle, self.site, self.target, self.failed)
        return (*(c for c in single if c is not None), *self.settings)


def read_table(
    source: str | Path | Sequence[str | Path],
    columns: TableColumns,
    *,
    name: str = "table",
    require_labels: bool = True,
) -> Fleet:
    """A fleet from CSV (also `.csv.gz`) or Parquet files.

    Parameters
    ----------
    source
        A file, several, a folder, or a pattern such as `plants/*.csv`.
    columns
        Which column is what.
    require_labels
        Refuse data nothing can be learnt from; False reads a fleet to be predicted.

    Raises
    ------
    DataError
        For the first thing wrong, naming file, line, column and unit.
    """
    text = [c for c in (columns.unit, columns.site) if c is not None]
    tables = [read_file(path, text) for path in table_paths(source)]
    sensors = tuple(columns.sensors) if columns.sensors is not None else _other_numbers(tables[0], columns.roles)
    if not sensors:
        raise DataError("no sensor columns", where=str(tables[0].path), hint="name at least one sensor")
    units: list[Unit] = []
    homes: dict[str, Path] = {}
    for table in tables:
        table.require([*columns.roles, *sensors])
        for unit in _units(table, columns, sensors, several=len(tables) > 1):
            if unit.id in homes:
                raise DataError(
                    f"unit '{unit.id}' is in two files: {homes[unit.id].name} and {table.path.name}",
                    where=str(table.path),
                    hint="a unit belongs to one site and one file; make the ids unique, such as plantA-7",
                )
            homes[unit.id] = table.path
            units.append(unit)
    where = str(tables[0].path if len(tables) == 1 else tables[0].path.parent)
    if require_labels and all(unit.labels() is None for unit in units):
        if columns.task == "soh":
            raise DataError("no label to learn from", where=where, hint="name the health column: target = '...'")
        raise DataError(
            f"no label to learn from: no unit failed (column '{columns.failed}')",
            where=where,
            hint="RUL is known only of units that ran to failure; name a target column or add failed units",
        )
    return Fleet(name, _schema(columns, sensors), tuple(units), where)


def _units(table: Table, columns: TableColumns, sensors: Sequence[str], several: bool) -> Iterable[Unit]:
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


def _numeric(columns: TableColumns, sensors: Sequence[str]) -> list[str]:
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


def _schema(columns: TableColumns, sensors: tuple[str, ...]) -> Schema:
    if columns.task == "rul":
        return Schema("rul", sensors, tuple(columns.settings), columns.time, "cycles", columns.target or "rul")
    target = columns.target or "health"
    return Schema(
        "soh", sensors, tuple(columns.settings), columns.time, _unit_in(columns.time) or "s", target, _unit_in(target)
    )


def _unit_in(column: str) -> str:
    """Unit of measurement from a name such as `capacity_in_Ah`; empty where the name has none."""
    match = re.search(r"_in_(\w+)$", column)
    return match[1] if match else ""
