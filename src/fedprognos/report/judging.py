"""What every method's predictions would mean for maintenance, from the lives that a run keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray
from fedprognos.evaluation import Trajectories
from fedprognos.evaluation.decisions import (
    accurate,
    decided,
    followed_to,
    horizons,
    last_seen,
    maintained_at,
    median_horizon,
    rising,
)
from fedprognos.report.choosing import drawn, of_head
from fedprognos.report.entries import Entry
from fedprognos.report.material import Material, Setting

THRESHOLDS = 33
BEARABLE = 0.05
"""Share of unexpected breaks that the table asks thresholds for."""
MOMENTS = (0.5, 0.75)
"""Shares of life at which the alpha-lambda accuracy is given."""


@dataclass(frozen=True, eq=False)
class Judged:
    """One entry's decisions, means over seeds and over the clients' own models.

    Parameters
    ----------
    thresholds, breaks, unused : (T,)
        Predicted remaining life at which units are maintained; share of units that break; mean life thrown away.
    accuracy
        Share of units within alpha at each moment of life, None where no unit was followed so far.
    horizon
        Median prognostic horizon; None where the records end too early.
    """

    entry: Entry
    thresholds: FloatArray
    breaks: FloatArray
    unused: FloatArray
    accuracy: Mapping[float, float | None]
    horizon: float | None

    @property
    def bearable(self) -> int | None:
        """Index of the lowest threshold with few enough breaks; None where none has."""
        found = np.flatnonzero(self.breaks <= BEARABLE)
        return int(found[0]) if found.size else None


@dataclass(frozen=True)
class Followed:
    """How far the test units' lives could be followed: all, to failure, past each moment of life.

    `least` is the remaining life to which enough of them were followed.
    """

    units: int
    failed: int
    least: float
    past: Mapping[float, int]


def judged(material: Material, setting: Setting, found: Sequence[Entry]) -> list[Judged]:
    """Decisions of the entries that figures show; none where lives were not kept."""
    if not setting.lives:
        return []
    top = material.cap or float(np.quantile(np.concatenate([one.truth for one in setting.lives]), 0.9))
    thresholds = np.unique(np.round(np.linspace(0.0, top, THRESHOLDS), 0 if top > THRESHOLDS else 3))
    chosen = drawn(of_head(found, material.head))
    models = {entry.key: [_arrays(model) for model in models_of(setting, entry)] for entry in chosen}
    return [_judged(entry, models[entry.key], thresholds) for entry in chosen if models[entry.key]]


def models_of(setting: Setting, entry: Entry) -> list[list[Trajectories]]:
    """An entry's lives by model: those of a seed that answer for the whole test together."""
    groups: dict[tuple[int, str], list[Trajectories]] = {}
    for one in setting.lives:
        who = (one.method, setting.scopes.get(one.train_clients), one.head)
        if entry.honest and who == (entry.method, entry.scope, entry.head or ""):
            groups.setdefault((one.seed, one.train_clients if setting.shared_test else ""), []).append(one)
    return [groups[key] for key in sorted(groups)]


def followed(setting: Setting) -> Followed | None:
    """How far lives were followed; the same for all methods."""
    tests = {one.test_client: one for one in setting.lives}
    if not tests:
        return None
    first = np.concatenate([last_seen(one.truth[::-1], one.unit[::-1])[::-1] for one in tests.values()])
    last = np.concatenate([last_seen(one.truth, one.unit) for one in tests.values()])
    past = {moment: int((last <= (1 - moment) * first).sum()) for moment in MOMENTS}
    return Followed(len(last), int((last <= 0).sum()), followed_to(last), past)


def _arrays(lives: Sequence[Trajectories]) -> tuple[FloatArray, FloatArray, NDArray[np.int64]]:
    """Truth, prediction and unit of several tests' lives, units kept apart."""
    before = np.cumsum([0, *(len(one.unit_ids) for one in lives)])
    unit = np.concatenate([one.unit + shift for one, shift in zip(lives, before, strict=False)])
    return np.concatenate([one.truth for one in lives]), np.concatenate([one.prediction for one in lives]), unit


def _judged(
    entry: Entry, models: Sequence[tuple[FloatArray, FloatArray, NDArray[np.int64]]], thresholds: FloatArray
) -> Judged:
    costs = []
    for truth, prediction, unit in models:
        last = last_seen(truth, unit)
        least = followed_to(last)
        rules = [decided(maintained_at(truth, prediction, unit, t), last, least) for t in thresholds]
        costs.append([(rule.breaks, rule.unused) for rule in rules])
    breaks, unused = np.array(costs).mean(axis=0).T
    breaks, unused = -rising(-breaks), rising(unused)
    accuracy: dict[float, float | None] = {}
    for moment in MOMENTS:
        near = np.concatenate([accurate(*model, moment) for model in models])
        accuracy[moment] = None if np.isnan(near).all() else float(np.nanmean(near))
    reached = [median_horizon(*horizons(*model)) for model in models]
    known = [h for h in reached if h is not None]
    return Judged(
        entry, thresholds, breaks, unused, accuracy, float(np.mean(known)) if len(known) == len(reached) else None
    )
