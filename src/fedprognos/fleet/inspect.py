"""Looking at a table nobody has described yet: which column is probably what."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fedprognos.errors import DataError
from fedprognos.fleet.columns import Columns
from fedprognos.fleet.levels import decimals_of_levels
from fedprognos.fleet.table_files import Table, read_file

_NAMES = {
    "unit": "unit machine engine asset device battery cell equipment vehicle turbine pump robot serial id",
    "time": "cycle cycles time hour hours step day days t second seconds sec timestamp age flight",
    "cycle": "cycle cycles discharge charge",
    "site": "site plant factory location client owner customer region operator depot farm line",
    "health": "capacity soh health",
    "rul": "rul remaining ttf",
    "failed": "failed failure event broken fault dead",
    "setting": "setting settings condition regime mode load altitude mach tra op throttle ambient",
}
_WORDS = {role: tuple(words.split()) for role, words in _NAMES.items()}


@dataclass(frozen=True)
class Guess:
    """What a table seems to hold.

    Parameters
    ----------
    columns
        Roles of the columns, ready for :func:`fedprognos.fleet.readers.table.read_table`.
    conditions
        Decimals by which each setting is rounded into operating conditions.
    constant, text
        Columns left out because they never change (within an operating condition) or are not numbers.
    gaps
        Columns of numbers left out because some are missing: how many, and where the first would be.
    units, sites, rows
        Counts.
    median_rows, median_life
        Rows and lifespan of the median unit.
    shortest_cycle, cycle_samples
        Duration of the shortest cycle and samples of the median one (task soh).
    """

    path: Path
    columns: Columns
    conditions: dict[str, int]
    constant: tuple[str, ...]
    text: tuple[str, ...]
    gaps: dict[str, str]
    units: int
    sites: tuple[str, ...]
    rows: int
    median_rows: int
    median_life: float
    shortest_cycle: float | None = None
    cycle_samples: int | None = None


def inspect_table(path: str | Path) -> Guess:
    """Read a whole CSV or Parquet file and guess the role of every column from its name and its values."""
    path = Path(path)
    if not path.is_file():
        raise DataError("no such file", where=str(path), hint="give a .csv, .csv.gz or .parquet file")
    table = read_file(path)
    frame = table.frame
    numeric = [str(c) for c in frame.columns if pd.api.types.is_numeric_dtype(frame[c])]
    complete = [c for c in numeric if frame[c].notna().all()]
    unit = _unit(frame, complete)
    groups = pd.Series(0, index=frame.index) if unit is None else frame[unit]
    free = _without([str(c) for c in frame.columns], unit)
    site = _pick(free, "site", lambda c: _constant_within(frame[c], groups), named=True)
    free = _without(free, site)
    failed = _pick(free, "failed", lambda c: frame[c].nunique() <= 2, named=True)
    free = _without(free, failed)
    numbers = [c for c in free if c in complete]
    task, time, cycle, target = _task(frame, numbers, groups, path)
    numbers = _without(numbers, time, cycle, target)
    constant = tuple(c for c in numbers if frame[c].nunique() <= 1)
    numbers = _without(numbers, *constant)
    settings = _settings(frame, numbers, groups, task)
    if settings:
        sensors = _without(numbers, *settings)
        constant += tuple(c for c in sensors if _constant_within(frame[c], *_conditions(frame, settings)))
        numbers = _without(numbers, *constant)
    columns = Columns(
        unit=unit,
        time=time,
        cycle=cycle,
        sensors=tuple(_without(numbers, *settings)),
        settings=tuple(settings),
        site=site,
        target=target,
        failed=failed,
        task="soh" if task == "soh" else "rul",
    )
    if not columns.sensors:
        raise DataError("no numeric column is left for a sensor", where=str(path), hint="write the TOML by hand")
    return Guess(
        path=path,
        columns=columns,
        conditions=settings,
        constant=constant,
        text=tuple(c for c in free if c not in numeric),
        gaps={c: _gap(table, c) for c in free if c in numeric and c not in complete},
        units=int(groups.nunique()),
        sites=() if site is None else tuple(sorted(frame[site].astype(str).unique())),
        rows=len(frame),
        median_rows=int(groups.groupby(groups).size().median()),
        median_life=float(frame[cycle or time].groupby(groups).max().median()),
        shortest_cycle=None if cycle is None else float(frame[time].groupby([groups, frame[cycle]]).max().min()),
        cycle_samples=None if cycle is None else int(frame[time].groupby([groups, frame[cycle]]).size().median()),
    )


def _gap(table: Table, column: str) -> str:
    missing = np.flatnonzero(table.frame[column].isna().to_numpy())
    if len(missing) == len(table.frame):
        return "no value at all"
    place = table.at(int(missing[0])).removeprefix(f"{table.path}, ")
    return f"{len(missing)} missing, first in {place}"


def _unit(frame: pd.DataFrame, numbers: Sequence[str]) -> str | None:
    """The column within whose groups something counts upwards; None where it does so through the whole file."""

    def counts(column: str) -> bool:
        groups = [frame[column]]
        return any(c != column and _rises(frame[c], groups, strictly=False) for c in _by_name(numbers, "time"))

    names = [str(c) for c in frame.columns if _repeats(frame[c]) and not pd.api.types.is_float_dtype(frame[c])]
    named = next((c for c in _by_name(names, "unit") if _rank(c, "unit") is not None and counts(c)), None)
    whole = [pd.Series(0, index=frame.index)]
    if named is not None or any(_rises(frame[c], whole, strictly=False) for c in numbers if frame[c].nunique() > 2):
        return named
    return max(filter(counts, names), key=lambda c: frame[c].nunique(), default=None)


def _task(
    frame: pd.DataFrame, numbers: Sequence[str], groups: pd.Series, path: Path
) -> tuple[str, str, str | None, str | None]:
    """Task, time, cycle and target: soh where a health column is constant in cycles within which a time runs."""
    health = _pick(numbers, "health", lambda c: True, named=True)
    if health is not None:
        rest = _without(numbers, health)
        cycle = _pick(
            rest,
            "cycle",
            lambda c: _rises(frame[c], [groups], strictly=False) and _constant_within(frame[health], groups, frame[c]),
            named=True,
        )
        if cycle is not None:
            time = _pick(_without(rest, cycle), "time", lambda c: _rises(frame[c], [groups, frame[cycle]]))
            if time is not None:
                return "soh", time, cycle, health
    time = _pick(numbers, "time", lambda c: _rises(frame[c], [groups]))
    if time is None:
        raise DataError(
            "no column rises from row to row within every unit, so none can be the time",
            where=str(path),
            hint="sort the rows of each unit by time, or add a column that counts them",
        )
    return "rul", time, None, _pick(_without(numbers, time), "rul", lambda c: True, named=True)


def _settings(frame: pd.DataFrame, numbers: Sequence[str], groups: pd.Series, task: str) -> dict[str, int]:
    """Settings and their decimals: columns called so that keep to a few levels, else unnamed ones that jump to and fro.

    Of unnamed columns, one that follows from the others is a sensor that shows the condition, not a setting.
    """
    named = {
        c: decimals
        for c in numbers
        if _rank(c, "setting") is not None
        and (decimals := decimals_of_levels(frame[c].to_numpy(np.float64))) is not None
    }
    if named or task == "soh":
        return named
    found: dict[str, int] = {}
    for column in numbers:
        decimals = decimals_of_levels(frame[column].to_numpy(np.float64), few=8)
        if decimals is None or not _jumps(frame[column], groups):
            continue
        if not found or not _follows(frame[column].round(decimals), _conditions(frame, found)):
            found[column] = decimals
    return found


def _conditions(frame: pd.DataFrame, settings: dict[str, int]) -> list[pd.Series]:
    return [frame[c].round(d) + 0.0 for c, d in settings.items()]


def _pick(columns: Sequence[str], role: str, fits: Callable[[str], bool], named: bool = False) -> str | None:
    """The fitting column whose name says most about the role; without `named`, at worst any fitting one."""
    order = [c for c in _by_name(columns, role) if not named or _rank(c, role) is not None]
    return next((c for c in order if fits(c)), None)


def _by_name(columns: Sequence[str], role: str) -> list[str]:
    """Columns whose name says most about the role first."""
    return sorted(columns, key=lambda c: len(_WORDS[role]) if (rank := _rank(c, role)) is None else rank)


def _rank(column: str, role: str) -> int | None:
    """Place of the first of the role's words in the name, None where it has none of them."""
    words = [w for w in re.split(r"[^a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", column).lower()) if w]
    return next((k for k, word in enumerate(_WORDS[role]) if word in words), None)


def _without(columns: Sequence[str], *taken: str | None) -> list[str]:
    return [c for c in columns if c not in taken]


def _repeats(series: pd.Series) -> bool:
    return bool(series.notna().all() and 1 <= series.nunique() <= len(series) / 2)


def _constant_within(series: pd.Series, *groups: pd.Series) -> bool:
    return bool((series.groupby(list(groups)).nunique(dropna=False) == 1).all())


def _follows(levels: pd.Series, conditions: list[pd.Series]) -> bool:
    """Whether nearly every row has the usual level of its condition."""
    usual = levels.groupby([*conditions, levels]).size().groupby(level=list(range(len(conditions)))).max()
    return bool(usual.sum() > 0.95 * len(levels))


def _rises(series: pd.Series, groups: list[pd.Series], strictly: bool = True) -> bool:
    steps = series.groupby(groups).diff().dropna()
    return bool(len(steps) and ((steps > 0) if strictly else (steps >= 0)).all() and (steps > 0).any())


def _jumps(series: pd.Series, groups: pd.Series) -> bool:
    """Whether a unit goes to and fro between levels, as conditions do and slowly counting sensors do not."""
    steps = series.groupby(groups).diff().dropna()
    return bool((steps > 0).mean() > 0.05 and (steps < 0).mean() > 0.05)
