"""What the sums of two approved runs would differ by: nothing, or as much as the site's floors ask for.

Caps of 368 and 369 differ by the machines that lived so long; yesterday's data and today's by the machine that came in
between. A run that would differ from an earlier one by a few rows or units is refused, unless the owner allows it.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedprognos.arrays import BoolArray, FloatArray, IntArray
from fedprognos.deployment.approvals import Approvals
from fedprognos.deployment.contract import Contract
from fedprognos.deployment.site_data import SiteData
from fedprognos.features import conditions
from fedprognos.features.counted import Counted, labelled_only
from fedprognos.features.options import RecipeOptions
from fedprognos.federation.floors import Floors
from fedprognos.files import read_json, write_json
from fedprognos.fleet import Fleet
from fedprognos.fleet.digest import fleet_digest

UNITS = "units.json"


@dataclass(frozen=True)
class Differences:
    """Compares a run that is to begin with all that a site has answered.

    Parameters
    ----------
    secret
        The site's own: what is kept of its units tells nothing without it.
    """

    data: SiteData
    floors: Floors
    secret: bytes

    def too_small(self, contract: Contract, approvals: Approvals) -> Iterator[str]:
        """What the run and each earlier one would differ by, in words, where that is too little."""
        if not self.floors.parts:
            return
        known, view = self._units, view_of(self.data.train, contract.experiment().recipe, self.floors)
        if any(self._few_changed(known, before) for before in _remembered(approvals)):
            yield "this site's data changed by a few units or rows since an earlier run, whose sums differ by them"
        for entry in approvals.entries():
            digest = entry.contract.digest
            answered = entry.state in ("running", "finished") or (approvals.place(digest) / UNITS).is_file()
            if answered and digest != contract.digest:
                other = view_of(self.data.train, entry.contract.experiment().recipe, self.floors)
                for what in view.differences(other, self.floors):
                    yield f"its {what} and those of run '{entry.contract.run}' differ in a few rows or units only"

    def remember(self, place: Path) -> None:
        """Keep which data a run is about, in its contract's folder."""
        write_json(place / UNITS, self._units)

    @cached_property
    def _units(self) -> dict[str, list[Any]]:
        """A seal of every unit's data and its number of points, by a seal of its name."""
        found = {}
        for kind, fleet in (("train", self.data.train), ("test", self.data.test)):
            for unit in fleet or ():
                name = hmac.new(self.secret, unit.id.encode(), hashlib.sha256).hexdigest()[:32]
                own = fleet_digest(self.data.train.select([unit]), self.secret)
                found[f"{kind} {name}"] = [own, len(unit.positions)]
        return found

    def _few_changed(self, now: dict[str, Any], before: dict[str, Any]) -> bool:
        """Whether units to learn from, or units to be tested on, changed and are too few; a single one counts rows."""
        changed = [name for name in now.keys() | before.keys() if now.get(name) != before.get(name)]
        for kind, single in (("train", len(self.data.train) == 1), ("test", False)):
            own = [name for name in changed if name.startswith(kind)]
            points = sum(abs(now.get(name, ["", 0])[1] - before.get(name, ["", 0])[1]) for name in own)
            if own and (points < self.floors.rows if single else len(own) < self.floors.units):
                return True
        return False


def _remembered(approvals: Approvals) -> Iterator[dict[str, Any]]:
    """The units of every run that was answered, whichever version its contract is of."""
    for path in sorted(approvals.place("").glob(f"*/{UNITS}")):
        with contextlib.suppress(ValueError, OSError):
            yield read_json(path)


@dataclass(frozen=True, eq=False)
class View:
    """What a recipe makes of a site's labelled points, one entry (N,) each.

    Parameters
    ----------
    condition
        Number of the operating condition, -1 where a row counts nowhere.
    label
        Capped; NaN where a row counts nowhere.
    point
        Whether a history ends there.
    """

    unit: IntArray
    condition: IntArray
    label: FloatArray
    point: BoolArray

    def differences(self, other: View, floors: Floors) -> Iterator[str]:
        """Names of what differs in too little."""

        def few(rows: BoolArray) -> bool:
            units = len(np.unique(self.unit[rows]))
            return 0 < int(rows.sum()) < floors.rows or 0 < units < floors.units

        if few(_unlike(self.label, other.label)):
            yield "labels"
        points = (np.where(view.point, view.label, np.nan) for view in (self, other))
        if few(_unlike(*points)):
            yield "histories"
        pairs, which = np.unique(np.stack([self.condition, other.condition]), axis=1, return_inverse=True)
        parts = (which.reshape(-1) == k for k in range(pairs.shape[1]) if pairs[:, k].max() >= 0)
        if any(map(few, parts)):
            yield "operating conditions"


def _unlike(one: FloatArray, other: FloatArray) -> BoolArray:
    return np.asarray(~((one == other) | (np.isnan(one) & np.isnan(other))))


def view_of(fleet: Fleet, recipe: RecipeOptions, floors: Floors) -> View:
    """The labelled points of a fleet as a recipe will see them."""
    fleet = labelled_only(fleet, relative=False)
    series = fleet.schema.task == "rul"
    lengths = [len(unit.positions) for unit in fleet]
    labels = np.concatenate([unit.labels() for unit in fleet])
    if recipe.cap is not None and series:
        labels = np.minimum(labels, recipe.cap)
    if not series:
        return View(_numbers(lengths), np.zeros(len(labels), dtype=np.int64), labels, np.ones(len(labels), dtype=bool))
    rule = {name: places for name, places in recipe.conditions.items() if name in fleet.schema.settings}
    counted = np.concatenate(Counted(floors.rows, floors.units).rows_of(fleet, rule))
    keys = np.concatenate([conditions.keys(unit.settings, rule, fleet.schema.settings) for unit in fleet])
    _, condition = np.unique(keys, axis=0, return_inverse=True)
    points = np.concatenate([_ends(length, recipe) for length in lengths])
    return View(
        _numbers(lengths),
        np.where(counted, condition.reshape(-1), -1),
        np.where(counted, labels, np.nan),
        points & counted,
    )


def _numbers(lengths: list[int]) -> IntArray:
    return np.repeat(np.arange(len(lengths)), lengths)


def _ends(rows: int, recipe: RecipeOptions) -> BoolArray:
    """At which rows of a unit histories end: counted back from the last one."""
    window, found = min(recipe.length or 1, rows), np.zeros(rows, dtype=bool)
    if recipe.short == "pad" or rows >= (recipe.length or 1):
        found[np.arange(rows - 1, window - 2, -recipe.stride)] = True
    return found
