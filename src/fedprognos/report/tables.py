"""The tables of the report as plain cells: the fleet by client, the methods by metric."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedprognos.report.choosing import comparable
from fedprognos.report.entries import Entry
from fedprognos.report.looks import Palette, client_colours
from fedprognos.report.material import Material
from fedprognos.report.words import count, number, percent


@dataclass(frozen=True)
class Column:
    """A column of the table of methods; `better` turns a mean into what is to be small, None marks no best."""

    field: str
    title: str
    hint: str
    better: Callable[[float], float] | None = None
    spread: bool = False
    percent: bool = False


@dataclass(frozen=True)
class Cell:
    """A number as shown, the value it is sorted by, and whether it is the best of its column."""

    text: str
    sort: float | None = None
    spread: str = ""
    best: bool = False


@dataclass(frozen=True)
class MethodRow:
    """A line of the table of methods."""

    method: str
    head: str
    scope: str
    remark: str
    colour: str
    kind: str
    collapsed: int
    partial: bool
    cells: tuple[Cell, ...]


COLUMNS = (
    Column("rmse", "RMSE", "root mean squared error against raw labels", abs, spread=True),
    Column("rmse_capped", "RMSE capped", "root mean squared error against capped labels", abs, spread=True),
    Column("mae", "MAE", "mean absolute error", abs),
    Column("r2", "R²", "share of the labels' variance explained", lambda v: -v),
    Column("bias", "Bias", "mean of predicted minus true", abs),
    Column("nasa_score_mean", "NASA score", "mean penalty a point, late costs more than early", abs),
    Column("late_rate", "Late", "share of points whose health is overestimated", percent=True),
    Column("coverage", "Coverage", "share of true values inside their prediction interval", percent=True),
    Column("interval_width", "Interval width", "mean width of prediction intervals"),
    Column("n_test", "Points", "test points"),
    Column("n_units", "Units", "test units"),
    Column("width", "Width", "neurons of each layer"),
    Column(
        "bytes", "Traffic in MB", "all messages up to the chosen round; for central the raw data that had to be pooled"
    ),
    Column("round", "Round", "the round that was chosen"),
    Column("parameters", "Parameters", "trained numbers in the network"),
)


def columns(found: Sequence[Entry]) -> list[Column]:
    """The columns that have a value anywhere."""
    one_point_a_unit = all(row.n_units == row.n_test for e in found for row in e.rows)
    federated = any(e.is_federated for e in found)
    shown = [c for c in COLUMNS if any(getattr(row, c.field, None) is not None for e in found for row in e.rows)]
    left_out = {"n_units"} if one_point_a_unit else set()
    left_out |= {"n_test"} if len({row.n_test for e in found for row in e.rows}) == 1 else set()
    left_out |= set() if federated else {"width", "round", "bytes"}
    return [c for c in shown if c.field not in left_out]


def method_rows(found: Sequence[Entry], shown: Sequence[Column], palette: Palette, head: str | None) -> list[MethodRow]:
    """Lines of the table, the best value of each column marked; `head` is the one that figures show."""
    fair = comparable(found)
    whole = max((e.n_test for e in found), default=0)
    best: dict[str, float] = {}
    for column in shown:
        if column.better is not None and len(fair) > 1:
            means = [column.better(m) for e in fair if (m := e.mean(column.field)) is not None]
            best[column.field] = min(means, default=np.nan)
    return [
        MethodRow(
            e.method,
            e.head or "–",
            e.scope,
            e.remark,
            palette.colour(e),
            "yardstick" if e.is_yardstick else "network" if e.head == head and e.honest else "network variant",
            sum(row.collapsed for row in e.rows),
            e.n_test < whole,
            tuple(_cell(e, column, best.get(column.field), e in fair) for column in shown),
        )
        for e in found
    ]


def _cell(entry: Entry, column: Column, best: float | None, fair: bool) -> Cell:
    if column.field in ("width", "round"):
        return _range(entry, column.field)
    values = entry.values(column.field)
    if not values.size:
        return Cell("–")
    mean = float(values.mean())
    if column.field in ("n_test", "n_units", "parameters"):
        return Cell(count(mean), mean)
    if column.field == "bytes":
        return Cell(number(mean / 1e6), mean, "raw data" if entry.base == "central" and mean else "")
    text = percent(mean) if column.percent else f"{mean:.2f}" if column.field == "r2" else number(mean)
    spread = f"± {float(f'{values.std():.2g}'):g}" if column.spread and values.size > 1 else ""
    marked = fair and best is not None and column.better is not None and column.better(mean) == best
    return Cell(text.replace("-", "−"), mean, spread, marked)


def _range(entry: Entry, field: str) -> Cell:
    """Widths and rounds, from the least to the most over seeds."""
    found = [value for row in entry.rows if (value := getattr(row, field)) is not None]
    if not found:
        return Cell("–")
    sizes = sorted({value if isinstance(value, tuple) else (value,) for value in found}, key=lambda v: (sum(v), v))
    texts = [" + ".join(str(part) for part in value) for value in (sizes[0], sizes[-1])]
    return Cell(texts[0] if texts[0] == texts[1] else f"{texts[0]} to {texts[1]}", float(sum(sizes[0])))


@dataclass(frozen=True)
class ClientRow:
    """A line of a table of clients."""

    client: str
    colour: str
    cells: tuple[Cell, ...]


def client_columns(fleet: Mapping[str, Any]) -> list[str]:
    """Headings of the table of clients."""
    if fleet["schema"]["task"] == "soh":
        spans = ["fewest cycles", "median cycles", "most cycles"]
        return ["Units", "at end of life", *spans, "training rows", "Test units", "test rows"]
    return [
        "Training units",
        "failed",
        "shortest life",
        "median life",
        "longest life",
        "training rows",
        "Test units",
        "test rows",
    ]


def client_rows(fleet: Mapping[str, Any]) -> list[ClientRow]:
    """Sizes and lifespans of every client's fleet; a cell's life goes on through its test cycles."""
    found = []
    colours = client_colours(fleet["clients"])
    for client, training in fleet["clients"].items():
        test = fleet["tests"].get(client, {})
        whole = test if fleet["schema"]["task"] == "soh" and test else training
        lives = np.array(whole["lifespans"], dtype=float)
        spans = [lives.min(), np.median(lives), lives.max()] if lives.size else [None] * 3
        numbers = [training["units"], whole["failed"], *spans, training["rows"], test.get("units"), test.get("rows")]
        found.append(ClientRow(client, colours[client], tuple(_count(n) for n in numbers)))
    if set(fleet["tests"]) == {"all"} and "all" not in fleet["clients"]:
        test = fleet["tests"]["all"]
        cells = [Cell("–")] * 6 + [_count(test["units"]), _count(test["rows"])]
        found.append(ClientRow("common test", "paper", tuple(cells)))
    return found


def _count(value: float | None) -> Cell:
    return Cell("–") if value is None else Cell(count(value), float(value))


def facts(material: Material) -> list[tuple[str, str]]:
    """Versions and times of the run, for "how this was made"."""
    p = material.provenance
    found = [("fedprognos", material.results.version)]
    if isinstance(p.get("finished"), str):
        found.append(("finished", p["finished"].replace("T", " ").replace("+00:00", " UTC")))
    for key, label in (("python", "Python"), ("platform", "platform"), ("processors", "processors")):
        if key in p:
            found.append((label, str(p[key])))
    if isinstance(p.get("seconds"), int | float):
        found.append(("time taken", f"{p['seconds']:.0f} s"))
    versions = p.get("versions")
    if isinstance(versions, dict):
        found += [(str(k), str(v)) for k, v in versions.items() if k != "fedprognos"]
    return found
