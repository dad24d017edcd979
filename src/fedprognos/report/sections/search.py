"""How the recipe was found: what was tried on training units kept out, and by how much the choice is better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedprognos.files import read_json
from fedprognos.report.number_words import number, percent, plural, whole
from fedprognos.report.page_elements import Column, Line, Section, Table, TableCell
from fedprognos.report.run_data import RunData
from fedprognos.report.sections import ReportSection, sections

FILE = "search.json"
DEPLOY = (
    "Sites of a deployment do not search. The experiment with this choice is chosen.toml in the folder of the run: "
    "fedprognos deploy run chosen.toml."
)
COLUMNS = (
    Column("Steps", "Training steps of each client."),
    Column("Error", "On training units that clients kept out, labels capped. No test unit is among them."),
    Column("Clients that gain", "Clients whose own kept-out units have less error than with the recipe as proposed."),
)


def build(run: RunData) -> Section:
    """A line a trial."""
    record = read_json(run.folder / FILE)
    trials = record["trials"]
    lines = [_line(trial, trials) for trial in trials]
    spent = (
        f"The budget was {whole(record['budget_in_steps'])} training steps of all clients together, this run included."
    )
    table = Table(f"Every recipe that was tried, {run.measured}. {spent}", "Recipe", COLUMNS, lines)
    return Section("How the recipe was found", _lead(record), words=[DEPLOY], tables=[table], folded=True)


def _lead(record: Mapping[str, Any]) -> str:
    """What was chosen, from what, and by how much."""
    chosen = [t for t in record["trials"] if t["label"] == record["chosen"] and t["steps"] == record["steps"]]
    proposed = [t for t in record["trials"] if t["label"] == record["trials"][0]["label"]]
    tried = plural(len({t["label"] for t in record["trials"]}), "recipe")
    if len({t["label"] for t in record["trials"]}) == 1:
        return "The time was too short to try another recipe than the one proposed. Give more: --budget."
    before = max(proposed, key=lambda t: t["steps"] if t["steps"] <= record["steps"] else 0)["error"]
    if not chosen or chosen[0] in proposed or not before or not chosen[0]["error"]:
        return f"{tried} tried on units kept out; none was clearly better than the one proposed."
    gain = percent(1 - chosen[0]["error"] / before)
    return f"{tried} tried on units kept out. Chosen: {record['chosen']}, with {gain} less error than as proposed."


def _line(trial: Mapping[str, Any], trials: list[Mapping[str, Any]]) -> Line:
    beside = next((t for t in trials if t["steps"] == trial["steps"] and t["label"] == trials[0]["label"]), trials[0])
    shared = trial["votes"].keys() & beside["votes"].keys()
    gaining = sum(trial["votes"][name] < beside["votes"][name] for name in shared)
    votes = f"{gaining} of {len(shared)}" if shared and trial is not beside else "\u2013"
    error = TableCell(number(trial["error"]), trial["error"], note="" if trial["error"] else "could not be trained")
    steps = TableCell(whole(trial["steps"]), trial["steps"])
    return Line(trial["label"], [steps, error, TableCell(votes, gaining if shared else None)])


def _applies(run: RunData) -> bool:
    return (run.folder / FILE).is_file()


sections.add(ReportSection("search", 14, "How the recipe was found", build, _applies, once=True))
