"""Predicting files and data frames: rows in, healths out, in pieces, so that neither has to fit into memory.

Rows are read by :class:`fedprognos.tables.rows.RowReader`, as those that a model learns from are.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fedprognos.errors import ConfigError, DataError
from fedprognos.prognosis.explanation import Explanation, by_unit, explain
from fedprognos.prognosis.health import STATES, Health, HealthTable, RowTable, Update, Verdict
from fedprognos.prognosis.health_files import Writer, dates, writing
from fedprognos.prognosis.health_model import HealthModel
from fedprognos.prognosis.stream import BLOCK, Stream
from fedprognos.tables import (
    ALL_SHEETS,
    PIECE,
    Columns,
    Policy,
    RowReader,
    Rows,
    Table,
    TableLayout,
    join_rows,
    open_tables,
    pick,
    sheet_names,
    table_from_frame,
    table_paths,
    unit_files,
)

if TYPE_CHECKING:
    from fedprognos.prognosis.predictor import Predictor

WHOLE_FILE = "-"
"""In place of a unit column: every file is one unit, named like the file."""
Progress = Callable[[float], None]


@dataclass(frozen=True)
class ModelInputs:
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

    @staticmethod
    def from_model(model: HealthModel) -> ModelInputs:
        """What a model wants."""
        recipe = model.recipe
        return ModelInputs(
            recipe.sensors, recipe.settings, recipe.cycle is not None, recipe.time_measure, model.policies, model.table
        )

    def open(self, source: str | Path | Sequence[str | Path]) -> list[Table]:
        """Tables of files, written as those of training were."""
        texts = () if self.table is None else self.table.text
        return [table for path in table_paths(source) for table in open_tables(path, self._format(path), texts)]

    def _format(self, path: Path) -> TableLayout | None:
        """What is known of files, without the name of a sheet that this one does not have."""
        layout = self.table
        named = layout is not None and layout.sheet not in (None, ALL_SHEETS) and path.suffix.lower() == ".xlsx"
        if layout is None or not named or layout.sheet in sheet_names(path):
            return layout
        return layout.model_copy(update={"sheet": None})

    def columns(
        self, table: Table, unit: str | None = None, time: str | None = None, cycle: str | None = None
    ) -> Columns:
        """Columns of a table: as given, else as they were in training, else guessed from the names of those left.

        Raises
        ------
        DataError
            Where a column is missing or cannot be guessed, listing what there is.
        """
        layout = self.table
        life = clock = failed = site = new_life = time_format = None
        if layout is not None:
            unit = unit or (WHOLE_FILE if layout.unit is None else _there(table, layout.unit))
            time, life, cycle = (
                time or _there(table, layout.time),
                _there(table, layout.life),
                cycle or _there(table, layout.cycle),
            )
            if unit == layout.unit:
                site = _there(table, layout.site)
            if time == layout.time:
                clock, time_format = _there(table, layout.clock), layout.time_format
            new_life, failed = layout.new_life, _there(table, layout.failed) if layout.new_life == "failed" else None
        named = [c for c in (unit, time, cycle) if c is not None and c != WHOLE_FILE]
        table.require([*self.sensors, *self.settings, *named])
        if not self.cyclic and cycle is not None:
            raise ConfigError("this model takes no cycle column", hint="the cycle number is the time: --time COLUMN")
        taken = {*self.sensors, *self.settings, *named, life, clock, site}
        if self.cyclic:
            cycle = cycle or _guess(table, taken, "cycle", ("cycle",))
            taken.add(cycle)
        time = time or _guess(table, taken, "time", ("time",) if self.cyclic else ("cycle", "time"))
        taken.add(time)
        if unit is None:
            unit = _guess(table, taken, "unit", ("unit",)) if set(table.names) - taken else WHOLE_FILE
        has_lives = unit != WHOLE_FILE and (new_life != "failed" or failed is not None)
        return Columns(
            task="soh" if self.cyclic else "rul",
            unit=None if unit == WHOLE_FILE else unit,
            time=time,
            time_format=time_format,
            clock=clock,
            sort=layout is not None and layout.sort,
            life=life,
            new_life=new_life if has_lives else None,
            cycle=cycle,
            sensors=self.sensors,
            settings=self.settings,
            missing=dict(zip((*self.sensors, *self.settings), self.policies, strict=True)),
            site=site,
            failed=failed,
        )

    def reader(
        self, tables: Sequence[Table], unit: str | None = None, time: str | None = None, cycle: str | None = None
    ) -> RowReader:
        """A reader of tables with the columns of the first."""
        return RowReader(self.columns(tables[0], unit, time, cycle), self.sensors, self.time_measure, own_clock=True)


def _there(table: Table, column: str | None) -> str | None:
    """A column of the training table, where this one has it too."""
    return column if column in table.names else None


def _guess(table: Table, taken: set[str | None], role: str, kinds: Sequence[str]) -> str:
    free = [name for name in table.names if name not in taken]
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


def read_pieces(reader: RowReader, tables: Sequence[Table], rows: int = PIECE) -> Iterator[tuple[Rows, float]]:
    """Rows of all tables, at most so many at a time, each with the share of the work that is done with them."""
    for k, (table, name) in enumerate(zip(tables, unit_files(tables), strict=True)):
        for piece in reader.read(table, name, rows):
            yield piece, (k + piece.share) / len(tables)


def row_table(rows: Rows) -> RowTable:
    """Rows as a stream takes them."""
    cycles = [None] * len(rows) if rows.cycles is None else rows.cycles.tolist()
    ends = [False] * len(rows)
    return RowTable(rows.units, rows.times.tolist(), cycles, ends, rows.sensors, rows.settings)


# --- files ------------------------------------------------------------------------------------


@dataclass
class FilePrediction:
    """What came of some files.

    Parameters
    ----------
    now
        The latest health of each unit, in the order the units appeared; of a repaired machine that of its latest life.
    past
        Earlier lives of repaired machines.
    counts
        What happened to the rows.
    repeated
        Rows that were read once though their file holds them twice.
    first_refusal
        Where the first row was that was not taken, and why.
    states, flags
        How many of the written healths had each.
    filled
        Blank cells of each column that something stood in for.
    measure
        Of time, where positions are dates.
    why
        Why units have the health they have, where that was asked for.
    """

    now: list[Health]
    counts: Counter[Verdict]
    rows: int = 0
    repeated: int = 0
    written: int = 0
    first_refusal: str = ""
    states: Counter[str] = field(default_factory=Counter)
    flags: Counter[str] = field(default_factory=Counter)
    filled: Counter[str] = field(default_factory=Counter)
    measure: str | None = None
    past: int = 0
    why: dict[str, Explanation] = field(default_factory=dict)


def predict_files(
    predictor: Predictor,
    source: str | Path | Sequence[str | Path],
    out: Path | None = None,
    *,
    every: bool = False,
    coverage: float = 0.9,
    unit: str | None = None,
    time: str | None = None,
    cycle: str | None = None,
    why: bool = False,
    progress: Progress | None = None,
    chunk_rows: int = BLOCK,
) -> FilePrediction:
    """Predict the units of CSV, Excel or Parquet files.

    Parameters
    ----------
    source
        A file, several, a folder or a pattern; a unit may go on in the next file.
    out
        File to write: .csv, .csv.gz or .parquet. It appears when all is done, or not at all.
    every
        Health at every row or cycle; otherwise each unit's latest.
    unit, time, cycle
        Columns; where not given those of the training table, else guessed from their names.
    why
        Explain each unit's latest health; all rows are then kept in memory.
    progress
        Called with the share of the work that is done.
    """
    if why and every:
        raise ConfigError("only the latest health of a unit is explained", hint="leave out --all or --why")
    if not 0.0 < coverage < 1.0:
        raise ConfigError(f"coverage {coverage:g} is not between 0 and 1", hint="0.9 holds nine of ten")
    paths = table_paths(source)
    if out is not None and out.resolve() in [path.resolve() for path in paths]:
        raise ConfigError(f"{out} is among the files to read", hint="write to another file")
    inputs = ModelInputs.from_model(predictor)
    tables = inputs.open(source)
    reader = inputs.reader(tables, unit, time, cycle)
    stream = Stream(predictor, sys.maxsize, coverage=coverage)
    pieces = _gathered(read_pieces(reader, tables, min(chunk_rows, PIECE)), chunk_rows)
    first = next(pieces)
    measure = inputs.time_measure if first[0].dates is not None and first[0].cycles is None else None
    result = FilePrediction([], stream.counts, filled=stream.filled, measure=measure)
    appeared: dict[str, None] = {}
    kept: list[RowTable] = []
    with writing(out, measure, result.why if why else None, predictor.recipe.ahead) as write:
        for rows, share in itertools.chain([first], pieces):
            table = row_table(rows)
            if why:
                updates = stream.feed_table(table, every=False)
                kept.append(table.accepted(updates))
                refused = next(((k, u.reason) for k, u in enumerate(updates) if not u.accepted), None)
            else:
                healths, refused = stream.feed_columns(table, every=every)
                if every:
                    _write(write, result, healths)
            appeared.update(dict.fromkeys(rows.units))
            result.rows += len(rows)
            result.repeated += rows.repeated
            if refused is not None and not result.first_refusal:
                result.first_refusal = f"{rows.at(refused[0])}: {refused[1]}"
            if progress is not None:
                progress(share)
        ended = stream.finish()
        current = [unit for unit in appeared if unit not in reader.lives.past]
        result.now, result.past = [h for h in stream.healths(current) if h is not None], len(appeared) - len(current)
        rows_of_units = by_unit(kept)
        explained = [health.unit for health in result.now if why and health.value is not None]
        result.why.update({name: explain(predictor, rows_of_units[name]) for name in explained})
        _write(write, result, HealthTable.from_healths(ended if every else result.now))
    return result


def _gathered(pieces: Iterator[tuple[Rows, float]], most: int) -> Iterator[tuple[Rows, float]]:
    """Pieces of the same table put together, up to so many rows and a piece."""
    waiting, before = list[Rows](), 0.0
    for rows, share in pieces:
        if waiting and (rows.table is not waiting[0].table or sum(map(len, waiting)) >= most):
            yield join_rows(waiting), before
            waiting = []
        waiting.append(rows)
        before = share
    yield join_rows(waiting), 1.0


def _write(write: Writer, result: FilePrediction, healths: HealthTable) -> None:
    write(healths)
    result.written += len(healths)
    for state, count in zip(STATES, np.bincount(healths.state, minlength=len(STATES)).tolist(), strict=True):
        if count:
            result.states[state] += count
    for flags, count in zip(healths.combinations, np.bincount(healths.flags, minlength=1).tolist(), strict=False):
        for flag in flags:
            result.flags[flag] += count


# --- data frames ------------------------------------------------------------------------------


def predict_frame(
    predictor: Predictor,
    frame: pd.DataFrame,
    *,
    unit: str | None = None,
    time: str | None = None,
    cycle: str | None = None,
    last: bool = True,
    coverage: float = 0.9,
) -> pd.DataFrame:
    """Health of each unit of a frame, at its last row or at every row where there is something to say.

    Parameters
    ----------
    unit, time, cycle
        Columns; where not given those of the training table, else guessed from their names.

    Returns
    -------
    DataFrame
        A line a health: unit, position, value, low, high, state, reason, flags, and where times are dates `at` and
        `until`. Of a machine that was repaired the last row is that of its latest life.
    """
    stream = Stream(predictor, sys.maxsize, coverage=coverage)
    units: dict[str, list[Health]] = {}
    dated = False
    reader, pieces = _frame_pieces(stream, frame, unit, time, cycle)
    for rows, updates in _fed(stream, reader, pieces, every=not last):
        dated |= rows.dates is not None and rows.cycles is None
        for name, update in zip(rows.units, updates, strict=True):
            units.setdefault(name, []).extend(h for h in update.healths if h.state != "warming-up")
    ended = stream.finish()
    if last:
        healths = stream.healths([name for name in units if name not in reader.lives.past])
    else:
        for health in ended:
            units[health.unit].append(health)
        healths = [health for name, past in units.items() for health in past or stream.healths([name])]
    present = [health for health in healths if health is not None]
    result = pd.DataFrame([asdict(health) for health in present])
    recipe = predictor.recipe
    if dated and present:
        result[["at", "until"]] = [dates(health, recipe.time_measure, recipe.ahead) for health in present]
    return result.assign(flags=[" ".join(health.flags) for health in present])


def row_healths(predictor: Predictor, frame: pd.DataFrame, *, unit: str, time: str) -> list[float]:
    """Health at every row of a frame, in its order; not a number where the model has seen too little of a unit."""
    stream = Stream(predictor, sys.maxsize)
    values = np.full(len(frame), np.nan)
    reader, pieces = _frame_pieces(stream, frame, unit, time, None)
    for rows, updates in _fed(stream, reader, pieces, every=True):
        for place, update in zip(rows.places, updates, strict=True):
            row_values = [health.value for health in update.healths if health.value is not None]
            values[place] = row_values[-1] if row_values else np.nan
    return values.tolist()


def _frame_pieces(
    stream: Stream, frame: pd.DataFrame, unit: str | None, time: str | None, cycle: str | None
) -> tuple[RowReader, Iterator[tuple[Rows, float]]]:
    if not isinstance(frame, pd.DataFrame):
        raise DataError(f"a {type(frame).__name__} is neither a fleet nor a data frame", hint="give a pandas.DataFrame")
    inputs = ModelInputs.from_model(stream.model)
    table = table_from_frame(frame, "frame", inputs.table)
    reader = inputs.reader([table], unit, time, cycle)
    return reader, read_pieces(reader, [table])


def _fed(
    stream: Stream, reader: RowReader, pieces: Iterator[tuple[Rows, float]], *, every: bool
) -> Iterator[tuple[Rows, list[Update]]]:
    """Pieces of a frame and what became of their rows; one that cannot be taken is an error that names it."""
    for rows, _ in pieces:
        updates = stream.feed_table(row_table(rows), every=every)
        refused = next((k for k, update in enumerate(updates) if not update.accepted), None)
        if refused is not None:
            hint = f"sort the rows of each unit by {reader.columns.time} and keep one row for each value"
            raise DataError(updates[refused].reason, where=rows.at(refused), hint=hint)
        yield rows, updates
