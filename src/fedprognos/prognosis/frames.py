"""Tables of rows to predict, read piece by piece: files may be larger than memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from fedprognos.arrays import FloatArray
from fedprognos.errors import ConfigError, DataError
from fedprognos.fleet.missing import Policy
from fedprognos.fleet.roles import pick
from fedprognos.fleet.table_files import Table
from fedprognos.fleet.table_layout import TableLayout
from fedprognos.fleet.time_axis import SECONDS, seconds_since_1970, time_format, with_clock
from fedprognos.prognosis.file_pieces import header_of, pieces_of
from fedprognos.prognosis.health import RowTable
from fedprognos.prognosis.health_model import HealthModel
from fedprognos.prognosis.lives import Lives

CHUNK = 20_000
WHOLE_FILE = "-"
"""In place of a unit column: every file is one unit, named like the file."""


@dataclass(frozen=True)
class Inputs:
    """What a model wants of a row, and what it remembers of the tables it was trained on.

    Parameters
    ----------
    policies : (sensors + settings,)
        What stands in for blank cells.
    """

    sensors: tuple[str, ...]
    settings: tuple[str, ...]
    cyclic: bool
    time_measure: str
    policies: tuple[Policy, ...]
    table: TableLayout | None = None

    @property
    def sorts(self) -> bool:
        """Whether rows are put in the order of time, which needs all of them at once."""
        return self.table is not None and self.table.sort

    @staticmethod
    def of(model: HealthModel) -> Inputs:
        """What a model wants."""
        recipe = model.recipe
        return Inputs(
            recipe.sensors, recipe.settings, recipe.cycle is not None, recipe.time_measure, model.policies, model.table
        )


@dataclass(frozen=True)
class FileColumns:
    """Which column is what; `unit` is :data:`WHOLE_FILE` where every file is one unit."""

    unit: str
    time: str
    cycle: str | None
    life: str | None = None
    clock: str | None = None
    failed: str | None = None

    @property
    def named(self) -> list[str]:
        """Those that are columns."""
        all_ = (self.unit, self.time, self.cycle, self.life, self.clock, self.failed)
        return [c for c in all_ if c is not None and c != WHOLE_FILE]


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows of a file, where they stand in it, and the share of the file that is read."""

    rows: RowTable
    table: Table
    done: float


def find_columns(
    path: Path, inputs: Inputs, unit: str | None = None, time: str | None = None, cycle: str | None = None
) -> FileColumns:
    """Columns of a file: as given, else as they were in training, else guessed from the names of those left.

    Raises
    ------
    DataError
        Where a column is missing or cannot be guessed, listing what there is.
    """
    return choose_columns(
        Table(path, pd.DataFrame(columns=pd.Index(header_of(path, inputs.table)))), inputs, unit, time, cycle
    )


def choose_columns(
    table: Table, inputs: Inputs, unit: str | None = None, time: str | None = None, cycle: str | None = None
) -> FileColumns:
    """Columns of a table, as :func:`find_columns` finds those of a file."""
    known, header = inputs.table, [str(c) for c in table.frame.columns]
    life = clock = failed = None
    if known is not None:
        unit = unit or (WHOLE_FILE if known.unit is None else _there(known.unit, header))
        time, life = time or _there(known.time, header), _there(known.life, header)
        cycle = cycle or _there(known.cycle, header)
        clock = _there(known.clock, header) if time == known.time else None
        failed = _there(known.failed, header) if known.new_life == "failed" else None
    table.require(
        [*inputs.sensors, *inputs.settings, *(c for c in (unit, time, cycle) if c is not None and c != WHOLE_FILE)]
    )
    free = [c for c in header if c not in (*inputs.sensors, *inputs.settings, unit, time, cycle, life, clock)]
    if not inputs.cyclic:
        if cycle is not None:
            raise ConfigError("this model takes no cycle column", hint="the cycle number is the time: --time COLUMN")
    else:
        cycle = cycle or _guess(table, free, "cycle", ("cycle",))
        free = [c for c in free if c != cycle]
    time = time or _guess(table, free, "time", ("time",) if inputs.cyclic else ("cycle", "time"))
    free = [c for c in free if c != time]
    if unit is None:
        unit = _guess(table, free, "unit", ("unit",)) if free else WHOLE_FILE
    return FileColumns(unit, time, cycle, life, clock, failed)


def _there(column: str | None, header: Sequence[str]) -> str | None:
    """A column of the training table, where this one has it too."""
    return column if column in header else None


def _guess(table: Table, free: Sequence[str], role: str, kinds: Sequence[str]) -> str:
    for kind in kinds:
        if (column := pick(free, kind, lambda _: True, named=True)) is not None:
            return column
    file = table.path is not None
    more = f"; --unit {WHOLE_FILE} where every file is one unit" if role == "unit" and file else ""
    option = f"--{role} COLUMN" if file else f'{role}="..."'
    raise DataError(
        f"cannot tell which column is the {role}",
        where=table.where,
        hint=f"give {option}, one of: {', '.join(free) or 'none left'}{more}",
    )


def chunks(
    path: Path, columns: FileColumns, inputs: Inputs, rows: int = CHUNK, lives: Lives | None = None
) -> Iterator[Chunk]:
    """Rows of a file, `rows` at a time; every complaint names file, line and column.

    Parameters
    ----------
    lives
        Where machines have got to in the files before.
    """
    lives = lives or Lives(inputs.table)
    wanted = list(dict.fromkeys([*columns.named, *inputs.sensors, *inputs.settings]))
    texts = [c for c in (columns.unit, columns.life) if c is not None]
    empty = True
    at_once = sys.maxsize if inputs.sorts else rows
    for piece, done in pieces_of(path, wanted, texts, at_once, inputs.table):
        if piece.frame.empty:
            continue
        empty = False
        found, table = rows_of(piece, columns, inputs, lives)
        for k in range(0, len(found), rows):
            part = slice(k, k + rows)
            share = min(k + rows, len(found)) / len(found)
            yield Chunk(found.part(part), replace(table, frame=table.frame.iloc[part]), done * share)
    if empty:
        raise DataError("no rows", where=str(path), hint="the file holds a header and nothing else")


def rows_of(table: Table, columns: FileColumns, inputs: Inputs, lives: Lives) -> tuple[RowTable, Table]:
    """Rows of a table, and the table in their order: sorted where the training table was."""
    table = with_clock(table, columns.time, columns.clock)
    measured, width = (*inputs.sensors, *inputs.settings), len(inputs.sensors)
    units = [table.stem] * len(table.frame) if columns.unit == WHOLE_FILE else table.names(columns.unit)
    values = np.column_stack(
        [
            table.numbers(name, units, gaps=policy != "refuse")
            for name, policy in zip(measured, inputs.policies, strict=True)
        ]
    )
    cycles: list[int | None] = [None] * len(units)
    if columns.cycle is not None:
        cycles = _cycles(table, table.numbers(columns.cycle, units), units, columns.cycle)
    times, dated = _times(table, columns.time, units, inputs)
    if inputs.sorts:
        order = np.lexsort((times, np.asarray([c or 0 for c in cycles])))
        table, units, times = replace(table, frame=table.frame.iloc[order]), [units[k] for k in order], times[order]
        values, cycles = values[order], [cycles[k] for k in order]
    labels = None if columns.life is None else table.names(columns.life)
    flags = None if columns.failed is None else table.flags(columns.failed)
    units, times = lives.of(units, times, labels, flags, dated=dated)
    ends = [False] * len(units)
    return RowTable(units, times.tolist(), cycles, ends, values[:, :width], values[:, width:]), table


def _times(table: Table, column: str, units: list[str], inputs: Inputs) -> tuple[FloatArray, bool]:
    """Numbers as they stand; dates as time since 1970, in the measure the model was trained with; and which it was."""
    form = None if inputs.table is None else inputs.table.time_format
    form = form or time_format(table.frame[column])
    if form == "number" or inputs.time_measure not in SECONDS or inputs.cyclic:
        return table.numbers(column, units), False
    return seconds_since_1970(table, column, form, units) / SECONDS[inputs.time_measure], True


def _cycles(table: Table, numbers: FloatArray, units: list[str], column: str) -> list[int | None]:
    broken = np.flatnonzero((numbers != np.round(numbers)) | (np.abs(numbers) >= 2**53))
    if broken.size:
        k = int(broken[0])
        raise DataError(f"cycle number {numbers[k]:g} in column '{column}' is not whole", where=table.at(k, units[k]))
    return [int(n) for n in numbers]
