"""What was remarkable about the data when it was read: filled blanks, rows left out, sensors that stand still, gaps."""

from __future__ import annotations

from fedprognos.report.number_words import plural
from fedprognos.report.page_elements import Section
from fedprognos.report.run_data import RunData
from fedprognos.report.sections import ReportSection, sections


def build(run: RunData) -> Section:
    """One sentence for each finding."""
    notes = (run.fleet or {})["notes"]
    lead = f"{plural(len(notes), 'remark')} on the data as it was read. Look at these before you trust the numbers."
    return Section("The data", lead, words=[f"{note[0].upper()}{note[1:]}." for note in notes], folded=True)


sections.add(
    ReportSection("quality", 58, "The data", build, lambda run: bool((run.fleet or {}).get("notes")), once=True)
)
