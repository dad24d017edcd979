"""docs/results.md from the JSON files: nothing on it is typed that a file knows."""

from __future__ import annotations

from pathlib import Path

from experiments.paper import paper
from experiments.places import QUICK, Places
from experiments.record import Record, read_record
from experiments.tables_paper import battery_table, turbofan_table
from fedprognos.files import write_text

NOT_RECORDS = (".times", "complexity")


def write_page(where: Places) -> Path:
    """Write the page and its pictures."""
    write_text(where.page, page(read_all(where)))
    return where.page


def read_all(where: Places) -> dict[str, Record]:
    """Every record there is, by the name of its preset without `-quick`; those of :mod:`experiments.places` first."""
    paths = sorted(where.folder.glob("*.json"))
    known = [p for p in paths if not p.stem.endswith(NOT_RECORDS)]
    known.sort(key=lambda p: (p.stem not in where.presets, p.stem))
    return {p.stem.removesuffix(QUICK): read_record(p) for p in known}


def page(records: dict[str, Record]) -> str:
    """The page as text."""
    printed = paper()
    parts = ["# Results"]
    parts += [
        "## Batteries",
        battery_table(printed.battery, records.get("battery-paper"), records.get("battery-tuned")),
    ]
    turbofan = turbofan_table(printed.turbofan, records.get("turbofan-paper"), records.get("turbofan-tuned"))
    parts += ["## Turbofan engines (FD004)", turbofan]
    return "\n\n".join(parts) + "\n"
