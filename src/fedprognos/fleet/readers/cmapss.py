"""NASA's C-MAPSS turbofan files: 26 blank-separated columns (unit, cycle, 3 settings, 21 sensors), no header.

Training engines run to failure; test engines stop earlier and `RUL_FD00x.txt` gives what remained.

References
----------
A. Saxena, K. Goebel, D. Simon, N. Eklund, "Damage propagation modeling for aircraft engine run-to-failure
simulation", PHM 2008.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.errors import DataError, DataNotFoundError, unknown_name
from fedprognos.fleet import catalog
from fedprognos.fleet.readers import ReadContext, Reader, ReaderOptions, Source, readers
from fedprognos.fleet.unit import Fleet, Schema, Unit
from fedprognos.tables import read_exact_csv

SUBSETS = ("FD001", "FD002", "FD003", "FD004")
SETTINGS = ("setting_1", "setting_2", "setting_3")
ALL_SENSORS = tuple(f"sensor_{k}" for k in range(1, 22))
CONSTANT_SENSORS = (1, 5, 6, 10, 16, 18, 19)
"""Numbers of the sensors that do not change with wear (constant within an operating condition)."""
DEFAULT_SENSORS = tuple(f"sensor_{k}" for k in range(1, 22) if k not in CONSTANT_SENSORS)
COLUMNS = ("unit", "cycle", *SETTINGS, *ALL_SENSORS)


class CmapssOptions(ReaderOptions):
    """C-MAPSS turbofan engines; the test fleet is NASA's own."""

    kind: Literal["cmapss"] = "cmapss"
    subset: Literal["FD001", "FD002", "FD003", "FD004"] = "FD004"
    """Which of the four fleets."""


def read_cmapss(
    folder: str | Path, subset: str = "FD004", sensors: Sequence[str | int] | None = None
) -> tuple[Fleet, Fleet]:
    """Training and test engines of one subset.

    Parameters
    ----------
    folder
        Where `train_FD00x.txt`, `test_FD00x.txt` and `RUL_FD00x.txt` lie, plain or as `.txt.gz`.
    subset
        FD001 to FD004.
    sensors
        Names (`"sensor_2"`) or numbers (`2`); None means :data:`DEFAULT_SENSORS`, and
        :data:`ALL_SENSORS` takes all 21.

    Returns
    -------
    train, test
        Units `FD004-12` that failed, and units `FD004-test-12` with a known `rul_at_end`.
    """
    if subset not in SUBSETS:
        raise unknown_name("C-MAPSS subset", subset, SUBSETS)
    train = read_cmapss_train(locate(folder, f"train_{subset}.txt"), subset, sensors)
    test = read_cmapss_test(locate(folder, f"test_{subset}.txt"), locate(folder, f"RUL_{subset}.txt"), subset, sensors)
    return train, test


def read_cmapss_train(path: str | Path, name: str = "cmapss", sensors: Sequence[str | int] | None = None) -> Fleet:
    """Engines that run to failure, from one file; unit ids are `<name>-<number>`."""
    return _fleet(Path(path), name, name, sensors, failed=True)


def read_cmapss_test(
    path: str | Path,
    rul_path: str | Path | None = None,
    name: str = "cmapss",
    sensors: Sequence[str | int] | None = None,
) -> Fleet:
    """Engines that stop before failure; ids are `<name>-test-<number>`, RUL unknown without its file."""
    fleet = _fleet(Path(path), f"{name}-test", name, sensors, failed=False)
    if rul_path is None:
        return fleet
    remaining = read_rul(rul_path)
    if len(remaining) != len(fleet):
        raise DataError(
            f"{len(remaining)} RUL values for {len(fleet)} engines in {Path(path).name}",
            where=str(rul_path),
            hint="the two files belong to different subsets, or one is truncated",
        )
    return fleet.select(replace(u, rul_at_end=float(r)) for u, r in zip(fleet, remaining, strict=True))


def read_rul(path: str | Path) -> FloatArray:
    """Remaining cycles of each test engine, one number a line."""
    return _numbers(Path(path), 1)[:, 0]


def locate(folder: str | Path, name: str) -> Path:
    """The file, plain or gzipped."""
    plain = Path(folder) / name
    zipped = plain.with_name(f"{name}.gz")
    for path in (plain, zipped):
        if path.is_file():
            return path
    raise DataNotFoundError(
        f"no {name} (nor {zipped.name})",
        where=str(folder),
        hint="point --data-dir at the folder with the C-MAPSS files, or run: fedprognos data get cmapss",
    )


def sensor_columns(sensors: Sequence[str | int] | None) -> tuple[str, ...]:
    """Column names of sensors given by name or number.

    >>> sensor_columns([2, "sensor_21"])
    ('sensor_2', 'sensor_21')
    """
    if sensors is None:
        return DEFAULT_SENSORS
    names = tuple(f"sensor_{s}" if isinstance(s, int) or s.isdecimal() else s for s in sensors)
    for name in names:
        if name not in ALL_SENSORS:
            raise DataError(f"no C-MAPSS sensor '{name}'", hint="sensors are sensor_1 to sensor_21, or 1 to 21")
    return names


def _fleet(path: Path, prefix: str, subset: str, sensors: Sequence[str | int] | None, failed: bool) -> Fleet:
    names = sensor_columns(sensors)
    values = _numbers(path, len(COLUMNS))
    offsets = _unit_offsets(values[:, 0], path)
    time = np.ascontiguousarray(values[:, 1])
    settings = np.ascontiguousarray(values[:, 2:5])
    matrix = values[:, [COLUMNS.index(n) for n in names]]
    units = tuple(
        Unit(
            id=f"{prefix}-{values[a, 0]:.0f}",
            time=time[a:b],
            sensors=matrix[a:b],
            settings=settings[a:b],
            failed=failed,
            rul_at_end=0.0 if failed else None,
            attributes={"subset": subset},
        )
        for a, b in pairwise(offsets)
    )
    return Fleet(prefix, Schema("rul", names, SETTINGS), units, str(path))


def _unit_offsets(unit: FloatArray, path: Path) -> IntArray:
    """Row offsets of the engines, whose rows must lie together."""
    starts = np.flatnonzero(np.diff(unit, prepend=np.nan) != 0)
    numbers = unit[starts]
    first = np.unique(numbers, return_index=True)[1]
    if len(first) != len(starts):
        again = int(starts[sorted(set(range(len(starts))) - set(first.tolist()))[0]])
        raise DataError(
            f"engine {unit[again]:g} begins a second time at line {again + 1}",
            where=str(path),
            hint="the rows of an engine must lie together, sorted by cycle",
        )
    return np.append(starts, len(unit))


def _numbers(path: Path, width: int) -> FloatArray:
    """The file as (rows, width) finite numbers; the quick parser first, a careful one to explain what is wrong."""
    if not path.is_file():
        raise DataNotFoundError("no such file", where=str(path), hint="run: fedprognos data check cmapss")
    try:
        frame = read_exact_csv(path, sep=r"\s+", header=None, engine="c")
        values: FloatArray = frame.to_numpy(dtype=np.float64)
    except (ValueError, EOFError, OSError):  # pandas' parser errors are ValueErrors
        _explain(path, width)
        raise DataError("cannot be read", where=str(path), hint="is it a C-MAPSS text file?") from None
    if values.shape[1] != width or not np.isfinite(values).all():
        _explain(path, width)
        raise DataError("holds something that is not a number", where=str(path))
    return values


def _explain(path: Path, width: int) -> None:
    """Raise for the first line that is not `width` finite numbers."""
    columns = COLUMNS if width == len(COLUMNS) else ("RUL",)
    number = 0
    try:
        for number, line in _lines(path):
            fields = line.split()
            if fields and len(fields) != width:
                raise DataError(
                    f"line {number} has {len(fields)} columns, expected {width}",
                    where=str(path),
                    hint="the file is truncated or is not a C-MAPSS text file",
                )
            for field, column in zip(fields, columns, strict=False):
                _check_number(field, column, f"{path}, line {number}")
    except (EOFError, gzip.BadGzipFile) as error:
        raise DataError(
            f"compressed file is damaged after line {number}: {error}", where=str(path), hint="download it again"
        ) from None
    except UnicodeDecodeError:
        raise DataError("not a text file", where=str(path), hint="is it compressed but not named .gz?") from None
    if number == 0:
        raise DataError("empty file", where=str(path), hint="download or copy it again")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with gzip.open(path, "rt", encoding="ascii") if path.suffix == ".gz" else path.open(encoding="ascii") as stream:
        yield from enumerate(stream, start=1)


def _check_number(field: str, column: str, where: str) -> None:
    try:
        finite = bool(np.isfinite(float(field)))
    except ValueError:
        raise DataError(f"'{field}' in column {column} is not a number", where=where) from None
    if not finite:
        raise DataError(f"{field} in column {column}", where=where, hint="fill or remove missing values")


def _read(options: CmapssOptions, context: ReadContext) -> Source:
    folder = catalog.find("cmapss", context.data_dir)
    if context.tested:
        return Source(*read_cmapss(folder, options.subset, ALL_SENSORS))
    return Source(read_cmapss_train(locate(folder, f"train_{options.subset}.txt"), options.subset, ALL_SENSORS))


readers.add(Reader("cmapss", "NASA's turbofan engines with their own test files", CmapssOptions, _read, order=30))
