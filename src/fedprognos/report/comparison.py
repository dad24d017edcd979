"""Two entries compared: by how much one is better, and how sure one can be with these test units."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedprognos.report.entries import Entry, scored
from fedprognos.report.material import Setting
from fedprognos.report.words import percent

RESAMPLES = 2000
FEW_UNITS = 6
"""With fewer test units than this, resampling them says nothing about chance."""
SURE = 0.95
SAME = 0.005
"""Errors that differ by less than this share are called equal."""


def difference(setting: Setting, first: Entry, second: Entry) -> str:
    """By how much the first is better or worse than the second, and how sure one can be."""
    parts = []
    for field, name in (("rmse", "raw"), ("rmse_capped", "capped")):
        change = relative(first, second, field)
        if change is None:
            continue
        label = f" {name}" if first.mean("rmse_capped") is not None else ""
        same = abs(change) < SAME
        parts.append(
            "equal" + label if same else f"{percent(abs(change))} {'lower' if change < 0 else 'higher'}{label}"
        )
    if set(parts) == {"equal raw", "equal capped"}:
        parts = ["equal"]
    certainty = "" if parts == ["equal"] else _certainty(setting, first, second)
    return f"{' and '.join(parts)}. {certainty}".strip()


def relative(first: Entry, second: Entry, field: str = "rmse") -> float | None:
    """By what share the first one's error exceeds the second one's."""
    a, b = first.mean(field), second.mean(field)
    return None if a is None or b is None or b == 0 else (a - b) / b


def _certainty(setting: Setting, first: Entry, second: Entry) -> str:
    if first.rows[0].n_units < FEW_UNITS:
        return ""
    share = _share_better(setting, first, second)
    if share is None:
        a, b = first.interval(), second.interval()
        if a is None or b is None:
            return ""
        apart = a[1] < b[0] or b[1] < a[0]
        return "Their 95 % intervals do not overlap." if apart else "It may be chance: their 95 % intervals overlap."
    if (first.mean("rmse") or 0.0) > (second.mean("rmse") or 0.0):
        share = 1 - share
    often = "more than 99 %" if share > 0.99 else percent(share)
    raw = "" if first.mean("rmse_capped") is None else " of the raw errors"
    if share >= SURE:
        return f"That is hardly chance: the order{raw} holds in {often} of resampled test fleets."
    return f"That may be chance: the order{raw} holds in only {often} of resampled test fleets."


def _share_better(setting: Setting, first: Entry, second: Entry) -> float | None:
    """How often the first has the lower RMSE when whole test units are drawn anew, both scored on the same ones."""
    both = [_squared_by_unit(setting, e) for e in (first, second)]
    if any(b is None for b in both):
        return None
    a, b = (frame for frame in both if frame is not None)
    if not a.index.equals(b.index):
        return None
    units = len(a)
    chosen = np.random.default_rng(0).integers(units, size=(RESAMPLES, units))
    means = [f["sum"].to_numpy()[chosen].sum(1) / f["count"].to_numpy()[chosen].sum(1) for f in (a, b)]
    return float(np.mean(means[0] < means[1]))


def _squared_by_unit(setting: Setting, entry: Entry) -> pd.DataFrame | None:
    points = scored(setting, entry)
    if points.empty:
        return None
    squared = (points["prediction"] - points["truth"]) ** 2
    return squared.groupby([points["test_client"], points["unit"]], sort=True).agg(["sum", "count"])
