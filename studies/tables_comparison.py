"""All methods at equal head, with what they cost; FedMA against each of them, seed by seed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedprognos.evaluation import OWN
from studies.lines import HEADS, Column, Comparison, Line
from studies.markdown import NOTHING, difference, rounds, sample, size, table
from studies.samples import paired

OURS = frozenset({"concat", "absorb", "direct", "reservoir"})
"""Methods that stand at the head that is published; all others stand at their best one."""
COSTS = ["width", "parameters", "local epochs", "bytes", "round"]


def comparison_table(compared: Comparison, lines: Sequence[Line] | None = None) -> str:
    """Some lines of a scenario, all by default; the lowest error of each head in bold."""
    header = ["head", "method", "trained on", *(c.title for c in compared.columns), *COSTS]
    by_head = {head: [line for line in compared.lines if line.head == head] for head in HEADS}
    lowest = {(head, c): _lowest(by_head[head], c) for head in HEADS for c in compared.columns}
    rows = []
    for line in compared.lines if lines is None else lines:
        cells = []
        for column in compared.columns:
            errors = line.sample(column)
            text = sample(errors, compared.digits)
            best = errors is not None and errors.mean == lowest.get((line.head or "", column))
            cells.append(_bold(text, best))
        rows.append(
            [line.head or NOTHING, line.method.label, trained_on(line, compared), *cells, *_costs(line, compared)]
        )
    return table(header, rows, 3)


def glance_table(compared: Comparison) -> str:
    """`OURS` at the head that is published, the others at their best one, and ridge: errors, neurons and bytes."""
    lines = [line for line in compared.lines if line.head == compared.main_head and line.name in OURS]
    lines += [line for line in compared.lines if line.name == "ridge" and not line.client]
    rivals: dict[tuple[str, str, bool], list[Line]] = {}
    for line in compared.lines:
        if line.name not in OURS and line.method.kind != "baseline":
            rivals.setdefault((line.name, line.client, line.own), []).append(line)
    lines += [_best_head(compared, same) for same in rivals.values()]
    lowest = {column: _lowest(lines, column) for column in compared.columns}
    rows = []
    for line in sorted(lines, key=lambda line: (line.head is not None, not line.own, line.method.order, line.client)):
        errors = [(line.sample(column), lowest[column]) for column in compared.columns]
        cells = [
            _bold(sample(error, compared.digits), error is not None and error.mean == best) for error, best in errors
        ]
        whose = line.client or ("own data" if line.own else "")
        head = "" if line.head in (None, compared.main_head) else f"{line.head} head"
        baseline = line.method.kind == "baseline"
        costs = [NOTHING] * 2 if baseline else [span(line.fact("width")), size(_mean(line.fact("bytes")))]
        rows.append([", ".join(filter(None, (line.method.label, whose, head))), *cells, *costs])
    return table(["method", *(c.title for c in compared.columns), "neurons", "bytes"], rows, 1)


def _best_head(compared: Comparison, lines: Sequence[Line]) -> Line:
    """The line with the lowest error in the last column, which is that of capped labels or of all tests together."""
    errors = [line.sample(compared.columns[-1]) for line in lines]
    means = [float("inf") if error is None else error.mean for error in errors]
    return lines[means.index(min(means))]


def _bold(text: str, best: bool) -> str:
    return f"**{text}**" if best else text


def _lowest(lines: Sequence[Line], column: Column) -> float | None:
    samples = (line.sample(column) for line in lines)
    return min((errors.mean for errors in samples if errors is not None), default=None)


def trained_on(line: Line, compared: Comparison) -> str:
    """Whose data a line's models saw."""
    if not line.own:
        return "all" if len(compared.clients) > 1 else compared.clients[0]
    return "own" if line.whole.data == OWN else line.client


def _costs(line: Line, compared: Comparison) -> list[str]:
    if line.method.kind == "baseline":
        return [NOTHING] * len(COSTS)
    after = next((s for c in compared.columns if (s := line.sample(c)) is not None and s.rounds), None)
    return [
        span(line.fact("width")),
        span(line.fact("parameters")),
        span(line.fact("local_epochs")),
        size(_mean(line.fact("bytes"))),
        rounds(after) if line.method.kind == "federated" else NOTHING,
    ]


def span(values: Iterable[float]) -> str:
    """One number where all are equal, else the least and the most.

    >>> span([64.0, 64.0]), span([1200.0, 90.0])
    ('64', '90–1,200')
    """
    ordered = sorted(values)
    if not ordered:
        return NOTHING
    low, high = f"{ordered[0]:,.0f}", f"{ordered[-1]:,.0f}"
    return low if low == high else f"{low}–{high}"


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def differences_table(compared: Comparison) -> str | None:
    """RMSE of FedMA minus that of each other method at the same head, with a 95 % interval over seeds."""
    rows = []
    for head in HEADS:
        ours = compared.line("fedma", head)
        for rival in compared.lines:
            if ours is not None and rival.head == head and rival.name != "fedma":
                who = f"{rival.method.label} ({rival.client})" if rival.client else rival.method.label
                gaps = [paired(ours.sample(c), rival.sample(c)) for c in compared.columns]
                rows.append([head, who, *(difference(gap, compared.digits) for gap in gaps)])
    return table(["head", "FedMA minus", *(c.title for c in compared.columns)], rows, 2) if rows else None
