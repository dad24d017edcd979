"""A section that says who published what."""

from fedprognos.report import ReportSection, RunData, Section


def build(run: RunData) -> Section:
    """Words alone; tables and figures go the same way."""
    return Section("About the pumps", words=["The pumps were read by a reader from outside the package."])


PUMP_NOTES = ReportSection("pump-notes", 900, "About the pumps", build)
