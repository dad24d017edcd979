"""What the names and the values of columns say about their roles: the clues behind :mod:`fedprognos.fleet.inspect`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from fedprognos.fleet.header import NUMBER
from fedprognos.fleet.levels import decimals_of_levels
from fedprognos.fleet.table_files import yes_and_no

_NAMES = {
    "unit": "unit machine engine asset device battery cell equipment vehicle turbine pump robot maschine anlage gerät "
    "pumpe motor zelle serial id",
    "time": "cycle cycles time hour hours step day days date datetime t second seconds sec timestamp ts age flight "
    "zeit zeitstempel datum betriebsstunden stunde stunden zyklus",
    "cycle": "cycle cycles discharge charge zyklus",
    "site": "site plant factory location client owner customer region operator airline company depot farm line "
    "werk standort kunde betreiber betrieb firma eigentümer halter usine",
    "life": "life lifetime run repair repairs overhaul installation leben",
    "health": "capacity soh health kapazität",
    "rul": "rul remaining ttf",
    "failed": "failed failure event broken fault dead ausfall ausgefallen defekt",
    "status": "status state zustand",
    "setting": "setting settings condition regime mode load altitude mach tra op throttle ambient",
}
_WORDS = {role: tuple(words.split()) for role, words in _NAMES.items()}
_NUMBERS, _STRAYS = 0.8, 20
"""Share of numbers in a sensor's column, and most different texts among them."""


def pick(columns: Sequence[str], role: str, fits: Callable[[str], bool], named: bool = False) -> str | None:
    """The fitting column whose name says most about the role; without `named`, at worst any fitting one."""
    order = [c for c in by_name(columns, role) if not named or rank(c, role) is not None]
    return next((c for c in order if fits(c)), None)


def by_name(columns: Sequence[str], role: str) -> list[str]:
    """Columns whose name says most about the role first."""
    return sorted(columns, key=lambda c: len(_WORDS[role]) if (place := rank(c, role)) is None else place)


def rank(column: str, role: str) -> int | None:
    """Place of the first of the role's words in the name, None where it has none of them.

    >>> rank("MachineId", "unit"), rank("heat", "unit"), rank("Werksnummer", "site") == rank("Werk", "site")
    (1, None, True)
    """
    words = [w for w in re.split(r"[^a-zäöüß]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", column).lower()) if w]
    words = [re.sub(r"(n|s)?(nummer|nr)$", "", w) or w for w in words]
    return next((k for k, word in enumerate(_WORDS[role]) if word in words), None)


def begins_when_new(time: pd.Series, lives: pd.Series) -> bool:
    """Whether the clocks of nine lives in ten begin near zero, at their first or second step.

    >>> begins_when_new(pd.Series([1, 2, 3, 1, 2]), pd.Series(["a", "a", "a", "b", "b"]))
    True
    >>> begins_when_new(pd.Series([71, 72, 73, 1, 2]), pd.Series(["a", "a", "a", "b", "b"]))
    False
    """
    step = time.groupby(lives).diff().median()
    first = time.groupby(lives).min()
    return bool((first.between(0, 2 * step)).mean() >= 0.9)


def unit_column(frame: pd.DataFrame, numbers: Sequence[str], files: pd.Series) -> str | None:
    """The column within whose groups something counts upwards; None where it does so through every file.

    A column that is the same in all rows of several files is whose they are, not which machine, unless it is called so.
    """
    times = by_name(numbers, "time")

    def counts(column: str) -> bool:
        return any(c != column and nearly_rises(frame[c], [frame[column]]) for c in times)

    def holds_files(column: str) -> bool:
        return frame[column].nunique() < files.nunique() and constant_within(frame[column], files)

    names = [str(c) for c in frame.columns if _repeats(frame[c]) and not pd.api.types.is_float_dtype(frame[c])]
    named = next((c for c in by_name(names, "unit") if rank(c, "unit") is not None and counts(c)), None)
    whole = [pd.Series(0, index=frame.index)]
    if named is not None or any(rises(frame[c], whole, strictly=False) for c in numbers if frame[c].nunique() > 2):
        return named
    others = [c for c in names if counts(c) and not holds_files(c)]
    return max(others, key=lambda c: frame[c].nunique(), default=None)


def failed_column(frame: pd.DataFrame, columns: Sequence[str]) -> str | None:
    """The column that says yes or no to whether a unit failed; a status counts where it is in words."""

    def says(column: str) -> bool:
        yes, no = yes_and_no(frame[column])
        return bool((yes | no).all())

    words = [c for c in columns if not pd.api.types.is_numeric_dtype(frame[c])]
    return pick(columns, "failed", says, named=True) or pick(words, "status", says, named=True)


def stray_texts(column: str, series: pd.Series) -> list[str]:
    """Texts among the numbers of a sensor, such as `err`; none where most are texts, or where numbers are names.

    >>> stray_texts("heat", pd.Series(["1.5", "2.5", "err", "3.5", "4.5", "5,5", "6"]))
    ['err']
    """
    if pd.api.types.is_numeric_dtype(series) or any(
        rank(column, role) is not None for role in ("unit", "site", "life")
    ):
        return []
    texts = series.dropna().astype(str).str.strip()
    number = texts.str.fullmatch(NUMBER.pattern)
    others = texts[~number].unique().tolist()
    changes = (texts != texts.shift()).mean()  # names stay the same for many rows
    return others if number.mean() >= _NUMBERS and len(others) <= _STRAYS and changes > 0.2 else []


def numbers_rows(series: pd.Series) -> bool:
    """Whether a column numbers the rows of the file, as spreadsheets and data frames do.

    >>> numbers_rows(pd.Series([2, 0, 1, 3])), numbers_rows(pd.Series([0, 1, 0, 1]))
    (True, False)
    """
    return bool(series.is_unique and series.notna().all() and series.max() - series.min() == len(series) - 1)


def setting_columns(frame: pd.DataFrame, numbers: Sequence[str], groups: pd.Series, task: str) -> dict[str, int]:
    """Settings and their decimals: columns called so that keep to a few levels, else unnamed ones that jump to and fro.

    Of unnamed columns, one that follows from the others is a sensor that shows the condition, not a setting.
    """
    named = {
        c: decimals
        for c in numbers
        if rank(c, "setting") is not None
        and (decimals := decimals_of_levels(frame[c].dropna().to_numpy(np.float64))) is not None
    }
    if named or task == "soh":
        return named
    found: dict[str, int] = {}
    for column in numbers:
        decimals = decimals_of_levels(frame[column].dropna().to_numpy(np.float64), few=8)
        if decimals is None or not _jumps(frame[column], groups):
            continue
        if not found or not _follows(frame[column].round(decimals), conditions(frame, found)):
            found[column] = decimals
    return found


def conditions(frame: pd.DataFrame, settings: Mapping[str, int]) -> list[pd.Series]:
    """Settings rounded to their levels."""
    return [frame[c].round(d) + 0.0 for c, d in settings.items()]


def fades(series: pd.Series, groups: pd.Series) -> bool:
    """Whether a health is lower in the last fifth of nearly every unit's rows than in the first.

    >>> units = pd.Series(["a"] * 5)
    >>> fades(pd.Series([5.0, 4, 3, 2, 1]), units), fades(pd.Series([1.0] * 5), units)
    (True, False)
    """
    place = groups.groupby(groups).cumcount() / groups.groupby(groups).transform("size")
    first, last = (series[part].groupby(groups[part]).mean() for part in (place < 0.2, place >= 0.8))
    return bool((last < first).mean() > 0.8)


def without(columns: Sequence[str], *taken: str | None) -> list[str]:
    """The other columns."""
    return [c for c in columns if c not in taken]


def constant_within(series: pd.Series, *groups: pd.Series) -> bool:
    """Whether a column has one value in every group, blanks aside."""
    return bool((series.groupby(list(groups)).nunique() <= 1).all())


def rises(series: pd.Series, groups: list[pd.Series], strictly: bool = True) -> bool:
    """Whether a column goes up from row to row within every group."""
    steps = series.groupby(groups).diff().dropna()
    return bool(len(steps) and ((steps > 0) if strictly else (steps >= 0)).all() and (steps > 0).any())


def restarts(series: pd.Series, groups: list[pd.Series]) -> bool:
    """Whether a column that rises within groups falls now and then, as a counter does that starts anew."""
    return nearly_rises(series, groups) and bool((series.groupby(groups).diff() < 0).any())


def nearly_rises(series: pd.Series, groups: list[pd.Series]) -> bool:
    """Whether a column goes up within every group or stays, but for the rare fall of a counter that starts anew."""
    steps = series.groupby(groups).diff().dropna()
    falls = steps < 0
    if not len(steps) or not (steps > 0).any() or falls.mean() > 0.1:
        return False
    return not falls.any() or bool((-steps[falls] > 4 * steps[steps > 0].median()).all())


def _repeats(series: pd.Series) -> bool:
    return bool(series.notna().all() and 1 <= series.nunique() <= len(series) / 2)


def _follows(levels: pd.Series, keys: list[pd.Series]) -> bool:
    """Whether nearly every row has the usual level of its condition."""
    usual = levels.groupby([*keys, levels]).size().groupby(level=list(range(len(keys)))).max()
    return bool(usual.sum() > 0.95 * len(levels))


def _jumps(series: pd.Series, groups: pd.Series) -> bool:
    """Whether a unit goes to and fro between levels, as conditions do and slowly counting sensors do not."""
    steps = series.groupby(groups).diff().dropna()
    return bool((steps > 0).mean() > 0.05 and (steps < 0).mean() > 0.05)
