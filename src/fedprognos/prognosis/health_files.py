"""Healths written to CSV or Parquet, a piece at a time."""

from __future__ import annotations

import csv
import gzip
import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from fedprognos.errors import ConfigError, MissingExtraError
from fedprognos.files import replacing, spreadsheet_safe
from fedprognos.fleet.time_axis import date_of
from fedprognos.prognosis.health import Health

COLUMNS = ("unit", "position", "value", "low", "high", "state", "reason", "flags")
DATES = ("date", "end_date")
"""Where time is a date: of the row, and when the remaining life is over."""
SUFFIXES = (".csv", ".csv.gz", ".parquet")


class Writer(Protocol):
    """Takes healths as they are made."""

    def __call__(self, healths: Sequence[Health]) -> None: ...


@contextmanager
def writing(path: Path | None, measure: str | None = None) -> Iterator[Writer]:
    """A writer to a file that appears whole or not at all; to nowhere without a path.

    Parameters
    ----------
    measure
        Of time, where positions are dates.
    """
    if path is None:
        yield lambda healths: None
        return
    check_output(path)
    with replacing(path) as temporary:
        if path.suffix.lower() == ".parquet":
            with _parquet(temporary, measure) as writer:
                yield writer
        else:
            with _csv(temporary, measure) as writer:
                yield writer


def check_output(path: Path) -> None:
    """Refuse a file whose name does not say what it is to hold."""
    if not path.name.lower().endswith(SUFFIXES):
        raise ConfigError(f"cannot write '{path.name}'", hint=f"give a name that ends in {', '.join(SUFFIXES)}")
    if path.suffix.lower() == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise MissingExtraError("pyarrow", "parquet", "writing Parquet files")


def dates(health: Health, measure: str) -> tuple[str | None, str | None]:
    """When a health was, and when the remaining life that it says is over; None where positions are no dates.

    >>> dates(Health("pump", 476256.0, 24.0), "hours")
    ('2024-05-01T00:00:00', '2024-05-02T00:00:00')
    """
    end = None if health.value is None else date_of(health.position + health.value, measure)
    return date_of(health.position, measure), end


def _fields(health: Health, measure: str | None) -> tuple[str | float | None, ...]:
    return (
        health.unit,
        health.position,
        health.value,
        health.low,
        health.high,
        health.state,
        health.reason,
        " ".join(health.flags),
        *(() if measure is None else dates(health, measure)),
    )


def _safe_fields(health: Health, measure: str | None) -> list[str | float | None]:
    return [spreadsheet_safe(field) if isinstance(field, str) else field for field in _fields(health, measure)]


@contextmanager
def _csv(path: Path, measure: str | None) -> Iterator[Writer]:
    packed = path.name.lower().endswith(".gz")
    with (
        gzip.open(path, "wt", encoding="utf-8", newline="")
        if packed
        else path.open("w", encoding="utf-8", newline="") as file
    ):
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS if measure is None else (*COLUMNS, *DATES))
        yield lambda healths: rows.writerows(_safe_fields(health, measure) for health in healths)


@contextmanager
def _parquet(path: Path, measure: str | None) -> Iterator[Writer]:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyarrow import parquet

    kinds = [pa.string(), *[pa.float64()] * 4, *[pa.string()] * (3 if measure is None else 5)]
    schema = pa.schema(list(zip((*COLUMNS, *DATES), kinds, strict=False)))

    def write(healths: Sequence[Health]) -> None:
        if healths:
            fields = list(zip(*(_fields(health, measure) for health in healths), strict=True))
            file.write_table(pa.table([pa.array(c, k) for c, k in zip(fields, kinds, strict=True)], schema=schema))

    with parquet.ParquetWriter(path, schema) as file:
        yield write
