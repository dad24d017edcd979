"""docs/results.md, the tables behind it, the pages of the studies, and their pictures, all from the JSON files.

No number is typed that a file holds. What people conclude is in remarks.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from fedprognos.errors import DataError
from fedprognos.files import read_json, write_text
from studies import (
    absorb_widths,
    few_machines,
    intervals,
    merging_rivals,
    own_tables,
    paper_controls,
    paper_factors,
    still_running,
)
from studies.lines import comparisons
from studies.markdown import shown
from studies.paper import paper
from studies.pictures import Picture, pictures
from studies.places import LIFE, REMARKS, TIMES, Places
from studies.record import Record, changed_options, read_record
from studies.study import page as study_page
from studies.tables_bars import bars_table
from studies.tables_comparison import OURS, glance_table
from studies.tables_page import TITLES, tables_page

INTRODUCTION = """\
The two experiments of [the paper](https://doi.org/10.1109/TASE.2023.3274648) (Arunan et al., 2023) on NASA's
data: once with the paper's protocol, once as we tuned them. Errors are RMSE, pooled over all test points. ± is the
standard deviation over seeds. [All tables](results/tables.md) are on a page of their own. `python -m studies page`
makes both from the runs' own files, `make results` runs everything again."""
TARGETS = """\
All targets followed trials with a few seeds. Git history shows those of windows, batteries and the literature's scoring
before the runs below. Those of `turbofan-life` came while its run was under way, that of the reservoir four minutes
after its run. Concat keeps every client's neurons and merges none; Absorb folds those that others already extract into
them. Errors are those of the head that the preset publishes."""
GLANCE = """\
`{preset}`, {head} head, clients {clients}. {rivals}Bold: the lowest error."""
RIVALS = (
    "Concat, Absorb and what trains no network have this head; all others stand at the head that is best on the test, "
    "which favours them. "
)
OUTDATED = """\
**Made before the presets changed.** These presets have other options today than in the runs behind these pages, so that
running them again gives other numbers. Options that are new since then are not compared."""
STUDY_PAGE = Path("docs/study.md")
LIVES = """\
## Turbofan engines, read from their first row on

A window shows the last 50 cycles. These networks read an engine's whole life, and every epoch shows it at another pace:
see [whole lives](whole-life.md)."""


def write_page(where: Places) -> Path:
    """Write the pages and their pictures; pictures that no page shows any more are removed."""
    files = page_files(where)
    for old in where.folder.glob("*.svg"):
        if old not in files:
            old.unlink()
    for path, text in files.items():
        write_text(path, text)
    return where.page


def page_files(where: Places) -> dict[Path, str]:
    """The pages and their pictures, by path."""
    records = read_all(where)
    if not records:
        raise DataError("no results", where=str(where.folder), hint="python -m studies results")
    drawn = {picture.name: picture for picture in pictures(records)}
    remarks = _remarks(where.folder / REMARKS)
    files = {where.folder / f"{name}.svg": picture.svg for name, picture in drawn.items()}
    files[where.page] = _text(conclusions(records, drawn, remarks))
    files[where.tables] = _text(tables_page(records, drawn, remarks))
    return files


def study_files() -> dict[Path, str]:
    """The committed pages of the studies and their pictures, by path."""
    files = {few_machines.PICTURE: few_machines.picture(read_json(few_machines.RESULTS))}
    files[STUDY_PAGE] = study_page.page(STUDY_PAGE.with_suffix(""))
    pages = {
        study.RESULTS: study.page
        for study in (
            absorb_widths,
            few_machines,
            intervals,
            merging_rivals,
            own_tables,
            paper_factors,
            still_running,
        )
    }
    pages |= {table.results: partial(paper_controls.page, table) for table in paper_controls.TABLES}
    measured = {results: page for results, page in pages.items() if results.is_file()}
    return files | {results.with_suffix(".md"): page(read_json(results)) for results, page in measured.items()}


def read_all(where: Places) -> dict[str, Record]:
    """Every record there is, by the name of its preset; a record has its times beside it."""
    presets = [path.name.removesuffix(TIMES) for path in where.folder.glob(f"*{TIMES}")]
    presets.sort(key=lambda preset: (preset not in where.presets, preset))
    days = {preset: str(read_json(where.times(preset)).get("finished", ""))[:10] for preset in presets}
    return {preset: replace(read_record(where.json(preset)), finished=days[preset]) for preset in presets}


def conclusions(records: Mapping[str, Record], drawn: Mapping[str, Picture], remarks: Mapping[str, str]) -> list[str]:
    """What the experiments say, with the tables and pictures that show it."""
    parts = ["# Results", INTRODUCTION, remarks.get("summary", ""), *_outdated(records)]
    parts += ["## Targets", TARGETS, bars_table(paper(), records), remarks.get("targets", "")]
    parts += _whole_lives(records, drawn, remarks)
    for kind, title in TITLES.items():
        tuned = records.get(f"{kind}-tuned")
        if tuned is not None:
            linear = records.get(f"{kind}-linear")
            parts += [title, *(_glance(linear) if linear is not None else []), *_glance(tuned)]
            parts.append(shown(drawn, f"{tuned.preset}-predictions", "results/"))
            parts.append(remarks.get(kind, ""))
    return parts


def _whole_lives(records: Mapping[str, Record], drawn: Mapping[str, Picture], remarks: Mapping[str, str]) -> list[str]:
    """Networks that read whole lives, preset by preset."""
    shown_records = [records[preset] for preset in LIFE if preset in records]
    parts = [LIVES] if shown_records else []
    for record in shown_records:
        parts += [f"### {record.results.config['title']}", *_glance(record)]
        parts += [shown(drawn, f"{record.preset}-predictions", "results/"), remarks.get(record.preset, "")]
    return parts


def _outdated(records: Mapping[str, Record]) -> list[str]:
    """Which numbers are not those of today's presets."""
    outdated = {record.preset: changed for record in records.values() if (changed := changed_options(record))}
    lines = [f"- `{preset}`: {', '.join(f'`{key}`' for key in changed)}" for preset, changed in outdated.items()]
    return [OUTDATED, "\n".join(lines)] if lines else []


def _glance(tuned: Record) -> list[str]:
    """The first scenario at the head that is published, beside ridge regression."""
    compared = comparisons(tuned)[0]
    trained = {line.name for line in compared.lines if line.method.kind != "baseline"}
    rivals = RIVALS if trained - OURS and len({line.head for line in compared.lines} - {None}) > 1 else ""
    clients = ", ".join(compared.clients)
    words = GLANCE.format(preset=tuned.preset, clients=clients, head=compared.main_head, rivals=rivals)
    return [words, glance_table(compared)]


def _text(parts: list[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


def _remarks(path: Path) -> dict[str, str]:
    """What people have to say, by the part of the pages it belongs to: `## battery` and so on."""
    if not path.is_file():
        return {}
    remarks: dict[str, str] = {}
    for piece in ("\n" + path.read_text("utf-8")).split("\n## ")[1:]:
        name, _, text = piece.partition("\n")
        remarks[name.strip()] = text.strip()
    return remarks
