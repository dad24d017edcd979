"""Who gains: what every owner ends with, beside the shared model and a model of its own."""

from __future__ import annotations

from fedprognos.report.number_words import number, percent, plural
from fedprognos.report.page_elements import Column, Line, Section, Table, TableCell
from fedprognos.report.run_data import RunData
from fedprognos.report.sections import ReportSection, sections
from fedprognos.report.verdict import OwnerGain, owner_gains

KINDS = {
    "together": "the shared model",
    "personal": "the shared model with a head of its own",
    "blend": "the mean of the shared model and its own",
    "alone": "its own model",
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
    Column("Gains", "By how much less error the owner has than with its own model."),
)


def build(run: RunData) -> Section:
    """A line an owner."""
    gains = owner_gains(run)
    shares = {g.owner: 1 - g.end / g.alone for g in gains if g.end is not None and g.alone}
    winners = sum(share > 0 for share in shares.values())
    lead = f"{winners} of {plural(len(shares), 'owner')} end with less error than alone." if shares else ""
    caption = f"Error on each owner\u2019s own test units, {run.measured}."
    table = Table(caption, "Owner", COLUMNS, [_line(gain, shares.get(gain.owner)) for gain in gains])
    return Section("Who gains", lead, tables=[table])


def _line(gain: OwnerGain, share: float | None) -> Line:
    errors = [TableCell(number(error), error) for error in (gain.end, gain.together, gain.alone)]
    gained = "\u2013" if share is None else percent(share) if share >= 0 else f"\u2212{percent(-share)}"
    return Line(gain.owner, [TableCell(KINDS.get(gain.kind, gain.kind)), *errors, TableCell(gained, share)])


sections.add(ReportSection("gains", 12, "Who gains", build, lambda run: bool(owner_gains(run))))
