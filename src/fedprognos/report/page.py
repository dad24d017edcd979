"""Putting the page together: every section that applies, of every scenario, into one file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from fedprognos.files import write_text
from fedprognos.report.page_elements import Figure, Section
from fedprognos.report.run_data import RunData, read_run
from fedprognos.report.sections import ReportSection, sections
from fedprognos.report.verdict import answer

NAME = "report.html"


@dataclass(frozen=True, eq=False)
class Block:
    """A section as it stands on the page: its content for each scenario that has any, by the scenario's number."""

    about: ReportSection
    built: Sequence[tuple[int, Section]]

    @property
    def folded(self) -> bool:
        """Whether it stays closed until somebody asks."""
        return all(section.folded for _, section in self.built)


def write_report(folder: str | Path, runs: Sequence[RunData] | None = None) -> Path:
    """Write `report.html` into a run's folder: one self-contained file that works offline.

    The same folder always gives the same bytes. Whatever a run did not write (predictions, trajectories, match records,
    ledgers) is left out with a word about why.

    Parameters
    ----------
    folder
        What `fedprognos run` wrote.
    runs
        What :func:`read_run` found there, where that was read already.

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
    path = Path(folder) / NAME
    write_text(path, render(read_run(folder) if runs is None else runs))
    return path


def render(runs: Sequence[RunData]) -> str:
    """The page as text."""
    blocks = [block for about in sections.values() if (block := _block(about, runs)).built]
    figures = {name: f.as_json() for b in blocks for k, s in b.built for name, f in _figures(f"{b.about.name}{k}", s)}
    scripts = {"plotly": get_plotlyjs(), "page": _resource("report_page.js")}
    results, provenance = runs[0].results, runs[0].provenance
    return (
        _templates()
        .get_template("template.html")
        .render(
            title=results.config.get("title") or results.experiment,
            results=results,
            finished=str(provenance.get("finished", ""))[:10],
            scenarios=[(run.scenario, answer(run).headline) for run in runs],
            blocks=blocks,
            policy=_policy(scripts.values()),
            style=Markup(_resource("style.css")),  # noqa: S704 - our own file
            scripts={name: Markup(text) for name, text in scripts.items()},  # noqa: S704 - our own and plotly's
            data=Markup(script_json(figures)),  # noqa: S704 - escaped for a script element
        )
    )


def _block(about: ReportSection, runs: Sequence[RunData]) -> Block:
    wanted = list(enumerate(runs))[: 1 if about.once else None]
    return Block(about, [(k, about.build(run)) for k, run in wanted if about.applies(run)])


def _figures(prefix: str, section: Section) -> Iterator[tuple[str, Figure]]:
    """Figures of a section and its parts, by the id the page gives them."""
    for figure in section.figures:
        yield f"{prefix}-{figure.name}", figure
    for part in section.parts:
        yield from _figures(prefix, part)


@cache
def _templates() -> Environment:
    return Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(_resource),
    )


def script_json(value: Any) -> str:
    """JSON that may stand inside a script element: nothing in it can end the element.

    >>> script_json({"unit": "</script>"})
    '{"unit":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _policy(scripts: Iterable[str]) -> str:
    """A content security policy: these very scripts may run, and nothing may be loaded."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    allowed = " ".join(f"'sha256-{h}'" for h in hashes)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"


def _resource(name: str) -> str:
    return (resources.files("fedprognos.report") / name).read_text("utf-8")
