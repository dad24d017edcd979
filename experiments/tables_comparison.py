"""All methods at equal head, with what they cost; FedMA against each of them, seed by seed; accuracy against width."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from experiments.lines import HEADS, Column, Line, Setting, is_baseline
from experiments.markdown import BLANK, NOTHING, rounds, sample, signed, size, table
from experiments.samples import Difference, paired

RIVALS = ("local", "mean-of-locals", "single", "fedavg", "fedprox", "concat", "central")
BY_WIDTH = ("single", "fedavg", "concat", "fedma", "central")


def comparison_table(setting: Setting) -> str:
    """Every line of a setting; the lowest error of each head in bold."""
    columns = setting.columns
    header = ["head", "method", "trained on", *(c.title for c in columns)]
    header += ["width", "parameters", "local epochs", "bytes", "round"]
    lowest = {
        (head, c): min((s.mean for line in _of(setting, head) if (s := line.sample(c)) is not None), default=None)
        for head in HEADS
        for c in columns
    }
    rows = []
    for line in setting.lines:
        cells = []
        for column in columns:
            found = line.sample(column)
            text = sample(found, setting.digits)
            best = found is not None and found.mean == lowest.get((line.head or "", column))
            cells.append(f"**{text}**" if best else text)
        rows.append([line.head or NOTHING, line.name, trained_on(line, setting), *cells, *_costs(line, columns)])
    return table(header, rows, 3)


def trained_on(line: Line, setting: Setting) -> str:
    """Whose data a line's models saw."""
    if not line.own:
        return "all" if len(setting.clients) > 1 else setting.clients[0]
    return line.train[0] if line.train else "own"


def _of(setting: Setting, head: str) -> list[Line]:
    return [line for line in setting.lines if line.head == head]


def _costs(line: Line, columns: Sequence[Column]) -> list[str]:
    if is_baseline(line):
        return [NOTHING] * 5
    found = next((s for c in columns if (s := line.sample(c)) is not None and s.rounds), None)
    return [
        span(line.fact("width")),
        span(line.fact("parameters")),
        span(line.fact("local_epochs")),
        size(_mean(line.fact("bytes"))),
        NOTHING if line.base in ("local", "mean-of-locals", "central") else rounds(found),
    ]


def span(values: Iterable[float]) -> str:
    """One number where all are equal, else the least and the most.

    >>> span([64.0, 64.0]), span([1200.0, 90.0])
    ('64', '90–1,200')
    """
    known = sorted(values)
    if not known:
        return NOTHING
    low, high = f"{known[0]:,.0f}", f"{known[-1]:,.0f}"
    return low if low == high else f"{low}–{high}"


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def differences_table(setting: Setting) -> str | None:
    """RMSE of FedMA minus that of each rival at the same head, with a 95 % interval over seeds."""
    columns = setting.columns
    rows = []
    for head in HEADS:
        ours = setting.line("fedma", head)
        if ours is None:
            continue
        for rival in _of(setting, head):
            if rival.base not in RIVALS:
                continue
            cells = []
            for column in columns:
                mine, theirs = ours.sample(column), rival.sample(column)
                there = mine is not None and theirs is not None
                cells.append(difference(paired(mine, theirs), setting.digits) if there else NOTHING)  # type: ignore[arg-type]
            who = f"{rival.name} ({rival.train[0]})" if rival.own and rival.train else rival.name
            rows.append([head, who, *cells])
    header = ["head", "FedMA minus", *(c.title for c in columns)]
    return table(header, rows, 2) if rows else None


def difference(found: Difference, digits: int) -> str:
    """Mean and interval; bold where the interval leaves zero out.

    >>> difference(Difference(-1.5, -2.0, -1.0, 5), 2).replace(BLANK, " ")
    '**−1.50** [−2.00, −1.00]'
    """
    mean = signed(found.mean, digits)
    if found.low is None or found.high is None:
        return mean
    clear = found.verdict != "no difference shown"
    interval = f"[{signed(found.low, digits)},{BLANK}{signed(found.high, digits)}]"
    return f"{f'**{mean}**' if clear else mean}{BLANK}{interval}"


def width_table(found: Sequence[tuple[str, Setting]], head: str) -> str | None:
    """Errors by the width of the federated layer, over all records that hold the setting."""
    columns = found[0][1].columns
    lines = [
        (_mean(line.fact("width")) or 0.0, label, setting, line)
        for label, setting in found
        for line in setting.lines
        if line.base in BY_WIDTH and not line.own and line.head == head and line.fact("width")
    ]
    if not any(line.base == "fedma" for *_, line in lines):
        return None
    rows = [
        [
            span(line.fact("width")),
            line.name,
            label,
            *(sample(line.sample(c), setting.digits) for c in columns),
            span(line.fact("parameters")),
            size(_mean(line.fact("bytes"))),
        ]
        for _, label, setting, line in sorted(lines, key=lambda item: (item[0], item[1], item[3].method))
    ]
    return table(["width", "method", "preset", *(c.title for c in columns), "parameters", "bytes"], rows, 3)
