"""What the values of columns say about their roles; :mod:`fedprognos.tables.proposal` asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from fedprognos.tables.column_names import by_name, folded, pick, rank
from fedprognos.tables.csv_format import NUMBER
from fedprognos.tables.table import yes_and_no
from fedprognos.tables.value_rules import at_level, decimals_of_levels

_NUMBERS, MOST_STRAYS = 0.8, 20
"""Share of numbers in a sensor's column, and most different texts among them."""
_STAND_INS = (-99.0, -999.0, -999.25, -9999.0, -99999.0, -999999.0)
MOST_OWNERS = 50
_MOST_UNNAMED, _MOST_SOLD = 0.05, 0.2
"""Largest shares of rows without a machine, and of machines with several owners."""
_STRAIGHT, _SAME_END, _LAST = 0.01, 0.01, 3
"""How far rows are off a straight line and units' ends differ, as shares of a range, over this part of the rows."""
_STRAIGHT_CLOCK = 1e-3
"""How far a clock may be off the line, as a share of its range; it may be rounded."""
_HELD_WITHIN, _HELD_ROWS, _UNITS_WITHIN = 0.01, 0.8, 0.05
"""A column is held at a level: how far rows may be off, how many rows are not, and how far units' levels differ."""


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


def unit_column(
    frame: pd.DataFrame, numbers: Sequence[str], files: pd.Series, dates: Collection[str] = ()
) -> str | None:
    """The column within whose groups something counts upwards; None where it does so through every file.

    A column that is the same in all rows of several files is whose they are, not which machine, unless it is called so.
    One that is called so may be blank in a few rows; the reader then says in which.
    """
    times = by_name(numbers, "time")
    whole = [pd.Series(0, index=frame.index)]

    def counts(column: str) -> bool:
        return any(c != column and nearly_rises(frame[c], [frame[column]]) for c in times)

    def holds_files(column: str) -> bool:
        return constant_within(frame[column], files) and frame[column].nunique() < files.nunique()

    def numbers_machines(column: str) -> bool:
        """Machines 1, 1, 1, 2, 2 rise through a file as a time does, but a time restarts with each of them."""
        others = [c for c in times if c != column and c not in through]
        return _repeats(frame[column]) and any(nearly_rises(frame[c], [frame[column]]) for c in others)

    may_name = [str(c) for c in frame.columns if c not in dates and _may_name(frame[c])]
    names = [c for c in may_name if _repeats(frame[c])]
    for column in by_name(may_name, "unit"):
        blank = frame[column].isna()
        if rank(column, "unit") is None or blank.mean() > _MOST_UNNAMED:
            continue
        rest = frame[~blank] if blank.any() else frame
        if _repeats(rest[column]) and any(c != column and nearly_rises(rest[c], [rest[column]]) for c in times):
            return column
    through = [c for c in numbers if rises(frame[c], whole, strictly=False) and frame[c].nunique() > 2]
    if any(not numbers_machines(c) for c in through):
        return None

    def likeness(column: str) -> tuple[bool, bool, int]:
        """Lowest for the likeliest machine.

        Machine 3 has the cycles 1, 2, ...; but cycle 3 also has the machines 1, 2, ... Files are mostly written machine
        after machine, and of two such columns (owner, machine) the one with more names is the machine.
        """
        return rank(column, "time") is not None, _changes(frame[column]), -frame[column].nunique()

    return min((c for c in names if counts(c) and not holds_files(c)), key=likeness, default=None)


def time_order(frame: pd.DataFrame, columns: Sequence[str], groups: list[pd.Series]) -> Iterator[str]:
    """Columns that may be the time, the likeliest first: called so, then counters with equal steps, then the others."""

    def steady(column: str) -> bool:
        steps = frame[column].groupby(groups).diff()
        return bool((steps.dropna() == steps.median()).mean() > 0.9)

    named = [c for c in by_name(columns, "time") if rank(c, "time") is not None]
    yield from named
    rest = [c for c in columns if c not in named and rises(frame[c], groups)]
    yield from sorted(rest, key=lambda c: not steady(c))


def _changes(series: pd.Series) -> bool:
    """Whether a column mostly changes from row to row."""
    return bool((series != series.shift()).mean() > 0.5)


def _may_name(series: pd.Series) -> bool:
    """Whether a column's values may be names: texts, or numbers that are whole, as 1.0 is."""
    values = series.dropna()
    return not pd.api.types.is_float_dtype(series) or bool((values == values.round()).all())


def failed_column(frame: pd.DataFrame, columns: Sequence[str]) -> str | None:
    """The column that says yes or no to whether a unit failed; a status counts where it is in words."""

    def says(column: str) -> bool:
        yes, no = yes_and_no(pd.Series(frame[column].unique()))
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
    counts = series.dropna().astype(str).str.strip().value_counts(sort=False)
    others = [text for text in map(str, counts.index) if not NUMBER.fullmatch(text)]
    if len(others) > MOST_STRAYS or counts[others].sum() > (1 - _NUMBERS) * counts.sum():
        return []
    changes = (series != series.shift()).mean()  # names stay the same for many rows
    return others if changes > 0.2 else []


def stand_in(series: pd.Series) -> float | None:
    """The number that a logger writes where it has no value: -9999 and the like, far below all others of the column.

    >>> stand_in(pd.Series([20.5, -999, 21.0])), stand_in(pd.Series([-9, -999, 500.0]))
    (-999.0, None)
    """
    lowest = series.min()
    if lowest not in _STAND_INS:
        return None
    others = series[series != lowest]
    return float(lowest) if others.min() - lowest > 5 * (others.max() - others.min()) > 0 else None


def numbers_rows(series: pd.Series) -> bool:
    """Whether a column numbers the rows of the file, as spreadsheets and data frames do.

    >>> numbers_rows(pd.Series([2, 0, 1, 3])), numbers_rows(pd.Series([0, 1, 0, 1]))
    (True, False)
    """
    return bool(series.max() - series.min() == len(series) - 1 and series.notna().all() and series.is_unique)


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
    jumping: dict[str, int] = {}
    for column in numbers:
        decimals = decimals_of_levels(frame[column].dropna().to_numpy(np.float64), few=8)
        if decimals is None or not _jumps(frame[column], groups):
            continue
        if not jumping or not _follows(frame[column].round(decimals), conditions(frame, jumping)):
            jumping[column] = decimals
    return jumping


def conditions(frame: pd.DataFrame, settings: Mapping[str, int]) -> list[pd.Series]:
    """Settings rounded to their levels."""
    return [at_level(frame[c], decimals) for c, decimals in settings.items()]


def fades(series: pd.Series, groups: pd.Series) -> bool:
    """Whether a health is lower in the last fifth of nearly every unit's rows than in the first.

    >>> units = pd.Series(["a"] * 5)
    >>> fades(pd.Series([5.0, 4, 3, 2, 1]), units), fades(pd.Series([1.0] * 5), units)
    (True, False)
    """
    place = groups.groupby(groups).cumcount() / groups.groupby(groups).transform("size")
    first, last = (series[part].groupby(groups[part]).mean() for part in (place < 0.2, place >= 0.8))
    return bool((last < first).mean() > 0.8)


def _lines_to_the_end(series: pd.Series, remaining: pd.Series, lives: pd.Series) -> pd.DataFrame | None:
    """Slope and end of the straight lines that a column follows to each unit's end, and what it ranges over there.

    None if it follows none, or if too few units with different lifespans say so.
    """
    place = lives.groupby(lives).cumcount(ascending=False)
    late = place < (lives.groupby(lives).transform("size") // _LAST).clip(lower=4)
    x, r, unit = (values[late & series.notna()] for values in (series.astype(np.float64), remaining, lives))
    mean_x, mean_r = x.groupby(unit).transform("mean"), r.groupby(unit).transform("mean")
    slope = ((x - mean_x) * (r - mean_r)).groupby(unit).sum() / ((r - mean_r) ** 2).groupby(unit).sum()
    off = ((x - mean_x - unit.map(slope) * (r - mean_r)) ** 2).groupby(unit).mean() ** 0.5
    reach = x.groupby(unit).max() - x.groupby(unit).min()
    end = x.groupby(unit).mean() - slope * r.groupby(unit).mean()
    straight = (off <= _STRAIGHT * reach) & (reach > 0) & np.isfinite(slope)
    longest = remaining.groupby(lives).max()
    if len(slope) < 3 or straight.mean() < 0.9 or longest.std() < 0.01 * longest.mean():
        return None
    lines: pd.DataFrame = pd.DataFrame({"slope": slope, "end": end, "reach": reach})[straight]
    return lines


def tells_the_end(series: pd.Series, remaining: pd.Series, lives: pd.Series) -> bool:
    """Whether a column was worked out from the end of life: a share of the life, a remaining life, or the lifespan.

    So was one of two values that changes at the same remaining life in every unit, such as "fails within 30 days".

    >>> left, unit = pd.Series([*range(9, -1, -1), *range(19, -1, -1), *range(14, -1, -1)]), [0] * 10 + [1] * 20
    >>> lives = pd.Series([*unit, *[2] * 15])
    >>> life = lives.map({0: 10, 1: 20, 2: 15})
    >>> [tells_the_end(column, left, lives) for column in (left / life, life, life - left, left < 7)]
    [True, True, False, True]
    """
    if constant_within(series, lives):
        value, longest = series.groupby(lives).first(), remaining.groupby(lives).max()
        return bool(value.nunique() > 2 and abs(value.corr(longest)) > 0.9999)
    if series.nunique() == 2:
        near = series == series.iloc[int(np.argmin(remaining))]
        return bool(lives[near].nunique() > 2 and remaining[near].max() < remaining[~near].min())
    lines = _lines_to_the_end(series, remaining, lives)
    return lines is not None and bool(lines["end"].std() <= _SAME_END * _LAST * lines["reach"].median())


def is_share_of_life(series: pd.Series, time: pd.Series, lives: pd.Series) -> bool:
    """Whether a column falls straight to the end, faster in short lives: a share of the life, no remaining life.

    >>> left, lives = pd.Series([*range(10), *range(20), *range(15)]), pd.Series([0] * 10 + [1] * 20 + [2] * 15)
    >>> is_share_of_life(-left / lives.map({0: 10, 1: 20, 2: 15}), left, lives), is_share_of_life(-left, left, lives)
    (True, False)
    """
    lines = _lines_to_the_end(series, time.groupby(lives).transform("max") - time, lives)
    return lines is not None and bool(lines["slope"].std() > 0.02 * abs(lines["slope"].median()))


def owner_columns(frame: pd.DataFrame, columns: Sequence[str], numeric: Sequence[str], units: pd.Series) -> list[str]:
    """Columns that may say who owns a unit, the likeliest first: constant within units, with a few values.

    Names come before numbers, which must be whole: they may be owners, or what a unit is rated at. Names that are
    called owners may be blank in some rows, and a few units may have been sold; the reader then says which.
    """
    candidates = []
    for column in by_name(columns, "site"):
        series, named = frame[column].dropna(), rank(column, "site") is not None
        if len(series) < len(units) and not (named and column not in numeric and len(series) >= len(units) / 2):
            continue
        if column in numeric and not (series == series.round()).all():
            continue
        if column not in numeric:
            codes, names = pd.factorize(series)
            series = pd.Series(pd.factorize(pd.Series(names).map(folded))[0][codes], index=series.index)
        few = 2 if len(series) < len(units) else 1
        several = (named and series.nunique() >= few) or 2 <= series.nunique() <= min(MOST_OWNERS, units.nunique() - 1)
        owners = series.groupby(units[series.index]).nunique()
        sold = named and column not in numeric and (owners > 1).mean() <= _MOST_SOLD
        if several and (sold or (owners <= 1).all()):
            candidates.append(column)
    own_name = frame[candidates].nunique() == units.nunique()  # one owner a unit: more likely another name of the unit
    blank, same = frame[candidates].isna().any(), frame[candidates].nunique() == 1

    def unlikeliness(column: str) -> tuple[bool, bool, bool, bool, bool]:
        unnamed = rank(column, "site") is None
        # One owner of all is more likely what a constant sensor is called.
        return same[column], column in numeric and unnamed, own_name[column], unnamed, blank[column]

    return sorted(candidates, key=unlikeliness)


def counts_owners(column: str, series: pd.Series) -> bool:
    """Whether what never changes within a unit names owners: texts do, and numbers called so or counted 1, 2, 3.

    >>> counts_owners("grp", pd.Series([1, 1, 2, 3])), counts_owners("rated_kW", pd.Series([1500, 2200]))
    (True, False)
    """
    if not pd.api.types.is_numeric_dtype(series):
        return True
    values = set(series.unique())
    counted = [{first + k for k in range(len(values))} for first in (0, 1)]
    return rank(column, "site") is not None or (values in counted and values != {0, 1})  # 0 and 1 are no and yes


def name_separator(units: Sequence[str]) -> str | None:
    """What ends the owner at the beginning of units' names, where a few owners have several units each.

    >>> name_separator(["A-1", "A-2", "B-1", "B-2"]), name_separator(["pump-1", "pump-2"])
    ('-', None)
    """
    for mark in "-_/:. ":
        owned = Counter(unit.split(mark)[0] for unit in units if mark in unit)
        if owned.total() == len(units) and 2 <= len(owned) <= MOST_OWNERS and min(owned.values()) > 1:
            return mark
    return None


def names_of(series: pd.Series) -> tuple[pd.Series, list[str]]:
    """A column of names as numbers, and the names that they stand for; machine 1.0 is machine 1.

    >>> codes, names = names_of(pd.Series([2.0, 1.0, 2.0]))
    >>> codes.tolist(), names
    ([0, 1, 0], ['2', '1'])
    """
    codes, values = pd.factorize(series)
    texts = [f"{value:.17g}" if isinstance(value, float) else str(value).strip() for value in values.tolist()]
    again, names = pd.factorize(np.asarray(texts, dtype=object))
    return pd.Series(again[codes], index=series.index), names.tolist()


def pairs(first: pd.Series, second: pd.Series) -> pd.Series:
    """One number for every pair of values, the first of which are whole numbers.

    >>> pairs(pd.Series([0, 0, 1]), pd.Series(["a", "b", "a"])).tolist()
    [0, 1, 2]
    """
    codes, values = pd.factorize(second)
    return first * max(len(values), 1) + codes


def without(columns: Sequence[str], *taken: str | None) -> list[str]:
    """The other columns."""
    return [c for c in columns if c not in taken]


def is_constant(series: pd.Series) -> bool:
    """Whether a column of numbers has one value, blanks aside."""
    return bool(series.isna().all() or series.min() == series.max())


def constant_within(series: pd.Series, *groups: pd.Series) -> bool:
    """Whether a column has one value in every group, blanks aside.

    >>> constant_within(pd.Series([1.0, None, 1.0, 2.0]), pd.Series([0, 0, 0, 1]))
    True
    """
    if not pd.api.types.is_numeric_dtype(series):
        codes = pd.factorize(series)[0]
        series = pd.Series(np.where(codes < 0, np.nan, codes), index=series.index)
    grouped = series.groupby(list(groups))
    lowest, highest = grouped.min(), grouped.max()
    return bool((lowest.isna() | (lowest == highest)).all())


def held_constant(series: pd.Series, units: pd.Series) -> bool:
    """Whether a controller holds a column at one level, the same for all units, in most rows: a discharge current.

    >>> held_constant(pd.Series([0.0, -2.01, -2.0, -2.0, -2.01] * 2), pd.Series([0] * 5 + [1] * 5))
    True
    """
    levels = series.groupby(units).median()
    usual = units.map(levels)
    held = (series - usual).abs() <= _HELD_WITHIN * usual.abs()
    alike = bool((levels - levels.median()).abs().max() <= _UNITS_WITHIN * abs(levels.median()))
    return alike and bool(held.groupby(units).mean().min() >= _HELD_ROWS)


def counts_steadily(series: pd.Series, groups: pd.Series) -> bool:
    """Whether a column goes up in every row of every group, nearly always by the same step.

    >>> counts_steadily(pd.Series([1, 2, 3, 1, 2]), pd.Series([0, 0, 0, 1, 1]))
    True
    >>> counts_steadily(pd.Series([1, 1, 2, 2]), pd.Series([0, 0, 0, 0]))
    False
    """
    steps = series.groupby(groups).diff().dropna()
    return bool((steps > 0).all() and (steps == steps.median()).mean() > 0.9)


def says_time(series: pd.Series, time: pd.Series) -> bool:
    """Whether a column lies on one straight line over the time in all rows, as hours do where time is in minutes.

    >>> time = pd.Series([1, 2, 3, 1, 2])
    >>> says_time(2.0 * time + 5, time), says_time(pd.Series([7.0, 9, 11, 8, 10]), time)
    (True, False)
    """
    x, y = time.to_numpy(np.float64), series.to_numpy(np.float64)
    first, last = int(np.argmin(x)), int(np.argmax(x))
    reach = float(y.max() - y.min())
    if x[first] == x[last] or not np.isfinite(reach):
        return False
    line = y[first] + (y[last] - y[first]) / (x[last] - x[first]) * (x - x[first])
    return reach > 0 and bool(np.abs(y - line).max() <= _STRAIGHT_CLOCK * reach)


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
