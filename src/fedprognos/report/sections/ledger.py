"""What left each site: the sites' own ledgers, added up. And what the published model may tell of any unit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from fedprognos.federation.exchanges import reply_order, words_for
from fedprognos.report.number_words import number, plural, size
from fedprognos.report.page_elements import Column, Line, Section, Table, TableCell
from fedprognos.report.run_data import RunData
from fedprognos.report.sections import ReportSection, sections
from fedprognos.report.style import client_colours

TITLE = "What left each site"
POOLED = "(pooled)"
"""The folder of the pretended client behind central training, which is no site."""
UNKNOWN = "a kind of message that this version does not know"


@dataclass(frozen=True)
class SiteMessages:
    """Messages that left a site, by kind: their number and bytes; and lines that could not be read."""

    site: str
    kinds: Mapping[str, tuple[int, int]]
    unreadable: int

    @property
    def total(self) -> tuple[int, int]:
        """Number and bytes of all messages."""
        return sum(n for n, _ in self.kinds.values()), sum(size for _, size in self.kinds.values())


def build(run: RunData) -> Section:
    """Sizes and numbers of messages by site and kind, and what each kind holds."""
    ledgers = read_ledgers(run.folder, run.scenario)
    if not ledgers:
        lead = f"The run's folder has no ledgers of the scenario {run.scenario} in sites/."
        return Section(TITLE, lead, folded=True)
    sent, order = {kind for site in ledgers for kind in site.kinds}, reply_order()
    kinds = [*(kind for kind in order if kind in sent), *sorted(sent - set(order))]
    colours = client_colours(run.clients)
    lines = [Line(s.site, _cells(s, kinds), colours.get(s.site, "muted")) for s in ledgers]
    lost = [(plural(s.unreadable, "line"), s.site) for s in ledgers if s.unreadable]
    warnings = [f"{many} of the ledger of {site} cannot be read and is missing here." for many, site in lost]
    if lacking := sorted(set(run.clients) - {site.site for site in ledgers}):
        warnings.append(f"No ledger was found for: {', '.join(lacking)}.")
    messages, moved = (sum(site.total[k] for site in ledgers) for k in (0, 1))
    lead = f"{plural(messages, 'message')}, {size(moved)}, all methods and seeds together."
    lead += " No rows of data, no names of units, no times."
    columns = [*(Column(kind) for kind in kinds), Column("All")]
    table = Table("Answers that sites sent, from their own ledgers: size and number.", "Site", columns, lines)
    terms = [(kind, words.leaves if (words := words_for(kind)) else UNKNOWN) for kind in kinds]
    return Section(TITLE, lead, warnings=warnings, tables=[table], terms=terms, folded=True)


def _cells(site: SiteMessages, kinds: Sequence[str]) -> list[TableCell]:
    sent = [site.kinds.get(kind, (0, 0)) for kind in kinds] + [site.total]
    return [TableCell(size(moved), float(moved), f"{n}×") if n else TableCell("–") for n, moved in sent]


def read_ledgers(folder: Path, scenario: str) -> list[SiteMessages]:
    """Every site's ledger in order of name."""
    places = [path for path in sorted((folder / "sites").glob("*")) if unquote(path.name) == scenario]
    files = [file for place in places for file in sorted(place.glob("*/ledger.jsonl"))]
    return [_read(file) for file in files if file.parent.name != POOLED]


def _read(path: Path) -> SiteMessages:
    kinds: dict[str, tuple[int, int]] = {}
    unreadable = 0
    for text in path.read_text("utf-8", errors="replace").splitlines():
        try:
            raw = json.loads(text)
            kind, moved = str(raw["kind"]), int(raw["bytes"])
        except (ValueError, KeyError, TypeError):
            unreadable += 1
            continue
        messages, total = kinds.get(kind, (0, 0))
        kinds[kind] = (messages + 1, total + moved)
    return SiteMessages(unquote(path.parent.name), kinds, unreadable)


sections.add(ReportSection("ledger", 100, TITLE, build, lambda run: run.roles.together is not None))


PRIVACY = "Differential privacy"
ACCOUNT = (
    Column("Epsilon", "What all releases of the run spend together on the data of a client."),
    Column("Delta", "The chance that the bound does not hold."),
    Column("Releases", "Noised sums that each client sent: all methods, seeds and folds."),
    Column("Noise", "Deviation, in multiples of the most that one unit or row can change."),
    Column("Mechanism"),
)


def build_privacy(run: RunData) -> Section:
    """A sentence and the account."""
    account = account_of(run)
    hidden = "unit" if account["per"] == "unit" else "labelled row"
    lead = (
        f"With or without any one {hidden} in the training data, the chance of any result differs by at most a factor "
        f"of exp({number(account['epsilon'])}), except with a chance of {account['delta']:g}."
    )
    cells = [
        TableCell(number(account["epsilon"]), account["epsilon"]),
        TableCell(f"{account['delta']:g}", account["delta"]),
        TableCell(str(account["releases"]), account["releases"]),
        TableCell(number(account["noise"]), account["noise"]),
        TableCell(str(account["mechanism"])),
    ]
    table = Table("The account of this run.", "Hidden", list(ACCOUNT), [Line(hidden, cells)])
    words = ["Not covered: moments of the columns, and errors on test units. Other runs on the same data add up."]
    return Section(PRIVACY, lead, tables=[table], words=words)


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


sections.add(ReportSection("privacy", 95, PRIVACY, build_privacy, lambda run: bool(account_of(run)), once=True))
