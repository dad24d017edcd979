"""The table of decisions: thresholds, accuracy and horizons of every method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedprognos.report.judging import BEARABLE, MOMENTS, Followed, Judged
from fedprognos.report.looks import Palette
from fedprognos.report.tables import Cell
from fedprognos.report.words import number, percent


@dataclass(frozen=True)
class DecisionRow:
    """A line of the table of decisions."""

    label: str
    colour: str
    cells: tuple[Cell, ...]


def decision_columns(unit: str, far: Followed | None) -> list[tuple[str, str]]:
    """Headings and what they mean."""
    few = percent(BEARABLE)
    found = [
        (f"Threshold for {few} breaks", f"lowest predicted life, in {unit}, at which at most {few} of the units break"),
        ("Life thrown away there", f"mean life left at maintenance, in {unit}"),
    ]
    for moment in MOMENTS:
        units = "" if far is None else f"; {far.past[moment]} of {far.units} units were followed so far"
        found.append((f"Accurate at {percent(moment)} of life", f"share of units predicted within alpha{units}"))
    return [*found, ("Horizon", f"life left, in {unit}, from which on half of the units are predicted within the band")]


def decision_rows(made: Sequence[Judged], palette: Palette) -> list[DecisionRow]:
    """One line a method."""
    rows = []
    for j in made:
        k = j.bearable
        cells = [Cell("–"), Cell("–")] if k is None else [_cell(j.thresholds[k]), _cell(j.unused[k])]
        shares = [j.accuracy[moment] for moment in MOMENTS]
        cells += [Cell("–") if share is None else Cell(percent(share), share) for share in shares]
        cells.append(Cell("–") if j.horizon is None else _cell(j.horizon))
        rows.append(DecisionRow(j.entry.short_label, palette.colour(j.entry), tuple(cells)))
    return rows


def _cell(value: float) -> Cell:
    return Cell(number(float(value)), float(value))
