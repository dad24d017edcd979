"""The report: one HTML file that works offline, made of sections, from the files a run wrote."""

from fedprognos.report.page import write_report
from fedprognos.report.page_elements import Card, Chip, Column, Figure, Line, Panel, Section, Table, TableCell
from fedprognos.report.plotting import plot
from fedprognos.report.run_data import RunData, read_run
from fedprognos.report.sections import ReportSection, sections
from fedprognos.report.verdict import Answer, answer

__all__ = [
    "Answer",
    "Card",
    "Chip",
    "Column",
    "Figure",
    "Line",
    "Panel",
    "ReportSection",
    "RunData",
    "Section",
    "Table",
    "TableCell",
    "answer",
    "plot",
    "read_run",
    "sections",
    "write_report",
]
