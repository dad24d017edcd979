"""The verdict in plain words: which method wins by how much, and how sure one can be with these test units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedprognos.report.entries import Entry, best, comparable, scored
from fedprognos.report.material import OWN, Material, Setting

RESAMPLES = 2000
FEW_UNITS = 6
"""With fewer test units than this, resampling them says nothing about chance."""
SURE = 0.95


@dataclass(frozen=True)
class Card:
    """A key figure: a role, who plays it, and its errors."""

    role: str
    who: str
    key: str
    rmse: str
    detail: str


@dataclass(frozen=True)
class Verdict:
    """Headline, sentences and key figures of one setting."""

    headline: str
    sentences: tuple[str, ...]
    cards: tuple[Card, ...]


def verdict(material: Material, setting: Setting, found: Sequence[Entry]) -> Verdict:
    """Compare the best network with the networks clients train alone and with the best yardstick."""
    fair = comparable(found)
    networks, yardsticks = [e for e in fair if not e.is_yardstick], [e for e in fair if e.is_yardstick]
    network, yardstick = best(networks), best(yardsticks)
    alone = best([e for e in networks if e.method == "local" and e.scope == OWN])
    headline, sentences = "There is nothing to compare.", []
    if network is not None:
        headline = f"The best network is {_who(network)}: {_errors(network)}."
        sentences.append(_basis(setting, network))
        if alone is not None and alone is not network:
            lead = f"Clients that train alone reach {_values(alone)}; learning from all data makes the error "
            sentences.append(lead + _difference(setting, network, alone))
        elif alone is not None and (second := best([e for e in networks if e is not network])) is not None:
            lead = f"No network that learns from more data does better: {_who(second)} reaches {_values(second)}, "
            sentences.append(lead + _difference(setting, second, network))
        if yardstick is not None:
            sentences.append(_against_yardstick(setting, network, yardstick))
        sentences += _second_opinion(material, fair)
    elif yardstick is not None:
        headline = f"No network was trained; the best yardstick is {_who(yardstick)}: {_errors(yardstick)}."
    sentences += _warnings(material, setting, found, network)
    cards: list[Card] = []
    for role, entry in (("best network", network), ("each client alone", alone), ("best yardstick", yardstick)):
        if entry is not None and entry.key not in [card.key for card in cards]:
            cards.append(_card(role, entry))
    return Verdict(headline, tuple(sentences), tuple(cards))


def _basis(setting: Setting, entry: Entry) -> str:
    seeds, units, clients = len(entry.rows), entry.rows[0].n_units, len(setting.clients)
    over = f"the mean of {seeds} seeds" if seeds > 1 else "from a single seed, so how much training varies is unknown"
    whose = "one client" if clients == 1 else f"{clients} clients"
    text = f"That is {over}, on {units} test unit{'s' if units != 1 else ''} of {whose}"
    if units < FEW_UNITS:
        return f"{text}: too few to say whether any difference would hold for others."
    bounds = entry.interval()
    if bounds is None:
        return f"{text}."
    return f"{text}; the 95 % interval of {_raw(entry)} is {number(bounds[0])} to {number(bounds[1])}."


def _raw(entry: Entry) -> str:
    return "the error" if entry.mean("rmse_capped") is None else "the raw error"


def _against_yardstick(setting: Setting, network: Entry, yardstick: Entry) -> str:
    a, b = network.mean("rmse"), yardstick.mean("rmse")
    if a is not None and b is not None and a < b:
        lead = f"The best yardstick, {_who(yardstick)}, reaches {_values(yardstick)}; the network's error is "
        return lead + _difference(setting, network, yardstick)
    lead = f"A yardstick does better than every network: {_who(yardstick)} reaches {_values(yardstick)}, an error "
    return lead + _difference(setting, yardstick, network)


def _difference(setting: Setting, first: Entry, second: Entry) -> str:
    """By how much the first is better or worse than the second, and how sure one can be."""
    parts = []
    for field, name in (("rmse", "raw"), ("rmse_capped", "capped")):
        a, b = first.mean(field), second.mean(field)
        if a is None or b is None or b == 0:
            continue
        label = f" {name}" if first.mean("rmse_capped") is not None else ""
        change = (a - b) / b
        same = abs(change) < 0.005
        parts.append(
            "equal" + label if same else f"{percent(abs(change))} {'lower' if change < 0 else 'higher'}{label}"
        )
    return f"{' and '.join(parts)}. {_certainty(setting, first, second)}".strip()


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
    points = scored(setting, entry.method, entry.scope)
    if points.empty or entry.remark:
        return None
    squared = (points["prediction"] - points["truth"]) ** 2
    return squared.groupby([points["test_client"], points["unit"]], sort=True).agg(["sum", "count"])


def _second_opinion(material: Material, fair: Sequence[Entry]) -> list[str]:
    """Say so where capped labels would have named another winner."""
    raw, capped = best(fair), best(fair, "rmse_capped")
    if material.cap is None or raw is None or capped is None or capped is raw:
        return []
    return [f"Against capped labels {_who(capped)} comes first ({number(capped.mean('rmse_capped'))})."]


def _warnings(material: Material, setting: Setting, found: Sequence[Entry], winner: Entry | None) -> list[str]:
    sentences = []
    collapsed = sum(row.collapsed for row in setting.rows)
    if collapsed:
        sentences.append(
            f"Warning: {collapsed} trained networks collapsed to a constant; they are marked in the table."
        )
    reference = winner or next(iter(found), None)
    points = scored(setting, reference.method, reference.scope) if reference is not None else None
    if material.cap is not None and reference is not None and points is not None and len(points):
        beyond = points["truth"] > material.cap
        squared = (points["prediction"] - points["truth"]) ** 2
        share = float(squared[beyond].sum() / squared.sum()) if squared.sum() > 0 else 0.0
        if beyond.mean() > 0.05 and share > 0.3:
            sentences.append(
                f"{percent(float(beyond.mean()))} of the test points have more life left than the cap of "
                f"{material.cap:g} {material.unit}, which no prediction exceeds; they make up {percent(share)} of "
                f"the squared raw error of {_who(reference)}, so the capped error tells the methods apart better."
            )
    return sentences


def _card(role: str, entry: Entry) -> Card:
    capped = entry.mean("rmse_capped")
    detail = f"{number(capped)} capped" if capped is not None else f"MAE {number(entry.mean('mae'))}"
    return Card(role, entry.label, entry.key, number(entry.mean("rmse")), detail)


def _errors(entry: Entry) -> str:
    capped = entry.mean("rmse_capped")
    text = f"RMSE {number(entry.mean('rmse'))} {entry.rows[0].unit}"
    return text if capped is None else f"{text} against raw and {number(capped)} against capped labels"


def _values(entry: Entry) -> str:
    capped = entry.mean("rmse_capped")
    raw = number(entry.mean("rmse"))
    return raw if capped is None else f"{raw} raw, {number(capped)} capped"


def _who(entry: Entry) -> str:
    data = f" on {entry.scope}" if entry.scope else ""
    return f"{entry.method}{data} ({entry.remark})" if entry.remark else f"{entry.method}{data}"


def percent(share: float) -> str:
    """A share in whole percent, more exactly where it is small.

    >>> percent(0.123), percent(0.0072)
    ('12\\xa0%', '0.7\\xa0%')
    """
    return f"{100 * share:.{1 if share < 0.0095 else 0}f}\u00a0%"


def number(value: float | None) -> str:
    """Three significant digits, without an exponent.

    >>> number(54.427), number(0.03172), number(1234.5), number(None)
    ('54.4', '0.0317', '1234', '–')
    """
    if value is None or not np.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    digits = max(0, 2 - int(np.floor(np.log10(abs(value)))))
    return f"{value:.{min(digits, 8)}f}".replace("-", "−")
