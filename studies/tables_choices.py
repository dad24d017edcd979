"""What the tuned engine experiment was chosen from, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from studies.lines import label
from studies.markdown import BLANK, NOTHING, number, signed, table

CHOSEN = """\
`{preset}`, {scenario}, exact head, judged on held-out training engines: {share:.0%} of each client's engines are kept
out of training, other ones for each seed. Seeds: {seeds}. Errors are RMSE on capped labels after the last epoch and
round. In brackets: how much a change adds, ± the standard deviation of that over seeds. Each line changes one thing.
Central training keeps out other engines than the clients do, so its column compares with itself only. A dash: not
measured, or not an option of the method."""
RIDGES = """\
The same for other ridge strengths (`federation.ridge`; the preset's is {ridge:.0e}):"""


def choices_part(found: Mapping[str, Any]) -> list[str]:
    """Both tables, with what they show."""
    config, errors = found["config"], found["errors"]
    ridge = config["federation"]["ridge"]
    place = int(np.argmin([abs(np.log(float(s) / ridge)) for s in found["strengths"]]))
    itself, unchanged = next(iter(errors.items()))
    methods = list(unchanged)
    base = {m: np.array([one["rmse"] for one in unchanged[m]]) for m in methods}
    seeds = len(next(iter(base.values())))
    rows = [
        [
            change,
            _neurons(by_method),
            *(_cell(by_method.get(m), base[m][:, place], place, change == itself) for m in methods),
        ]
        for change, by_method in errors.items()
    ]
    curve = [
        [f"{float(strength):.1e}", *(number(float(base[m][:, k].mean()), 2) for m in methods)]
        for k, strength in enumerate(found["strengths"])
    ]
    names = [label(m) for m in methods]
    said = CHOSEN.format(preset=found["preset"], scenario=found["scenario"], share=found["kept_out"], seeds=seeds)
    return [
        "### What the tuned experiment was chosen from",
        said,
        table(["change", "neurons", *names], rows),
        RIDGES.format(ridge=ridge),
        table(["ridge", *names], curve),
    ]


def _cell(found: list[dict[str, Any]] | None, base: np.ndarray[Any, Any], place: int, itself: bool) -> str:
    if not found:
        return NOTHING
    own = np.array([one["rmse"][place] for one in found])
    if itself:
        return number(float(own.mean()), 2)
    more = own - base[: len(own)]
    spread = f"{BLANK}±{BLANK}{more.std(ddof=1):.2f}" if len(more) > 1 else ""
    return f"{own.mean():.2f} ({signed(float(more.mean()), 2)}{spread})"


def _neurons(by_method: Mapping[str, list[dict[str, Any]]]) -> str:
    """Width of the models, from the smallest to the largest."""
    widths = sorted({one["width"] for found in by_method.values() for one in found})
    return NOTHING if not widths else str(widths[0]) if len(widths) == 1 else f"{widths[0]}–{widths[-1]}"
