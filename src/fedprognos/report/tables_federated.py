"""Tables of a federation: what matching did layer by layer, and what left each site."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedprognos.report.figures_matching import sharing
from fedprognos.report.looks import client_colours
from fedprognos.report.material import Setting
from fedprognos.report.records import LayerMatch, SiteLedger
from fedprognos.report.tables import Cell, ClientRow
from fedprognos.report.words import count, percent, plural, size

ABSORBING = {
    "all kept": "all kept: nothing was merged, the layer is the concatenation of all clients",
    "all merged": "all merged: as few neurons as the widest client has",
    "neither": "some merged, some kept",
}
KINDS = {
    "SurveyReply": "numbers of rows, means and sums of squares of the columns and labels (moments), for scaling",
    "BringReply": "a network the client had trained earlier: its weights and the scaling it was trained with",
    "FitReply": "weights after training on the site, the number of windows, and the error of every epoch",
    "ExamineReply": "sums of errors on what was kept out of training and, for the exact head, sums of products of "
    "the network’s features with each other and with the labels (H′H, H′y)",
    "PersonalReply": "only that a head of the client’s own was made; the head stays",
    "ResidualReply": "how many errors fall between given edges",
    "ScoreReply": "sums of the finished model’s errors on the site’s own test units and on what training kept out",
    "HelloReply": "the site’s name, version and column names, and a seal that changes with its data",
    "RefusalReply": "only that the site heard why it cannot take part",
    "DeliverReply": "only that the finished model was kept",
    "Failure": "that the client could not answer, without details",
}


@dataclass(frozen=True)
class MatchRow:
    """One layer matched in one round."""

    method: str
    round: int
    layer: str
    cells: tuple[Cell, ...]
    outcome: str


MATCH_COLUMNS = (
    ("Own neurons", "neurons of all clients together, before matching"),
    ("Federated L′", "neurons of the federated layer"),
    ("In all", "share of the federated neurons that all clients have"),
    ("In several", "share that more than one client has, but not all"),
    ("In one", "share that a single client has"),
    ("Singletons", "from the client with the fewest neurons of its own to the one with the most"),
)


def match_rows(setting: Setting) -> list[MatchRow]:
    """Every matching of the first seed, in order."""
    return [
        MatchRow(method, r.round, layer.layer, _match_cells(layer), ABSORBING.get(layer.absorbing, layer.absorbing))
        for method, rounds in setting.matchings.items()
        for r in rounds
        for layer in r.layers
    ]


def _match_cells(layer: LayerMatch) -> tuple[Cell, ...]:
    _, edges = sharing(layer)
    parts = [edges[1], edges[2] - edges[1], edges[3] - edges[2]]
    total = sum(len(mine) for mine in layer.assignments.values())
    holders = layer.holders()
    own = sorted(sum(holders[g] == 1 for g in mine) for mine in layer.assignments.values()) or [0]
    singles = f"{own[0]}" if own[0] == own[-1] else f"{own[0]} to {own[-1]}"
    shares = [Cell(percent(n / layer.width), n / layer.width, f"({n})") if layer.width else Cell("–") for n in parts]
    return (Cell(count(total), total), Cell(count(layer.width), layer.width), *shares, Cell(singles, own[-1]))


@dataclass(frozen=True)
class Ledger:
    """What left the sites: kinds of messages, a row a site, what each kind holds, and what could not be read."""

    kinds: tuple[str, ...]
    rows: tuple[ClientRow, ...]
    meanings: tuple[tuple[str, str], ...]
    total: str
    notes: tuple[str, ...]


def ledger(setting: Setting) -> Ledger | None:
    """The ledgers of a setting added up; None where there are none."""
    if not setting.ledgers:
        return None
    found = {kind for site in setting.ledgers for kind in site.kinds}
    kinds = [*(kind for kind in KINDS if kind in found), *sorted(found - set(KINDS))]
    colours = client_colours(setting.clients)
    rows = [ClientRow(s.site, colours.get(s.site, "muted"), _ledger_cells(s, kinds)) for s in setting.ledgers]
    unknown = "this report does not know this kind, so it cannot say what it holds"
    notes = [
        f"{plural(site.unreadable, 'line')} of the ledger of {site.site} cannot be read and is missing here."
        for site in setting.ledgers
        if site.unreadable
    ]
    if lacking := sorted(set(setting.clients) - {site.site for site in setting.ledgers}):
        notes.append(f"No ledger was found for: {', '.join(lacking)}.")
    messages, moved = (sum(pair[k] for s in setting.ledgers for pair in s.kinds.values()) for k in (0, 1))
    total = f"{plural(messages, 'message')}, {size(moved)}"
    return Ledger(tuple(kinds), tuple(rows), tuple((k, KINDS.get(k, unknown)) for k in kinds), total, tuple(notes))


def _ledger_cells(site: SiteLedger, kinds: Sequence[str]) -> tuple[Cell, ...]:
    cells = [_moved(*site.kinds[kind]) if kind in site.kinds else Cell("–") for kind in kinds]
    messages, moved = (sum(pair[k] for pair in site.kinds.values()) for k in (0, 1))
    return (*cells, _moved(messages, moved))


def _moved(messages: int, moved: int) -> Cell:
    return Cell(size(moved), float(moved), plural(messages, "message"))
