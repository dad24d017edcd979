"""Healths written to CSV or Parquet, a piece at a time."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import duckdb
import pandas as pd

from fedprognos.errors import ConfigError
from fedprognos.files import replacing, spreadsheet_safe
from fedprognos.prognosis.explanation import Explanation
from fedprognos.prognosis.health import AT_CAP, Health
from fedprognos.prognosis.sensor_faults import DISTRUSTED
from fedprognos.tables import date_of, literal

COLUMNS = ("unit", "position", "value", "low", "high", "state", "reason", "flags")
DATES = ("date", "end_date")
"""Where time is a date: of the row, and when the remaining life is over."""
WHY = "why"
"""Where healths are explained: the sensors that changed it most."""
NUMBERS = ("position", "value", "low", "high")
SUFFIXES = (".csv", ".csv.gz", ".parquet")
Fields = tuple[str | float | None, ...]


class Writer(Protocol):
    """Takes healths as they are made."""

    def __call__(self, healths: Sequence[Health]) -> None: ...


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
    columns = (*COLUMNS, *(() if measure is None else DATES), *(() if why is None else (WHY,)))

    def fields(health: Health) -> Fields:
        explained = None if why is None or health.unit not in why else why[health.unit].words
        return (
            health.unit,
            health.position,
            health.value,
            health.low,
            health.high,
            health.state,
            health.reason,
            " ".join(health.flags),
            *(() if measure is None else dates(health, measure, ahead)),
            *(() if why is None else (explained,)),
        )

    with replacing(path) as temporary:
        if path.suffix.lower() == ".parquet":
            with _parquet(temporary, columns, fields) as writer:
                yield writer
        else:
            with _csv(temporary, columns, fields) as writer:
                yield writer


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


@contextmanager
def _csv(path: Path, columns: Sequence[str], fields: Callable[[Health], Fields]) -> Iterator[Writer]:
    packed = path.name.lower().endswith(".gz")
    with (
        gzip.open(path, "wt", encoding="utf-8", newline="")
        if packed
        else path.open("w", encoding="utf-8", newline="") as file
    ):
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(columns)

        def write(healths: Sequence[Health]) -> None:
            for health in healths:
                rows.writerow([spreadsheet_safe(f) if isinstance(f, str) else f for f in fields(health)])

        yield write


@contextmanager
def _parquet(path: Path, columns: Sequence[str], fields: Callable[[Health], Fields]) -> Iterator[Writer]:
    """Healths are gathered in a database beside the file, so that they need not fit into memory."""
    kinds = ["DOUBLE" if name in NUMBERS else "VARCHAR" for name in columns]
    store = path.with_suffix(".duckdb")
    with duckdb.connect(str(store)) as database:
        typed = ", ".join(f'"{name}" {kind}' for name, kind in zip(columns, kinds, strict=True))
        database.execute(f"CREATE TABLE healths ({typed})")

        def write(healths: Sequence[Health]) -> None:
            if healths:
                frame = pd.DataFrame([fields(health) for health in healths], columns=list(columns))
                database.register("frame", frame.astype(dict.fromkeys(NUMBERS, float)))
                database.execute("INSERT INTO healths SELECT * FROM frame")

        yield write
        database.execute(f"COPY healths TO {literal(str(path))} (FORMAT parquet)")
    store.unlink()
