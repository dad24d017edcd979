"""docs/results.md and its pictures from the JSON files: nothing on the page is typed that a file knows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.page_parts import experiment_part, facts_part, made_part, width_part
from experiments.paper import paper
from experiments.pictures import Picture, pictures
from experiments.places import CHOICES, COMPLEXITY, QUICK, REMARKS, RIDGE, Places
from experiments.record import Record, read_record
from experiments.tables_bars import bars_table
from experiments.tables_choices import choices_part
from experiments.tables_complexity import matchings_table, models_table, orders_table, slip
from fedprognos.errors import DataError
from fedprognos.files import write_text

INTRODUCTION = """\
The paper's two experiments again, on NASA's data: its protocol, in the size each part states, and ours.
Every number and picture on this page is made by `make results` from the files beside it; nothing is typed.
Errors are RMSE, pooled over all test points; ± is the standard deviation over seeds."""
BARS = """\
Set before these runs, after trials with a few seeds. FedMA is held to them, and beside it `concat`, which keeps
every client's neurons and merges none. The errors are those of the head that the preset publishes."""

COSTS = """\
Counted and timed on the models of seed 0, one thread: a client's own and the federated ones of the first setting.
FLOPs are those of the matrix products, a multiplication and an addition a weight and time step; a federated layer
that falls apart into blocks is timed as blocks and needs fewer."""


def write_page(where: Places) -> Path:
    """Write the page and its pictures; pictures that no file asks for any more are removed."""
    files = page_files(where)
    for old in where.folder.glob("*.svg"):
        if old not in files:
            old.unlink()
    for path, text in files.items():
        write_text(path, text)
    return where.page


def page_files(where: Places) -> dict[Path, str]:
    """The page and its pictures, by path."""
    records = read_all(where)
    if not records:
        raise DataError("no results", where=str(where.folder), hint="python -m experiments results")
    drawn = {found.name: found for found in pictures(records)}
    costs, chosen = (_measured(where.folder / name) for name in (COMPLEXITY, CHOICES))
    text = page(records, drawn, costs, chosen, _remarks(where.folder / REMARKS))
    files = {where.folder / f"{name}.svg": found.svg for name, found in drawn.items()}
    return {**files, where.page: text}


def read_all(where: Places) -> dict[str, Record]:
    """Every record there is, by the name of its preset without `-quick`."""
    paths = sorted(where.folder.glob("*.json"))
    known = [p for p in paths if p.name not in (COMPLEXITY, RIDGE, CHOICES) and not p.stem.endswith(".times")]
    known.sort(key=lambda p: (p.stem not in where.presets, p.stem))
    return {p.stem.removesuffix(QUICK): read_record(p) for p in known}


def page(
    records: Mapping[str, Record],
    drawn: Mapping[str, Picture],
    costs: Mapping[str, Any] | None,
    chosen: Mapping[str, Any] | None,
    remarks: Mapping[str, str],
) -> str:
    """The page as text."""
    printed = paper()
    parts = ["# Results", INTRODUCTION, remarks.get("summary", "")]
    parts += ["## The bars", BARS, bars_table(printed, records), remarks.get("bars", "")]
    parts += experiment_part("battery", printed.battery, records, drawn)
    parts.append(remarks.get("battery", ""))
    parts += experiment_part("turbofan", printed.turbofan, records, drawn)
    parts += [*(choices_part(chosen) if chosen is not None else ()), remarks.get("turbofan", "")]
    parts += [*width_part(records, drawn), remarks.get("width", "")]
    if costs is not None:
        parts += ["## What it costs", COSTS, models_table(costs), slip(printed.complexity)]
        parts += [matchings_table(costs), orders_table(printed.complexity), remarks.get("complexity", "")]
    parts += [*facts_part(records), *made_part(records)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _measured(path: Path) -> Mapping[str, Any] | None:
    if not path.is_file():
        return None
    found: Mapping[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def _remarks(path: Path) -> dict[str, str]:
    """What people have to say, by the part of the page it belongs to: `## battery` and so on."""
    if not path.is_file():
        return {}
    found: dict[str, str] = {}
    for piece in ("\n" + path.read_text("utf-8")).split("\n## ")[1:]:
        name, _, text = piece.partition("\n")
        found[name.strip()] = text.strip()
    return found
