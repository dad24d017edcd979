"""What the report could not show, and why."""

from __future__ import annotations

from fedprognos.report.page_elements import Section
from fedprognos.report.run_data import RunData
from fedprognos.report.sections import ReportSection, sections


def build(run: RunData) -> Section:
    """One sentence for each part that the run's folder does not hold."""
    return Section("Not shown", words=run.missing)


sections.add(ReportSection("not_shown", 130, "Not shown", build, lambda run: bool(run.missing)))
