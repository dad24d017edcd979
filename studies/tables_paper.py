"""The paper's two tables: its numbers, our re-run of its protocol, and ours tuned, side by side."""

from __future__ import annotations

from studies.lines import Column, Comparison, Field, comparison, comparisons, label
from studies.markdown import NOTHING, number, percent, rounds, sample, stacked, table
from studies.paper import PaperRow, PaperTable
from studies.record import Record
from studies.samples import Sample, improvement

HEADER = ["paper", "re-run: best round on test", "re-run: chosen without test", "tuned"]


def battery_table(printed: PaperTable, rerun: Record | None, tuned: Record | None) -> str:
    """Fifteen rows of the paper, and FedAvg on its pairs, which it does not report; below each error round and IMP."""
    alone = {row.test: row for row in printed.rows if row.method == "local"}
    lines = []
    for row in printed.rows:
        local = alone[row.test]
        pairs = [
            (_best(rerun, row, "rmse"), _best(rerun, local, "rmse")),
            (_chosen(rerun, row, "rmse"), _chosen(rerun, local, "rmse")),
            (_chosen(tuned, row, "rmse"), _chosen(tuned, local, "rmse")),
        ]
        cells = [
            stacked(
                sample(errors, 4), _below(row, rounds(errors), _improvement(base, errors) if has_rounds(row) else None)
            )
            for errors, base in pairs
        ]
        lines.append([row.test, _trained_on(row), label(row.method), _printed(row, 5), *cells])
    return table(["tested on", "trained on", "method", *HEADER], lines, 3)


def turbofan_table(printed: PaperTable, rerun: Record | None, tuned: Record | None) -> str:
    """FD004 by scenario, raw and capped; IMP is that of FedMA over the row's own model, as in the paper."""
    federated = {row.scenario: row for row in printed.rows if row.method == "fedma"}
    lines = []
    for row in printed.rows:
        cells = []
        for record, choose in ((rerun, _best), (rerun, _chosen), (tuned, _chosen)):
            raw, capped = choose(record, row, "rmse"), choose(record, row, "rmse_capped")
            imp = None if has_rounds(row) else _improvement(raw, choose(record, federated[row.scenario], "rmse"))
            both = [f"raw {sample(raw, 2)}", f"capped {sample(capped, 2)}"] if raw is not None else [NOTHING]
            cells.append(stacked(*both, _below(row, rounds(raw), imp)))
        lines.append([str(row.scenario), _trained_on(row), label(row.method), _printed(row, 2), *cells])
    return table(["scenario", "trained on", "method", *HEADER], lines, 3)


def has_rounds(row: PaperRow) -> bool:
    """Whether a method goes on in rounds."""
    return row.method not in ("local", "central")


def _trained_on(row: PaperRow) -> str:
    if row.name:
        return stacked(row.train[0], f"({row.name})")
    return "all three" if len(row.train) == 3 else ", ".join(row.train)


def _printed(row: PaperRow, digits: int) -> str:
    imp = None if row.imp is None else row.imp / 100
    return stacked(number(row.rmse, digits), _below(row, NOTHING if row.round is None else str(row.round), imp))


def _below(row: PaperRow, after: str, imp: float | None) -> str:
    """What stands below an error: the round it was taken after, and IMP."""
    parts = [f"round {after}"] if has_rounds(row) and after != NOTHING else []
    return ", ".join([*parts, *([f"IMP {percent(imp)}"] if imp is not None else [])])


def _improvement(alone: Sample | None, federated: Sample | None) -> float | None:
    return None if alone is None or federated is None else improvement(alone.mean, federated.mean)


def _find(record: Record | None, row: PaperRow) -> Comparison | None:
    """The scenario a row belongs to: the one it names, or the one whose clients trained it together."""
    if record is None or row.scenario is not None:
        return comparison(record, str(row.scenario))
    every = comparisons(record)
    if row.method == "local":
        return max((s for s in every if row.train[0] in s.clients), key=lambda s: len(s.clients), default=None)
    return next((s for s in every if set(s.clients) == set(row.train)), None)


def _chosen(record: Record | None, row: PaperRow, field: Field) -> Sample | None:
    compared = _find(record, row)
    if compared is None:
        return None
    client = row.train[0] if row.method == "local" and compared.shared_test else None
    line = compared.line(row.method, compared.main_head, client)
    return None if line is None else line.sample(Column("", row.test, field))


def _best(record: Record | None, row: PaperRow, field: Field) -> Sample | None:
    compared = _find(record, row)
    if compared is None or not has_rounds(row):
        return _chosen(record, row, field)
    return compared.best_on_test(row.method, compared.main_head, row.test, field)
