"""The targets that were set beforehand, and whether the tuned presets reach them."""

from __future__ import annotations

from collections.abc import Mapping

from fedprognos.evaluation import EVERYONE
from studies.lines import Column, Field, comparison, label
from studies.markdown import NOTHING, number, sample, signed, table
from studies.paper import Bars, ErrorBar, Paper, PaperTable
from studies.record import Record
from studies.samples import Sample

HELD = ("fedma", "concat")
"""Methods compared with central training: what matching gives, and keeping everything."""

UNTRAINED = ("reservoir", "direct")
"""Methods that are the same for every seed."""


def bars_table(printed: Paper, records: Mapping[str, Record]) -> str:
    """One line a bar and method."""
    bars = printed.bars
    rows = [row for bar in bars.errors for row in _error_rows(bar, bars, records)]
    rows += _central_rows(bars, _printed_excess(printed.turbofan), records)
    header = [
        "case",
        "method",
        "head",
        "paper’s best FedMA",
        "target",
        "stretch target",
        "ours",
        "target reached",
        "stretch reached",
    ]
    return table(header, rows, 3)


def reached(ok: bool, seeds: int, wanted: int) -> str:
    """The verdict in words; too few seeds are no evidence.

    >>> reached(True, 5, 5), reached(False, 5, 5), reached(True, 2, 5)
    ('yes', '**no**', 'yes, on 2 of 5 seeds')
    """
    verdict = "yes" if ok else "**no**"
    return verdict if seeds >= wanted else f"{verdict}, on {seeds} of {wanted} seeds"


def _error_rows(bar: ErrorBar, bars: Bars, records: Mapping[str, Record]) -> list[list[str]]:
    digits = 4 if bar.limit < 1 else 2
    limits = [number(bar.paper, digits), number(bar.limit, digits), number(bar.stretch, digits)]
    rows = []
    for method in bar.methods:
        head, measured = _sample(records, bar.preset, bar.scenario, method, bar.test, bar.field)
        if measured is None:
            rows.append([bar.case, label(method), NOTHING, *limits, NOTHING, NOTHING, NOTHING])
            continue
        wanted = 1 if method in UNTRAINED else bars.seeds
        verdicts = [reached(measured.mean <= limit, measured.seeds, wanted) for limit in (bar.limit, bar.stretch)]
        rows.append([bar.case, label(method), head, *limits, sample(measured, digits), *verdicts])
    return rows


def _printed_excess(printed: PaperTable) -> float:
    """How far the paper's FedMA lies above its central training, heterogeneous clients."""
    errors = {row.method: row.rmse for row in printed.rows if row.scenario == "heterogeneous" and row.rmse is not None}
    return errors["fedma"] / errors["central"] - 1


def _central_rows(bars: Bars, excess: float, records: Mapping[str, Record]) -> list[list[str]]:
    """How far above our own central training, at the same head; the stretch is at or below it, in one round."""
    rows = []
    for title, field in (("raw", "rmse"), ("capped", "rmse_capped")):
        case = f"FD004 heterogeneous, windows, {title}: against our Central"
        theirs = f"{signed(100 * excess, 1)} %" if field == "rmse" else NOTHING
        limits = [theirs, f"+{100 * bars.central_within:g} %", "0 %, one round"]
        for method in HELD:
            place = ("turbofan-tuned", "heterogeneous")
            head, ours = _sample(records, *place, method, EVERYONE, field)  # type: ignore[arg-type]
            _, central = _sample(records, *place, "central", EVERYONE, field)  # type: ignore[arg-type]
            if ours is None or central is None:
                rows.append([case, label(method), NOTHING, *limits, NOTHING, NOTHING, NOTHING])
                continue
            above = ours.mean / central.mean - 1
            oks = (above <= bars.central_within, above <= 0 and set(ours.rounds.values()) == {1})
            verdicts = [reached(ok, ours.seeds, bars.seeds) for ok in oks]
            rows.append([case, label(method), head, *limits, f"{signed(100 * above, 1)} %", *verdicts])
    return rows


def _sample(
    records: Mapping[str, Record], preset: str, scenario: str, method: str, test: str, field: Field
) -> tuple[str, Sample | None]:
    """A method's errors with the head its preset publishes."""
    measured = comparison(records.get(preset), scenario)
    if measured is None:
        return "", None
    line = measured.line(method, measured.main_head)
    return measured.main_head, None if line is None else line.sample(Column("", test, field))
