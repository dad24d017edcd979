"""Putting the page together: figures and tables of every setting into one file that loads nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from fedprognos.files import write_text
from fedprognos.report.entries import NOT_FEDERATED, entries, views
from fedprognos.report.figures_decisions import decision_figures
from fedprognos.report.figures_errors import errors_figure
from fedprognos.report.figures_fleet import fleet_figures
from fedprognos.report.figures_intervals import interval_figure
from fedprognos.report.figures_matching import matching_figures
from fedprognos.report.figures_methods import error_figure, history_figure
from fedprognos.report.figures_predictions import prediction_figures
from fedprognos.report.figures_rounds import rounds_figure
from fedprognos.report.figures_traffic import traffic_figure
from fedprognos.report.glossary import glossary
from fedprognos.report.judging import followed, judged
from fedprognos.report.looks import Figure, Palette
from fedprognos.report.material import EVERYONE, Material, Setting, read_material
from fedprognos.report.tables import (
    ClientRow,
    Column,
    MethodRow,
    client_columns,
    client_rows,
    columns,
    facts,
    method_rows,
)
from fedprognos.report.tables_decisions import DecisionRow, decision_columns, decision_rows
from fedprognos.report.tables_federated import MATCH_COLUMNS, Ledger, MatchRow, ledger, match_rows
from fedprognos.report.verdict import Verdict, verdict

NAME = "report.html"


@dataclass(frozen=True, eq=False)
class Block:
    """What the page shows of one setting."""

    setting: Setting
    verdict: Verdict
    client_columns: Sequence[str]
    clients: Sequence[ClientRow]
    fleet: Sequence[Figure]
    errors: Sequence[Figure]
    columns: Sequence[Column]
    tables: Sequence[tuple[str, int, Sequence[MethodRow]]]
    predictions: Sequence[Figure]
    by_life: Sequence[Figure]
    decision_columns: Sequence[tuple[str, str]]
    decision_rows: Sequence[DecisionRow]
    decisions: Sequence[Figure]
    history: Sequence[Figure]
    rounds: Sequence[Figure]
    traffic: Sequence[Figure]
    match_rows: Sequence[MatchRow]
    matching: Sequence[Figure]
    ledger: Ledger | None

    @property
    def figures(self) -> list[Figure]:
        """All of them, in the order of the page."""
        federation = (*self.rounds, *self.traffic, *self.matching)
        first = (*self.fleet, *self.errors, *self.predictions, *self.by_life, *self.decisions)
        return [*first, *federation, *self.history]


def write_report(folder: str | Path) -> Path:
    """Write `report.html` into a run's folder: one self-contained file that works offline.

    The same folder always gives the same bytes. Whatever a run did not write (portraits of the fleet,
    predictions, matchings, ledgers) is left out with a word about why.

    Parameters
    ----------
    folder
        What `fedprognos run` wrote: `results.json`, and where they are `predictions/`, `fleets/`, `details/`,
        `sites/` and `provenance.json`.

    Returns
    -------
    Path
        The file written.

    Raises
    ------
    DataError
        Where the folder holds no readable `results.json`.
    OutputError
        Where the file cannot be written; an earlier report then stays as it was.
    """
    folder = Path(folder)
    path = folder / NAME
    write_text(path, render(read_material(folder)))
    return path


def render(material: Material) -> str:
    """The page as text."""
    palette = Palette((row.method for row in material.results.rows), material.head)
    blocks = [_block(material, setting, palette, k) for k, setting in enumerate(material.settings)]
    figures = {figure.id: figure.as_json() for block in blocks for figure in block.figures}
    scripts = {"plotly": get_plotlyjs(), "page": _resource("page.js")}
    return (
        _templates()
        .get_template("template.html")
        .render(
            title=material.results.config.get("title") or material.results.experiment,
            results=material.results,
            material=material,
            blocks=blocks,
            several_heads=len(material.heads) > 1,
            federated=any(row.method.partition("+")[0] not in NOT_FEDERATED for row in material.results.rows),
            match_columns=MATCH_COLUMNS,
            facts=facts(material),
            finished=str(material.provenance.get("finished", ""))[:10],
            command=f"fedprognos run {shlex.quote(material.results.experiment)}",
            config=toml(material.results.config),
            glossary=glossary(material),
            policy=_policy(scripts.values()),
            style=Markup(_resource("style.css")),  # noqa: S704 - our own file
            scripts={name: Markup(text) for name, text in scripts.items()},  # noqa: S704 - our own and plotly's
            data=Markup(script_json(figures)),  # noqa: S704 - escaped for a script element
        )
    )


@cache
def _templates() -> Environment:
    return Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(_resource),
    )


def _block(material: Material, setting: Setting, palette: Palette, number: int) -> Block:
    seen = {view: entries(material, setting, view) for view in views(setting)}
    found = seen[EVERYONE]
    shown = columns(found)
    decisions = judged(material, setting, found)
    return Block(
        setting,
        verdict(material, setting, found),
        client_columns(setting.fleet) if setting.fleet is not None else [],
        client_rows(setting.fleet) if setting.fleet is not None else [],
        fleet_figures(setting, number),
        _there(error_figure(material, setting, seen, palette, number)),
        shown,
        [
            (view, max(e.n_test for e in seen[view]), method_rows(seen[view], shown, palette, material.head))
            for view in seen
            if seen[view]
        ],
        [
            *prediction_figures(material, setting, found, palette, number),
            *_there(interval_figure(material, setting, found, palette, number)),
        ],
        _there(errors_figure(material, setting, found, palette, number)),
        decision_columns(material.unit, followed(setting)),
        decision_rows(decisions, palette),
        decision_figures(material, setting, decisions, palette, number),
        _there(history_figure(material, setting, palette, number)),
        _there(rounds_figure(material, setting, seen, palette, number)),
        _there(traffic_figure(material, setting, found, palette, number)),
        match_rows(setting),
        matching_figures(setting, number),
        ledger(setting),
    )


def _there(figure: Figure | None) -> list[Figure]:
    return [figure] if figure is not None else []


def script_json(value: Any) -> str:
    """JSON that may stand inside a script element: nothing in it can end the element.

    >>> script_json({"unit": "</script>"})
    '{"unit":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _policy(scripts: Any) -> str:
    """A content security policy: these very scripts may run, and nothing may be loaded."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    allowed = " ".join(f"'sha256-{h}'" for h in hashes)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"


def _resource(name: str) -> str:
    return (resources.files("fedprognos.report") / name).read_text("utf-8")


def toml(config: Mapping[str, Any]) -> str:
    """The experiment as TOML, close to how one would have written it; what was left open is left out.

    >>> print(toml({"title": "t", "train": {"epochs": 3, "clip": None}}))
    title = "t"
    <BLANKLINE>
    [train]
    epochs = 3
    """
    lines = [f"{key} = {_value(value)}" for key, value in config.items() if not isinstance(value, dict)]
    for name, section in config.items():
        if not isinstance(section, dict):
            continue
        tables = {name: section}
        if section and all(isinstance(v, dict) for v in section.values()):
            tables = {f"{name}.{key}": value for key, value in section.items()}
        for title, table in tables.items():
            lines += ["", f"[{title}]"]
            lines += [f"{key} = {_value(value)}" for key, value in table.items() if value is not None]
    return "\n".join(lines)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_value(v)}" for k, v in value.items()) + " }" if value else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    return json.dumps(value, ensure_ascii=False)
