"""Healths written to CSV or Parquet, a piece at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import duckdb
import numpy as np
import pandas as pd

from fedprognos.arrays import IntArray
from fedprognos.errors import ConfigError
from fedprognos.files import replacing, spreadsheet_safe
from fedprognos.prognosis.explanation import Explanation
from fedprognos.prognosis.health import AT_CAP, STATES, Health, HealthTable
from fedprognos.prognosis.sensor_faults import DISTRUSTED
from fedprognos.tables import date_of, literal

COLUMNS = ("unit", "position", "value", "low", "high", "state", "reason", "flags")
DATES = ("date", "end_date")
"""Where time is a date: of the row, and when the remaining life is over."""
WHY = "why"
"""Where healths are explained: the sensors that changed it most."""
NUMBERS = ("position", "value", "low", "high")
TEXTS = ("reason", "flags")
"""Columns that may be empty."""
SUFFIXES = (".csv", ".csv.gz", ".parquet")


class Writer(Protocol):
    """Takes healths as they are made."""

    def __call__(self, healths: HealthTable) -> None: ...


@contextmanager
def writing(
    path: Path | None,
    measure: str | None = None,
    why: Mapping[str, Explanation] | None = None,
    ahead: float | None = None,
) -> Iterator[Writer]:
    """A writer to a file that appears whole or not at all; to nowhere without a path.

    Parameters
    ----------
    measure
        Of time, where positions are dates.
    why
        Explanations by unit, to be there when healths are written; None for no such column.
    ahead
        How much later than its row a forecast is for.
    """
    if path is None:
        yield lambda healths: None
        return
    check_output(path)
    safe = path.suffix.lower() != ".parquet"
    columns = (*COLUMNS, *(() if measure is None else DATES), *(() if why is None else (WHY,)))

    with replacing(path) as temporary:
        store = temporary.with_suffix(".duckdb")  # healths are gathered here, so that they need not fit into memory
        with duckdb.connect(str(store)) as database:
            kinds = ["DOUBLE" if name in NUMBERS else "VARCHAR" for name in columns]
            typed = ", ".join(f'"{name}" {kind}' for name, kind in zip(columns, kinds, strict=True))
            database.execute(f"CREATE TABLE healths ({typed})")

            def write(healths: HealthTable) -> None:
                if len(healths):
                    database.register("frame", _frame(healths, measure, why, ahead, safe=safe))
                    database.execute("INSERT INTO healths SELECT * FROM frame")
                    database.unregister("frame")

            yield write
            chosen = ", ".join(f"nullif({c}, '') AS {c}" if c in TEXTS and safe else c for c in columns)
            packed = ", COMPRESSION gzip" if path.name.lower().endswith(".gz") else ""
            form = f"FORMAT csv, HEADER{packed}" if safe else "FORMAT parquet"
            query = f"SELECT {chosen} FROM healths"  # noqa: S608 - names of our own columns
            database.execute(f"COPY ({query}) TO {literal(str(temporary))} ({form})")
        store.unlink()


def _frame(
    healths: HealthTable,
    measure: str | None,
    why: Mapping[str, Explanation] | None,
    ahead: float | None,
    *,
    safe: bool,
) -> pd.DataFrame:
    """The columns of a file; with `safe`, no text is taken for a formula by a spreadsheet."""
    kept = spreadsheet_safe if safe else str
    reasons = np.full(len(healths), "", dtype=object)
    for k, reason in healths.reasons.items():
        reasons[k] = kept(reason)
    frame = pd.DataFrame(
        {
            "unit": _texts(healths.unit, [kept(name) for name in healths.names]),
            **{name: getattr(healths, name) for name in NUMBERS},
            "state": _texts(healths.state, STATES),
            "reason": reasons,
            "flags": _texts(healths.flags, [" ".join(flags) for flags in healths.combinations]),
        }
    )
    if measure is not None:
        endless = [bool({AT_CAP, *DISTRUSTED}.intersection(flags)) for flags in healths.combinations]
        later = healths.value if ahead is None else np.where(np.isnan(healths.value), np.nan, ahead)
        ends = healths.position + np.where(np.array([*endless, False])[healths.flags], np.nan, later)
        for name, moments in zip(DATES, (healths.position, ends), strict=True):
            frame[name] = [None if math.isnan(moment) else date_of(moment, measure) for moment in moments.tolist()]
    if why is not None:
        explained = [kept(why[name].words) if name in why else None for name in healths.names]
        frame[WHY] = np.array([*explained, None], dtype=object)[healths.unit]
    return frame


def _texts(numbers: IntArray, texts: Sequence[str]) -> pd.Categorical:
    """A column of texts, each given by its number."""
    distinct = {text: k for k, text in enumerate(dict.fromkeys(texts))}
    codes = np.array([*(distinct[text] for text in texts), 0])[numbers]
    column: pd.Categorical = pd.Categorical.from_codes(codes, pd.Index(list(distinct), dtype=object))
    return column


def check_output(path: Path) -> None:
    """Refuse a file whose name does not say what it is to hold."""
    if not path.name.lower().endswith(SUFFIXES):
        raise ConfigError(f"cannot write '{path.name}'", hint=f"give a name that ends in {', '.join(SUFFIXES)}")


def dates(health: Health, measure: str, ahead: float | None = None) -> tuple[str | None, str | None]:
    """When a health was, and when the remaining life that it says is over; None where positions are no dates.

    With `ahead` the second is the moment that a forecast is for. A value at the cap means "as much or more", and one
    under a broken sensor may be far off: neither has an end.

    >>> dates(Health("pump", 476256.0, 24.0), "hours")
    ('2024-05-01T00:00:00', '2024-05-02T00:00:00')
    """
    if health.value is None or {AT_CAP, *DISTRUSTED}.intersection(health.flags):
        return date_of(health.position, measure), None
    later = health.value if ahead is None else ahead
    return date_of(health.position, measure), date_of(health.position + later, measure)
