"""The paper's two tables: its numbers, our re-run of its protocol, and ours tuned, side by side."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.lines import NAMES as METHODS
from experiments.lines import Column, Field, Setting, settings
from experiments.markdown import NOTHING, number, percent, rounds, sample, table
from experiments.paper import PaperRow, PaperTable
from experiments.record import Record
from experiments.samples import Sample, improvement


def battery_table(printed: PaperTable, rerun: Record | None, tuned: Record | None) -> str:
    """Fifteen rows of the paper, and FedAvg on its pairs, which it does not report."""
    header = ["tested on", "trained on", "method", "paper", "IMP"]
    header += ["re-run: best round on test", "round", "IMP", "re-run: chosen without test", "round"]
    header += ["tuned", "round", "IMP"]
    locals_ = {row.test: row for row in printed.rows if row.method == "local"}
    lines = []
    for row in printed.rows:
        local = locals_[row.test]
        best, alone_best = _best(rerun, row, "rmse"), _best(rerun, local, "rmse")
        chosen = _chosen(rerun, row, "rmse")
        ours, alone = _chosen(tuned, row, "rmse"), _chosen(tuned, local, "rmse")
        lines.append(
            [
                row.test,
                ", ".join(row.train),
                METHODS[row.method],
                _printed(row, 5),
                percent(None if row.imp is None else row.imp / 100),
                *(sample(best, 4), _rounds(row, best), _imp(row, alone_best, best)),
                *(sample(chosen, 4), _rounds(row, chosen)),
                *(sample(ours, 4), _rounds(row, ours), _imp(row, alone, ours)),
            ]
        )
    return table(header, lines, 3)


def turbofan_table(printed: PaperTable, rerun: Record | None, tuned: Record | None) -> str:
    """FD004 by setting, raw and capped; IMP is that of FedMA over the row's own model, as in the paper."""
    header = ["setting", "trained on", "method", "paper", "round", "IMP"]
    header += ["re-run: best round on test, raw", "capped", "round", "re-run: chosen without test, raw", "capped"]
    header += ["tuned, raw", "capped", "round", "IMP"]
    federated = {row.setting: row for row in printed.rows if row.method == "fedma"}
    lines = []
    for row in printed.rows:
        best, best_capped = _best(rerun, row, "rmse"), _best(rerun, row, "rmse_capped")
        chosen, chosen_capped = _chosen(rerun, row, "rmse"), _chosen(rerun, row, "rmse_capped")
        ours, ours_capped = _chosen(tuned, row, "rmse"), _chosen(tuned, row, "rmse_capped")
        matched = _chosen(tuned, federated[row.setting], "rmse") if row.method in ("local", "central") else None
        imp = improvement(ours.mean, matched.mean) if ours is not None and matched is not None else None
        lines.append(
            [
                str(row.setting),
                f"{row.train[0]} ({row.name})" if row.name else "all three",
                METHODS[row.method],
                _printed(row, 2),
                NOTHING if row.round is None else str(row.round),
                percent(None if row.imp is None else row.imp / 100),
                *(sample(best, 2), sample(best_capped, 2), _rounds(row, best)),
                *(sample(chosen, 2), sample(chosen_capped, 2)),
                *(sample(ours, 2), sample(ours_capped, 2), _rounds(row, ours), percent(imp)),
            ]
        )
    return table(header, lines, 3)


def _printed(row: PaperRow, digits: int) -> str:
    text = number(row.rmse, digits)
    return f"{text} (round {row.round})" if digits == 5 and row.round is not None else text


def _imp(row: PaperRow, alone: Sample | None, found: Sample | None) -> str:
    if row.method in ("local", "central") or alone is None or found is None:
        return NOTHING
    return percent(improvement(alone.mean, found.mean))


def _rounds(row: PaperRow, found: Sample | None) -> str:
    return NOTHING if row.method in ("local", "central") else rounds(found)


def main_head(record: Record, setting: Setting) -> str:
    """The head an experiment publishes; where every model is tested on one fleet nobody has a personal one."""
    wanted = [head for head in record.heads if head != "personal" or not setting.shared_test]
    return wanted[0]


def _find(record: Record, row: PaperRow) -> Setting | None:
    """The setting a row belongs to: the one it names, or the one whose clients trained it together."""
    every = settings(record)
    if row.setting is not None:
        return next((s for s in every if s.name == row.setting), None)
    if row.method == "local":
        return max((s for s in every if row.train[0] in s.clients), key=lambda s: len(s.clients), default=None)
    return next((s for s in every if set(s.clients) == set(row.train)), None)


def _chosen(record: Record | None, row: PaperRow, field: Field) -> Sample | None:
    setting = None if record is None else _find(record, row)
    if record is None or setting is None:
        return None
    train: Sequence[str] | None = row.train if row.method == "local" and setting.shared_test else None
    line = setting.line(row.method, main_head(record, setting), train)
    return None if line is None else line.sample(Column("", row.test, field))


def _best(record: Record | None, row: PaperRow, field: Field) -> Sample | None:
    setting = None if record is None else _find(record, row)
    if record is None or setting is None:
        return None
    if row.method in ("local", "central"):  # they know no rounds
        return _chosen(record, row, field)
    head = main_head(record, setting)
    return setting.best_on_test(row.method, head, row.test, field)
