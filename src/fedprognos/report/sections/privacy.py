"""What the published model may tell of any unit: the account of differential privacy, where a run asked for it."""

from __future__ import annotations

import json
from typing import Any

from fedprognos.report.number_words import number
from fedprognos.report.page_elements import Column, Line, Section, Table, TableCell
from fedprognos.report.run_data import RunData
from fedprognos.report.sections import ReportSection, sections

TITLE = "Differential privacy"
COLUMNS = (
    Column("Epsilon", "What all releases of the run spend together on the data of a client."),
    Column("Delta", "The chance that the bound does not hold."),
    Column("Releases", "Noised sums that each client sent: all methods, seeds and folds."),
    Column("Noise", "Deviation, in multiples of the most that one unit or row can change."),
    Column("Mechanism"),
)


def build(run: RunData) -> Section:
    """A sentence and the account."""
    account = account_of(run)
    hidden = "unit" if account["per"] == "unit" else "labelled row"
    lead = (
        f"Whether any one {hidden} was among the training data changes the chance of any result by at most a factor of "
        f"exp({number(account['epsilon'])}), but for a chance of {account['delta']:g}."
    )
    cells = [
        TableCell(number(account["epsilon"]), account["epsilon"]),
        TableCell(f"{account['delta']:g}", account["delta"]),
        TableCell(str(account["releases"]), account["releases"]),
        TableCell(number(account["noise"]), account["noise"]),
        TableCell(str(account["mechanism"])),
    ]
    table = Table("The account of this run.", "Hidden", list(COLUMNS), [Line(hidden, cells)])
    words = ["Not covered: moments of the columns, and errors on test units. Other runs on the same data add up."]
    return Section(TITLE, lead, tables=[table], words=words)


def account_of(run: RunData) -> dict[str, Any]:
    """What the bundle says; empty where the run was not private."""
    try:
        bundle = json.loads((run.folder / "bundle" / "bundle.json").read_text("utf-8"))
        account = bundle["provenance"].get("privacy")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    numbers = ("epsilon", "delta", "noise", "releases")
    good = isinstance(account, dict) and all(isinstance(account.get(name), int | float) for name in numbers)
    return account if good and {"per", "mechanism"} <= account.keys() else {}


sections.add(ReportSection("privacy", 95, TITLE, build, lambda run: bool(account_of(run)), once=True))
