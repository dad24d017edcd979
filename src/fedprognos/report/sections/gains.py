"""Who gains, and why: errors of every owner, and on kinds of units that it had seen before or not."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from fedprognos.report.method_entries import points_of
from fedprognos.report.number_words import number, percent, plural
from fedprognos.report.page_elements import Column, Line, Section, Table, TableCell
from fedprognos.report.run_data import RunData
from fedprognos.report.sections import ReportSection, sections
from fedprognos.report.verdict import OwnerGain, compare, owner_gains

KINDS = {
    "together": "the shared model",
    "adjusted": "the shared model, its bias on own machines removed",
    "personal": "the shared model with a head of its own",
    "alone": "its own network, its head fitted again",
    "linear": "a linear model of its own",
    "reservoir": "a fixed random network with a head of its own",
}
COLUMNS = (
    Column(
        "Keeps", "What the owner chose by cross-validation on its training units. Errors are those of its test units."
    ),
    Column("Ends with"),
    Column("Shared model"),
    Column("Alone"),
    Column("Gains", "By how much less error the owner has than alone."),
)


def build(run: RunData) -> Section:
    """A line an owner."""
    r, gains = run.roles, owner_gains(run)
    shares = {g.owner: 1 - g.end / g.alone for g in gains if g.end is not None and g.alone}
    winners = sum(share > 0 for share in shares.values())
    lead = f"{winners} of {plural(len(shares), 'owner')} end with less error than alone." if shares else ""
    if lead and r.owners is not None and r.alone is not None and not compare(run, r.owners, r.alone).clear:
        lead += " That may be chance: see above how sure this is."
    caption = f"Error on each owner\u2019s own test units, {run.measured}."
    table = Table(caption, "Owner", COLUMNS, [_line(gain, shares.get(gain.owner)) for gain in gains])
    return Section("Who gains", lead, tables=[table])


def _line(gain: OwnerGain, share: float | None) -> Line:
    errors = [TableCell(number(error), error) for error in (gain.end, gain.together, gain.alone)]
    gained = "\u2013" if share is None else percent(share) if share >= 0 else f"\u2212{percent(-share)}"
    kept = KINDS.get(gain.kind, gain.kind)
    if gain.share > 0:
        kept += f", and {percent(gain.share)} {KINDS['reservoir']}"
    return Line(gain.owner, [TableCell(kept), *errors, TableCell(gained, share)])


sections.add(ReportSection("gains", 12, "Who gains", build, lambda run: bool(owner_gains(run))))


NEW = "Seen before, or new to its owner"
MOST_KINDS = 3
"""Kinds shown."""


def build_new(run: RunData) -> Section:
    """A table with two lines for each kind, and the kind with the largest difference in a sentence."""
    r = run.roles
    parts = {"Alone": r.alone, "Together": r.together, "All data in one place": r.central, "Best baseline": r.baseline}
    entries = {role: entry for role, entry in parts.items() if entry is not None}
    lines, leads = [], {}
    for kind, new in list(_kinds(run).items())[:MOST_KINDS]:
        errors = {role: _errors_by_kind(run, points_of(run, entry), new) for role, entry in entries.items()}
        units = [_units(points_of(run, next(iter(entries.values()))), new, flag) for flag in (False, True)]
        for flag, row_name in ((0, f"{kind} seen before"), (1, f"{kind} new to its owner")):
            cells = [TableCell(number(error[flag]), error[flag]) for error in errors.values()]
            lines.append(Line(row_name, [TableCell(str(units[flag]), units[flag]), *cells]))
        if {"Alone", "Together"} <= errors.keys():
            (alone_on_seen, alone_on_new), (together_on_seen, together_on_new) = errors["Alone"], errors["Together"]
            worse = alone_on_new / alone_on_seen if alone_on_seen else 0.0
            leads[worse] = (
                f"On test units whose {kind} their owner had not seen in training, alone is {number(alone_on_new)} "
                f"{run.measure} off and together {number(together_on_new)}. On the others: {number(alone_on_seen)} and "
                f"{number(together_on_seen)}."
            )
    columns = [Column("Test units"), *(Column(role) for role in entries)]
    caption = f"Errors {run.measured}, by what the owner had seen in training."
    return Section(NEW, leads[max(leads)] if leads else "", tables=[Table(caption, "Kind", columns, lines)])


def _kinds(run: RunData) -> Mapping[str, set[tuple[str, str]]]:
    """Owner and name of the test units that are new to their owner, by kind."""
    new_units = (run.fleet or {}).get("new_to_owner", {})
    return {kind: {(owner, unit) for owner, units in new.items() for unit in units} for kind, new in new_units.items()}


def _is_new(points: pd.DataFrame, new: set[tuple[str, str]]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.array([pair in new for pair in zip(points["test_client"], points["unit"].astype(str), strict=True)])


def _errors_by_kind(run: RunData, points: pd.DataFrame, new: set[tuple[str, str]]) -> tuple[float, float]:
    """Root mean squared error over units seen before and over new ones."""
    squared = ((points["prediction"] - points["truth"].clip(upper=run.cap)) ** 2).to_numpy(np.float64)
    is_new = _is_new(points, new)
    return tuple(float(np.sqrt(squared[part].mean())) if part.any() else np.nan for part in (~is_new, is_new))  # type: ignore[return-value]


def _units(points: pd.DataFrame, new: set[tuple[str, str]], flag: bool) -> int:
    return len(points[_is_new(points, new) == flag].groupby(["test_client", "unit"]))


def applies(run: RunData) -> bool:
    """The fleet's summary names kinds of units, and predictions are at hand."""
    return bool(_kinds(run)) and any(map(len, run.scored.values()))


sections.add(ReportSection("new_to_owner", 15, NEW, build_new, applies))
