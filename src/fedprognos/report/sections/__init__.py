"""The sections of the report, in files of one or two: a section owns its name, title, place, figures and tables.

Another package adds one with an entry point of the group `fedprognos.sections`, a script with `sections.add`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fedprognos.report.page_elements import Section
from fedprognos.report.run_data import RunData
from fedprognos.shelf import Shelf


def always(run: RunData) -> bool:
    """Every run has this section."""
    return True


@dataclass(frozen=True)
class ReportSection:
    """A section as the page knows it.

    Parameters
    ----------
    name, order, title
        Anchor, place on the page, heading.
    applies
        Whether a scenario of a run has anything for it.
    build
        Makes its content.
    once
        Built of the first scenario only, because it is the same for all.
    """

    name: str
    order: int
    title: str
    build: Callable[[RunData], Section]
    applies: Callable[[RunData], bool] = always
    once: bool = False


sections: Shelf[ReportSection] = Shelf("report section", __name__, group="fedprognos.sections")
"""All sections there are."""
