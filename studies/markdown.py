"""Tables and numbers in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedprognos.evaluation import Difference
from studies.pictures import Picture
from studies.samples import Sample, paired

NOTHING = "–"
BLANK = "\u00a0"
"""Keeps a number and what belongs to it on one line."""


def table(header: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int = 1) -> str:
    """A table whose first columns are text and whose others are numbers.

    >>> print(table(["who", "RMSE"], [["FedMA", "1.0"]]))
    | who | RMSE |
    |---|--:|
    | FedMA | 1.0 |
    """
    rule = ["---"] * text_columns + ["--:"] * (len(header) - text_columns)
    lines = [header, *rows]
    text = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([text[0], f"|{'|'.join(rule)}|", *text[1:]])


def number(value: float | None, digits: int) -> str:
    """So many decimals, or a dash."""
    return NOTHING if value is None else f"{value:.{digits}f}"


def sample(value: Sample | None, digits: int) -> str:
    """Mean ± spread.

    >>> sample(Sample({0: 1.0, 1: 2.0}, {}), 2).replace(BLANK, " ")
    '1.50 ± 0.71'
    """
    if value is None:
        return NOTHING
    spread = value.spread
    return f"{value.mean:.{digits}f}" + ("" if spread is None else f"{BLANK}±{BLANK}{spread:.{digits}f}")


def rounds(value: Sample | None) -> str:
    """Rounds that values were taken after, from the least to the most.

    >>> rounds(Sample({}, {0: 4, 1: 7})), rounds(Sample({}, {0: 1}))
    ('4–7', '1')
    """
    values = [] if value is None else sorted(value.rounds.values())
    if not values:
        return NOTHING
    return str(values[0]) if values[0] == values[-1] else f"{values[0]}–{values[-1]}"


def percent(share: float | None, digits: int = 1) -> str:
    """A share in percent.

    >>> percent(-0.018).replace(BLANK, " ")
    '−1.8 %'
    """
    return NOTHING if share is None else signed(100 * share, digits, plus=False) + f"{BLANK}%"


def signed(value: float, digits: int, plus: bool = True) -> str:
    """A number with a real minus sign, and a plus where asked for; what rounds to zero has neither.

    >>> signed(-1.25, 1), signed(0.5, 1), signed(-0.001, 2)
    ('−1.2', '+0.5', '0.00')
    """
    if float(f"{value:.{digits}f}") == 0:
        return f"{0:.{digits}f}"
    text = f"{value:+.{digits}f}" if plus else f"{value:.{digits}f}"
    return text.replace("-", "−")


def difference(gap: Difference | None, digits: int) -> str:
    """Mean and interval; bold where the interval leaves zero out, and no interval with one seed.

    >>> difference(Difference(-1.5, -2.0, -1.0), 2).replace(BLANK, " ")
    '**−1.50** [−2.00, −1.00]'
    """
    if gap is None:
        return NOTHING
    mean = signed(gap.mean, digits)
    if gap.low is None or gap.high is None:
        return mean
    interval = f"[{signed(gap.low, digits)},{BLANK}{signed(gap.high, digits)}]"
    return f"{f'**{mean}**' if gap.clear else mean}{BLANK}{interval}"


def share_of(first: Sample | None, second: Sample | None, digits: int = 0) -> str:
    """By how much the first differs, in percent of the second, with the interval over the seeds that both have.

    >>> share_of(Sample({0: 1.0, 1: 1.0}, {}), Sample({0: 2.0, 1: 2.0, 2: 9.0}, {})).replace(BLANK, " ")
    '−50 % (−50 % to −50 %)'
    """
    gap = paired(first, second)
    if first is None or second is None or gap is None:
        return NOTHING
    theirs = float(np.mean([second.by_seed[seed] for seed in first.by_seed.keys() & second.by_seed.keys()]))
    mean, low, high = (None if end is None else percent(end / theirs, digits) for end in (gap.mean, gap.low, gap.high))
    return f"{mean} ({low} to {high})" if low is not None else str(mean)


def size(count: float | None) -> str:
    """Bytes as people read them.

    >>> size(270852).replace(BLANK, " "), size(None)
    ('271 kB', '–')
    """
    if count is None:
        return NOTHING
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g}{BLANK}{unit}"
    return f"{count:.0f}{BLANK}B"


def stacked(*lines: str) -> str:
    """A cell of several lines; empty ones are left out."""
    return "<br>".join(line.replace(" ", BLANK) for line in lines if line)


def folded(title: str, body: str) -> str:
    """A part the reader opens when it is wanted."""
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def shown(drawn: Mapping[str, Picture], name: str, folder: str = "") -> str:
    """A picture with its caption, or nothing where there is none."""
    picture = drawn.get(name)
    return "" if picture is None else f"![{picture.title}]({folder}{name}.svg)\n\n*{picture.title}.* {picture.caption}"
