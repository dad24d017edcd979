"""Predicting data frames: rows in, a line of health for each unit out."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import pandas as pd

from fedprognos.errors import DataError
from fedprognos.fleet.table_files import Table
from fedprognos.fleet.time_axis import date_of
from fedprognos.prognosis.frames import Inputs, choose_columns, rows_of
from fedprognos.prognosis.health import Health, RowTable, Update, Verdict
from fedprognos.prognosis.health_files import dates
from fedprognos.prognosis.lives import Lives
from fedprognos.prognosis.stream import Stream

if TYPE_CHECKING:
    from fedprognos.prognosis.predictor import Predictor


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
    stream, lives = Stream(predictor, sys.maxsize, coverage=coverage), Lives(predictor.table)
    rows, taken = _taken(stream, frame, lives, unit, time, cycle, every=not last)
    ended = stream.finish()
    if last:
        found = stream.healths([name for name in dict.fromkeys(rows.units) if name not in lives.past])
    else:
        every: dict[str, list[Health]] = {name: [] for name in rows.units}
        for health in (*(health for one in taken for health in one.healths if health.state != "warming-up"), *ended):
            every[health.unit].append(health)
        found = [health for name, own in every.items() for health in own or stream.healths([name])]
    told = [health for health in found if health is not None]
    result = pd.DataFrame([asdict(health) for health in told])
    measure = predictor.recipe.time_measure
    if predictor.recipe.cycle is None and told and date_of(told[0].position, measure) is not None:
        result[["at", "until"]] = [dates(health, measure) for health in told]
    return result.assign(flags=[" ".join(health.flags) for health in told])


def row_healths(predictor: Predictor, frame: pd.DataFrame, *, unit: str, time: str) -> list[float]:
    """Health at every row of a frame, in its order; not a number where the model has seen too little of a unit."""
    stream = Stream(predictor, sys.maxsize)
    _, taken = _taken(stream, frame, Lives(predictor.table), unit, time, None, every=True)
    known = [[health.value for health in one.healths if health.value is not None] for one in taken]
    return [values[-1] if values else float("nan") for values in known]


def _taken(
    stream: Stream,
    frame: pd.DataFrame,
    lives: Lives,
    unit: str | None,
    time: str | None,
    cycle: str | None,
    *,
    every: bool,
) -> tuple[RowTable, list[Update]]:
    """Rows of a frame and what became of each; one that cannot be taken is an error that names it."""
    if not isinstance(frame, pd.DataFrame):
        raise DataError(f"a {type(frame).__name__} is neither a fleet nor a data frame", hint="give a pandas.DataFrame")
    table = Table(None, frame.reset_index(drop=True), "frame")
    inputs = Inputs.of(stream.model)
    columns = choose_columns(table, inputs, unit, time, cycle)
    if frame.empty:
        raise DataError("no rows", where=table.where, hint="there is nothing to predict")
    rows, table = rows_of(table, columns, inputs, lives)
    taken = stream.feed_table(rows, every=every)
    refused = next((k for k, one in enumerate(taken) if one.verdict is not Verdict.ACCEPTED), None)
    if refused is not None:
        hint = f"sort the rows of each unit by {columns.time} and keep one row for each value"
        raise DataError(taken[refused].reason, where=table.at(refused, rows.units[refused]), hint=hint)
    return rows, taken
