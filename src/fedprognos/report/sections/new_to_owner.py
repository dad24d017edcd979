"""Why training together helps: errors on kinds of units that their owner had seen before, and on those it had not."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from fedprognos.report.method_entries import points_of
from fedprognos.report.number_words import number
from fedprognos.report.page_elements import Column, Line, Section, Table, TableCell
from fedprognos.report.run_data import RunData
from fedprognos.report.sections import ReportSection, sections

TITLE = "Seen before, or new to its owner"
MOST = 3
"""Kinds shown."""


def build(run: RunData) -> Section:
    """A table with two lines for each kind, and the starkest of them in a sentence."""
    r = run.roles
    parts = {"Alone": r.alone, "Together": r.together, "All data in one place": r.central, "Best baseline": r.baseline}
    entries = {role: entry for role, entry in parts.items() if entry is not None}
    lines, leads = [], {}
    for kind, new in list(_kinds(run).items())[:MOST]:
        errors = {role: _errors(run, points_of(run, entry), new) for role, entry in entries.items()}
        units = [_units(points_of(run, next(iter(entries.values()))), new, flag) for flag in (False, True)]
        for flag, row_name in ((0, f"{kind} seen before"), (1, f"{kind} new to its owner")):
            cells = [TableCell(number(error[flag]), error[flag]) for error in errors.values()]
            lines.append(Line(row_name, [TableCell(str(units[flag]), units[flag]), *cells]))
        if {"Alone", "Together"} <= errors.keys():
            (alone_on_seen, alone_on_new), (together_on_seen, together_on_new) = errors["Alone"], errors["Together"]
            worse = alone_on_new / alone_on_seen if alone_on_seen else 0.0
            leads[worse] = (
                f"On a {kind} new to its owner, alone is {number(alone_on_new)} {run.measure} off and together "
                f"{number(together_on_new)}. On one seen before: {number(alone_on_seen)} and "
                f"{number(together_on_seen)}."
            )
    columns = [Column("Test units"), *(Column(role) for role in entries)]
    caption = "Errors by whether the owner’s training units had the same kind."
    return Section(TITLE, leads[max(leads)] if leads else "", tables=[Table(caption, "Kind", columns, lines)])


def _kinds(run: RunData) -> Mapping[str, set[tuple[str, str]]]:
    """Owner and name of the test units that are new to their owner, by kind."""
    new_units = (run.fleet or {}).get("new_to_owner", {})
    return {kind: {(owner, unit) for owner, units in new.items() for unit in units} for kind, new in new_units.items()}


def _is_new(points: pd.DataFrame, new: set[tuple[str, str]]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.array([pair in new for pair in zip(points["test_client"], points["unit"].astype(str), strict=True)])


def _errors(run: RunData, points: pd.DataFrame, new: set[tuple[str, str]]) -> tuple[float, float]:
    """Root mean squared error over units seen before and over new ones."""
    squared = ((points["prediction"] - points["truth"].clip(upper=run.cap)) ** 2).to_numpy(np.float64)
    is_new = _is_new(points, new)
    return tuple(float(np.sqrt(squared[part].mean())) if part.any() else np.nan for part in (~is_new, is_new))  # type: ignore[return-value]


def _units(points: pd.DataFrame, new: set[tuple[str, str]], flag: bool) -> int:
    return len(points[_is_new(points, new) == flag].groupby(["test_client", "unit"]))


def applies(run: RunData) -> bool:
    """The fleet's summary names kinds of units, and predictions are at hand."""
    return bool(_kinds(run)) and any(map(len, run.scored.values()))


sections.add(ReportSection("new_to_owner", 15, TITLE, build, applies))
