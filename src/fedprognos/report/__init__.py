"""The report: one HTML file that works offline, made from the files a run wrote.

It shows the fleet, the table of methods, predictions beside the truth, and where in life the errors are.
"""

from fedprognos.report.page import write_report

__all__ = ["write_report"]
