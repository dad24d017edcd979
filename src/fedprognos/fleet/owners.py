"""Who owns a machine: a column of names or numbers, the file it is in, or the beginning of its name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from fedprognos.fleet import roles
from fedprognos.fleet.table_files import Table

_OWNERS = 50


@dataclass(frozen=True)
class Owners:
    """Who owns units, as far as a table tells.

    Parameters
    ----------
    are_numbers
        The column holds whole numbers, and its name says nothing about owners.
    names
        All owners.
    separator
        What ends the owner at the beginning of units' names, where nothing else tells owners.
    """

    are_numbers: bool
    names: tuple[str, ...]
    separator: str | None = None


def owners_of(table: Table, site: str | None, units: pd.Series, files: pd.Series, *, by_name: bool) -> Owners:
    """Owners named in the column `site`, else by files of several units, else by the names of units."""
    if site is not None:
        series, names = table.frame[site], sorted(set(one_spelling(table.names(site)).values()))
        unnamed = pd.api.types.is_numeric_dtype(series) and roles.rank(site, "site") is None
        return Owners(unnamed, tuple(names))
    if files.nunique() > 1:
        return Owners(False, () if units is files else tuple(sorted(files.unique())))
    machines = units.astype(str).unique().tolist()
    separator = name_separator(machines) if by_name else None
    found = {machine.split(separator)[0] for machine in machines} if separator else set[str]()
    return Owners(False, tuple(sorted(found)), separator)


def owner_columns(frame: pd.DataFrame, columns: Sequence[str], numeric: Sequence[str], units: pd.Series) -> list[str]:
    """Columns that may say who owns a unit, the likeliest first: constant within units, with a few values.

    Names come before numbers, which must be whole: they may be owners, or what a unit is rated at.
    """
    found = []
    for column in roles.by_name(columns, "site"):
        series = frame[column] if column in numeric else frame[column].map(folded, na_action="ignore")
        values, named = series.nunique(), roles.rank(column, "site") is not None
        few = named or 2 <= values <= min(_OWNERS, units.nunique() - 1)
        whole = named or column not in numeric or bool((series == series.round()).all())
        if few and whole and series.notna().all() and roles.constant_within(series, units):
            found.append(column)
    return sorted(found, key=lambda c: c in numeric and roles.rank(c, "site") is None)


def counts_owners(column: str, series: pd.Series) -> bool:
    """Whether what never changes within a unit names owners: texts do, and numbers called so or counted 1, 2, 3.

    >>> counts_owners("grp", pd.Series([1, 1, 2, 3])), counts_owners("rated_kW", pd.Series([1500, 2200]))
    (True, False)
    """
    if not pd.api.types.is_numeric_dtype(series):
        return True
    values = set(series.unique())
    counted = [{first + k for k in range(len(values))} for first in (0, 1)]
    return roles.rank(column, "site") is not None or (values in counted and values != {0, 1})  # 0 and 1 are no and yes


def name_separator(units: Sequence[str]) -> str | None:
    """What ends the owner at the beginning of units' names, where a few owners have several units each.

    >>> name_separator(["A-1", "A-2", "B-1", "B-2"]), name_separator(["pump-1", "pump-2"])
    ('-', None)
    """
    for mark in "-_/:. ":
        owned = Counter(unit.split(mark)[0] for unit in units if mark in unit)
        if owned.total() == len(units) and 2 <= len(owned) <= _OWNERS and min(owned.values()) > 1:
            return mark
    return None


def folded(text: object) -> str:
    """A name without what people write now so and now so: case and spaces.

    >>> folded("KLM  Royal "), folded("klm royal")
    ('klm royal', 'klm royal')
    """
    return " ".join(str(text).casefold().split())


def one_spelling(names: Sequence[str]) -> dict[str, str]:
    """The commonest spelling of every name that differs in case and spaces only.

    >>> one_spelling(["KLM", "KLM", "klm", "Iberia"])
    {'KLM': 'KLM', 'klm': 'KLM', 'Iberia': 'Iberia'}
    """
    counts = pd.Series(list(names)).value_counts(sort=False)
    usual = counts.groupby(folded).idxmax()
    return {str(name): str(usual[folded(name)]) for name in counts.index}
