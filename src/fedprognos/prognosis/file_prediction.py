"""Predicting files: rows in, healths out, in pieces, so that neither has to fit into memory."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedprognos.errors import ConfigError
from fedprognos.fleet.table_files import table_paths
from fedprognos.fleet.time_axis import date_of
from fedprognos.prognosis.frames import CHUNK, FileColumns, Inputs, chunks, find_columns
from fedprognos.prognosis.health import Health, Verdict
from fedprognos.prognosis.health_files import Writer, writing
from fedprognos.prognosis.lives import Lives
from fedprognos.prognosis.predictor import Predictor
from fedprognos.prognosis.stream import Stream

Progress = Callable[[float], None]


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
    first_refusal
        Where the first row was that was not taken, and why.
    states, flags
        How many of the written healths had each.
    filled
        Blank cells of each column that something stood in for.
    measure
        Of time, where positions are dates.
    """

    now: list[Health]
    counts: Counter[Verdict]
    rows: int = 0
    written: int = 0
    first_refusal: str = ""
    states: Counter[str] = field(default_factory=Counter)
    flags: Counter[str] = field(default_factory=Counter)
    filled: Counter[str] = field(default_factory=Counter)
    measure: str | None = None
    past: int = 0


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
    progress: Progress | None = None,
    chunk_rows: int = CHUNK,
) -> FilePrediction:
    """Predict the units of CSV or Parquet files.

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
    progress
        Called with the share of the work that is done.
    """
    if not 0.0 < coverage < 1.0:
        raise ConfigError(f"coverage {coverage:g} is not between 0 and 1", hint="0.9 holds nine of ten")
    paths = table_paths(source)
    if out is not None and out.resolve() in [path.resolve() for path in paths]:
        raise ConfigError(f"{out} is among the files to read", hint="write to another file")
    inputs = Inputs.of(predictor)
    columns = [find_columns(path, inputs, unit, time, cycle) for path in paths]
    stream = Stream(predictor, sys.maxsize, coverage=coverage)
    measure = inputs.time_measure if _has_dates(paths[0], columns[0], inputs) else None
    result = FilePrediction([], stream.counts, filled=stream.filled, measure=measure)
    appeared: dict[str, None] = {}
    lives = Lives(inputs.table)
    with writing(out, measure) as write:
        for k, (path, own) in enumerate(zip(paths, columns, strict=True)):
            for chunk in chunks(path, own, inputs, chunk_rows, lives):
                taken = stream.feed_table(chunk.rows, every=every)
                appeared.update(dict.fromkeys(chunk.rows.units))
                result.rows += len(taken)
                if not result.first_refusal:
                    refused = next((i for i, one in enumerate(taken) if one.verdict is not Verdict.ACCEPTED), None)
                    if refused is not None:
                        where = chunk.table.at(refused, chunk.rows.units[refused])
                        result.first_refusal = f"{where}: {taken[refused].reason}"
                if every:
                    _write(write, result, [health for one in taken for health in one.healths])
                if progress is not None:
                    progress((k + chunk.done) / len(paths))
        ended = stream.finish()
        current = [unit for unit in appeared if unit not in lives.past]
        result.now, result.past = [h for h in stream.healths(current) if h is not None], len(appeared) - len(current)
        _write(write, result, ended if every else result.now)
    return result


def _has_dates(path: Path, columns: FileColumns, inputs: Inputs) -> bool:
    """Whether the times of a file are dates."""
    first = next(chunks(path, columns, inputs, 100)).rows.positions[0]
    return not inputs.cyclic and date_of(first, inputs.time_measure) is not None


def _write(write: Writer, result: FilePrediction, healths: Sequence[Health]) -> None:
    write(healths)
    result.written += len(healths)
    result.states.update(health.state for health in healths)
    result.flags.update(flag for health in healths for flag in health.flags)
