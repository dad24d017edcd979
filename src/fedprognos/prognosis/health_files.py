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
from fedprognos.files import replacing
from fedprognos.prognosis.health import Health

COLUMNS = ("unit", "position", "value", "low", "high", "state", "reason", "flags")
SUFFIXES = (".csv", ".csv.gz", ".parquet")


class Writer(Protocol):
    """Takes healths as they are made."""

    def __call__(self, healths: Sequence[Health]) -> None: ...


@contextmanager
def writing(path: Path | None) -> Iterator[Writer]:
    """A writer to a file that appears whole or not at all; to nowhere without a path."""
    if path is None:
        yield lambda healths: None
        return
    check_output(path)
    with replacing(path) as temporary:
        if path.suffix.lower() == ".parquet":
            with _parquet(temporary) as writer:
                yield writer
        else:
            with _csv(temporary) as writer:
                yield writer


def check_output(path: Path) -> None:
    """Refuse a file whose name does not say what it is to hold."""
    if not path.name.lower().endswith(SUFFIXES):
        raise ConfigError(f"cannot write '{path.name}'", hint=f"give a name that ends in {', '.join(SUFFIXES)}")
    if path.suffix.lower() == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise MissingExtraError("pyarrow", "parquet", "writing Parquet files")


def _fields(health: Health) -> tuple[str | float | None, ...]:
    return (
        health.unit,
        health.position,
        health.value,
        health.low,
        health.high,
        health.state,
        health.reason,
        " ".join(health.flags),
    )


@contextmanager
def _csv(path: Path) -> Iterator[Writer]:
    packed = path.name.lower().endswith(".gz")
    with (
        gzip.open(path, "wt", encoding="utf-8", newline="")
        if packed
        else path.open("w", encoding="utf-8", newline="") as file
    ):
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS)
        yield lambda healths: rows.writerows(map(_fields, healths))


@contextmanager
def _parquet(path: Path) -> Iterator[Writer]:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyarrow import parquet

    kinds = [pa.string(), *[pa.float64()] * 4, *[pa.string()] * 3]
    schema = pa.schema(list(zip(COLUMNS, kinds, strict=True)))

    def write(healths: Sequence[Health]) -> None:
        if healths:
            fields = list(zip(*map(_fields, healths), strict=True))
            file.write_table(pa.table([pa.array(c, k) for c, k in zip(fields, kinds, strict=True)], schema=schema))

    with parquet.ParquetWriter(path, schema) as file:
        yield write
