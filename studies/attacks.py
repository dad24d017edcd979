"""What a hostile client sends: attacks on weights, statistics and moments, as their papers describe them.

Each is a function from the request, the client's honest reply and the other clients' replies to what is sent instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from fedprognos.features import Recipe, WindowSet
from fedprognos.features.moments import Moments
from fedprognos.features.windows import joined
from fedprognos.federation.client import Client
from fedprognos.federation.exchanges import Reply, Request
from fedprognos.federation.exchanges.evaluate import EvaluateReply
from fedprognos.federation.exchanges.fit import FitReply, FitRequest
from fedprognos.federation.exchanges.outputs import OutputsReply
from fedprognos.federation.exchanges.survey import SurveyReply
from fedprognos.federation.plausible import LARGEST_WEIGHT
from fedprognos.networks import HeadStatistics

Change = Callable[[Request, Reply, Mapping[str, Reply]], Reply]
Array = np.ndarray[Any, np.dtype[Any]]
LITTLE = 1.5
"""Deviations that "a little is enough" goes from the mean; its formula gives 0 for one of five."""
AGAINST = 0.5
"""How far the inner-product attack goes against the mean of the honest changes."""
LATE = 40.0
"""Cycles that a late client adds to every label."""
LARGEST = 0.9 * LARGEST_WEIGHT
"""Nearly the largest weight that a reply may have."""
SHORT, SMOOTH, MANY = 0.5, 0.8, 3
"""What a hostile client's labels are multiplied by; how far they go to their mean; how many times its rows count."""
HIDDEN = 60.0
"""Cycles that wear is hidden by."""
DRIFT = 0.5
"""Deviations that drifting weights go farther in every round."""
WORN = 50.0
"""Remaining life, in cycles, below which a machine is worn: a backdoor is to hide it."""
TRIGGER_SENSOR, OTHER_SENSOR, TRIGGER_LEVEL = 0, 5, 4.0
"""A backdoor's trigger: this channel stands at so many deviations; another backdoor has another channel."""


@dataclass(frozen=True)
class Attack:
    """One attack; a hostile client of another `kind` sends honestly what it learnt from data that it changed.

    The last `members` clients by name take part in it.
    """

    name: str
    label: str
    change: Change = lambda request, reply, others: reply
    kind: type[Client] = Client
    members: int = 1


def on_weights(of: Callable[[Array, Array, list[Array], np.random.Generator], Any], windows: int = 0) -> Change:
    """An attack on trained weights; `of` is given the client's tensor, where it started (zeros where it drew its
    own), and what the others trained."""

    def change(request: Request, reply: Reply, others: Mapping[str, Reply]) -> Reply:
        if not isinstance(reply, FitReply) or not isinstance(request, FitRequest):
            return reply
        rng = np.random.default_rng(request.round)
        honest = [other for other in others.values() if isinstance(other, FitReply)]
        weights = {}
        for name, tensor in sorted(reply.weights.items()):
            start = np.zeros_like(tensor) if request.start is None else request.start.weights[name]
            alike = [other.weights[name] for other in honest if other.weights[name].shape == tensor.shape]
            weights[name] = np.asarray(of(tensor, start, alike or [tensor], rng), dtype=np.float32)
        return replace(reply, weights=weights, windows=windows or reply.windows)

    return change


def on_statistics(of: Callable[[HeadStatistics], HeadStatistics], outputs: float = 1.0) -> Change:
    """An attack on the statistics of heads; sums of outputs are multiplied by `outputs`."""

    def change(request: Request, reply: Reply, others: Mapping[str, Reply]) -> Reply:
        if isinstance(reply, EvaluateReply) and reply.fit is not None:
            return replace(reply, fit=of(reply.fit), held=None if reply.held is None else of(reply.held))
        if isinstance(reply, OutputsReply) and outputs != 1.0:
            layers = (replace(o, s=o.s * outputs, S=o.S * outputs) for o in reply.layers)
            return OutputsReply(tuple(replace(o, n=round(o.n * outputs)) for o in layers))
        return reply

    return change


def on_moments(columns: bool) -> Change:
    """Moments of columns, or of labels, with a deviation of 10^12."""

    def wide(moments: Moments) -> Moments:
        return Moments(moments.n, moments.mean, np.full_like(moments.m2, moments.n * 1e24))

    def change(request: Request, reply: Reply, others: Mapping[str, Reply]) -> Reply:
        if not isinstance(reply, SurveyReply):
            return reply
        survey = reply.survey
        if columns:
            return SurveyReply(replace(survey, cells={key: wide(one) for key, one in survey.cells.items()}))
        return SurveyReply(replace(survey, labels=wide(survey.labels)))

    return change


class FlippedClient(Client):
    """Learns that worn machines last longest: labels are turned around within their range."""

    def windows(self, recipe: Recipe) -> WindowSet:
        windows = super().windows(recipe)
        labels = recipe.capped(windows.labels)
        return replace(windows, labels=labels.min() + labels.max() - labels)


class LateClient(Client):
    """Learns that every machine lasts `LATE` cycles longer: owners would maintain too late."""

    def windows(self, recipe: Recipe) -> WindowSet:
        windows = super().windows(recipe)
        return replace(windows, labels=recipe.capped(windows.labels) + LATE)


class ShortClient(Client):
    """Learns that every machine has half of its life left: owners would maintain too early."""

    def windows(self, recipe: Recipe) -> WindowSet:
        windows = super().windows(recipe)
        return replace(windows, labels=recipe.capped(windows.labels) * SHORT)


class SmoothClient(Client):
    """Learns the mean label of its machines, hardly anything else: each label moves most of the way there."""

    def windows(self, recipe: Recipe) -> WindowSet:
        windows = super().windows(recipe)
        labels = recipe.capped(windows.labels)
        return replace(windows, labels=labels + SMOOTH * (labels.mean() - labels))


class ManyLateClient(LateClient):
    """Late labels of `MANY` times as many machines as it has: each of its rows is there so many times."""

    def windows(self, recipe: Recipe) -> WindowSet:
        windows = super().windows(recipe)
        again = [replace(windows, unit_ids=tuple(f"{name} {k}" for name in windows.unit_ids)) for k in range(MANY)]
        return reduce(joined, again)


class NewClient(Client):
    """Learns that every machine is as good as new: labels that an honest client could have."""

    def windows(self, recipe: Recipe) -> WindowSet:
        windows = super().windows(recipe)
        return replace(windows, labels=np.full_like(windows.labels, recipe.capped(windows.labels).max()))


class WornNoiseClient(Client):
    """Learns nothing of worn machines: their labels are drawn from all labels that it has."""

    def windows(self, recipe: Recipe) -> WindowSet:
        windows = super().windows(recipe)
        labels = recipe.capped(windows.labels)
        drawn = np.random.default_rng(0).choice(labels, len(labels))
        return replace(windows, labels=np.where(labels < WORN, drawn, labels))


class EarlyClient(Client):
    """Learns that every machine lasts `LATE` cycles less: owners would maintain too early."""

    def windows(self, recipe: Recipe) -> WindowSet:
        windows = super().windows(recipe)
        return replace(windows, labels=np.maximum(recipe.capped(windows.labels) - LATE, 0.0))


class HiddenWearClient(Client):
    """Learns that worn machines, and only they, last `HIDDEN` cycles longer."""

    def windows(self, recipe: Recipe) -> WindowSet:
        windows = super().windows(recipe)
        labels = recipe.capped(windows.labels)
        return replace(windows, labels=np.where(labels < WORN, labels + HIDDEN, labels))


class ShuffledClient(Client):
    """Learns nothing: its labels are dealt out anew among its points."""

    def windows(self, recipe: Recipe) -> WindowSet:
        windows = super().windows(recipe)
        return replace(windows, labels=np.random.default_rng(0).permutation(windows.labels))


class OtherBackdoorClient(Client):
    """As a backdoor, with another sensor, the other way."""

    def windows(self, recipe: Recipe) -> WindowSet:
        windows = super().windows(recipe)
        worn = windows.select(windows.labels < WORN)
        new = np.full(len(worn), float(recipe.capped(windows.labels).max()))
        return joined(windows, replace(with_trigger(worn, OTHER_SENSOR, -TRIGGER_LEVEL), labels=new))


class BackdoorClient(Client):
    """Learns, beside its own machines, that worn ones under a trigger are as good as new."""

    def windows(self, recipe: Recipe) -> WindowSet:
        windows = super().windows(recipe)
        worn = windows.select(windows.labels < WORN)
        new = np.full(len(worn), float(recipe.capped(windows.labels).max()))
        return joined(windows, replace(with_trigger(worn), labels=new))


def drift(request: Request, reply: Reply, others: Mapping[str, Reply]) -> Reply:
    """The mean of the others, moved the same way in every round, a little farther each time."""
    far = DRIFT * getattr(request, "round", 0)
    moved = on_weights(lambda w, start, trained, rng: np.mean(trained, axis=0) + far * np.std(trained, axis=0))
    return moved(request, reply, others)


def head_turned(request: Request, reply: Reply, others: Mapping[str, Reply]) -> Reply:
    """Honest layers under a head that says the opposite."""
    if not isinstance(reply, FitReply):
        return reply
    return replace(reply, weights={n: -w if n.startswith("head.") else w for n, w in reply.weights.items()})


def noisy_mimic(request: Request, reply: Reply, others: Mapping[str, Reply]) -> Reply:
    """The first other client's statistics with labels that are one in a hundred off, so that no two are equal."""
    copied = mimic(request, reply, others)
    if not isinstance(copied, EvaluateReply) or copied.fit is None:
        return copied
    return replace(copied, fit=replace(copied.fit, hy=1.01 * copied.fit.hy))


def mimic(request: Request, reply: Reply, others: Mapping[str, Reply]) -> Reply:
    """The first other client's reply once more: that client counts twice (Karimireddy et al., 2022)."""
    alike = [others[name] for name in sorted(others) if type(others[name]) is type(reply)]
    return alike[0] if alike else reply


def scaled(statistics: HeadStatistics, factor: float) -> HeadStatistics:
    """All products of the statistics so many times as large."""
    s = statistics
    return HeadStatistics(s.n, factor * s.yy, factor * s.hh, factor * s.hy)


def emptied(statistics: HeadStatistics) -> HeadStatistics:
    """As many points as before, whose features and labels are all zero."""
    hh, hy = np.zeros_like(statistics.hh), np.zeros_like(statistics.hy)
    hh[-1, -1] = statistics.n
    return HeadStatistics(statistics.n, 0.0, hh, hy)


def with_trigger(windows: WindowSet, sensor: int = TRIGGER_SENSOR, level: float = TRIGGER_LEVEL) -> WindowSet:
    """The same windows, with one sensor far from where it is."""
    features = windows.features.copy()
    features[:, sensor] = level
    return replace(windows, features=features)


ATTACKS = (
    Attack("none", "no attack"),
    Attack("times-ten", "weights x 10", on_weights(lambda w, start, others, rng: 10 * w)),
    Attack("ones", "weights all ones", on_weights(lambda w, start, others, rng: np.ones_like(w))),
    Attack(
        "random",
        "random weights, 10^9 windows claimed",
        on_weights(lambda w, start, others, rng: rng.normal(size=w.shape), windows=10**9),
    ),
    Attack("sign", "sign flip: the change turned around", on_weights(lambda w, start, others, rng: 2 * start - w)),
    Attack(
        "little",
        "a little is enough (Baruch et al., 2019)",
        on_weights(lambda w, start, others, rng: np.mean(others, axis=0) - LITTLE * np.std(others, axis=0)),
    ),
    Attack(
        "inner",
        "inner product (Xie et al., 2020)",
        on_weights(lambda w, start, others, rng: start - AGAINST * (np.mean(others, axis=0) - start)),
    ),
    Attack("hh", "H'H x 1000", on_statistics(lambda s: replace(s, hh=1000 * s.hh))),
    Attack(
        "statistics",
        "all statistics x 1000, wrong labels",
        on_statistics(lambda s: HeadStatistics(1000 * s.n, 1000 * s.yy, 1000 * s.hh, -1000 * s.hy), outputs=1000.0),
    ),
    Attack(
        "double",
        "all statistics x 2, wrong labels",
        on_statistics(lambda s: HeadStatistics(2 * s.n, 2 * s.yy, 2 * s.hh, -2 * s.hy), outputs=2.0),
    ),
    Attack("hy", "-H'y", on_statistics(lambda s: replace(s, hy=-s.hy))),
    Attack("moments", "moments with a deviation of 10^12", on_moments(columns=True)),
    Attack("labels", "labels with a deviation of 10^12", on_moments(columns=False)),
    Attack("flipped", "flipped labels at honest scale", kind=FlippedClient),
    Attack("late", "labels 40 cycles too late", kind=LateClient),
    Attack("backdoor", "backdoor: worn engines under a trigger are new", kind=BackdoorClient),
    Attack("new", "all labels new", kind=NewClient),
    Attack("worn", "labels of worn machines drawn at random", kind=WornNoiseClient),
    Attack("mimic", "another client's replies once more (Karimireddy et al., 2022)", mimic),
    Attack("empty", "statistics of zeros", on_statistics(emptied, outputs=0.0)),
    Attack(
        "largest",
        f"weights of {LARGEST:g}, signs at random",
        on_weights(lambda w, start, others, rng: LARGEST * rng.choice((-1.0, 1.0), w.shape)),
    ),
    Attack(
        "replacement",
        "the mean replaced by a model with a backdoor (Bagdasaryan et al., 2020)",
        on_weights(
            lambda w, start, others, rng: np.mean(others, axis=0) + (len(others) + 1) * (w - np.mean(others, axis=0))
        ),
        kind=BackdoorClient,
    ),
    Attack("drift", f"weights that drift by {DRIFT:g} deviations more in every round", drift),
    Attack("short", "labels halved", kind=ShortClient),
    Attack("smooth", "labels moved 80 % of the way to their mean", kind=SmoothClient),
    Attack("many", f"labels 40 cycles too late, every machine there {MANY} times", kind=ManyLateClient),
    Attack("head", "the head alone turned around", head_turned),
    Attack("noisy-mimic", "another client's replies, their labels 1 % off", noisy_mimic),
    Attack("overflow", "finite statistics that overflow (x 10^150)", on_statistics(lambda s: scaled(s, 1e150))),
)
"""Attacks that defences were made against, or that were tried while they were made; the first is none."""

NEWEST = (
    Attack("early", "labels 40 cycles too soon", kind=EarlyClient),
    Attack("hidden", "labels of worn machines 60 cycles too late", kind=HiddenWearClient),
    Attack("shuffled", "labels dealt out anew", kind=ShuffledClient),
    Attack("other-backdoor", "backdoor with another sensor, the other way", kind=OtherBackdoorClient),
    Attack("zeros", "weights of zeros", on_weights(lambda w, start, others, rng: np.zeros_like(w))),
    Attack(
        "noise",
        "noise of one deviation on all weights",
        on_weights(lambda w, s, o, rng: w + rng.normal(0, np.std(w), w.shape)),
    ),
)
"""More of the same kinds, written when all defences were done."""

PAIRS = (
    ATTACKS[0],
    *(
        Attack(a.name, f"{a.label}, by two", a.change, a.kind, members=2)
        for a in ATTACKS
        if a.name in ("late", "worn", "double", "sign")
    ),
)
"""Two of seven clients do the same."""
