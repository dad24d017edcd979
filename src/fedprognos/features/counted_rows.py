"""Which rows count in everything that leaves a site, so that no two sums differ by a few rows.

Moments leave out operating conditions with too few rows, and units of unknown health have no labels. If sums over
histories counted those rows, the difference of the two sums would reveal them. So a row that cannot be in one of the
sums is in none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedprognos.arrays import BoolArray
from fedprognos.features import conditions
from fedprognos.features.windows import WindowSet, health_labels
from fedprognos.fleet import Fleet


def labelled_only(fleet: Fleet, relative: bool) -> Fleet:
    """The units whose health is known; all, where none is."""
    labelled = tuple(unit for unit in fleet if health_labels(unit, relative) is not None)
    return replace(fleet, units=labelled) if labelled else fleet


@dataclass(frozen=True)
class CountedRows:
    """Rows of operating conditions with at least `rows` rows of at least `units` units; rarer ones count nowhere."""

    rows: int
    units: int

    def rows_of(self, fleet: Fleet, rule: Mapping[str, int]) -> list[BoolArray]:
        """Which rows of each unit count.

        Parameters
        ----------
        rule
            Decimals to which each setting is rounded to make an operating condition.
        """
        lengths = [unit.rows for unit in fleet]
        if not rule:
            return [np.ones(length, dtype=bool) for length in lengths]
        keys = np.concatenate([conditions.keys(unit.settings, rule, fleet.schema.settings) for unit in fleet])
        distinct, which = np.unique(keys, axis=0, return_inverse=True)
        which, owner = which.reshape(-1), np.repeat(np.arange(len(lengths)), lengths)
        enough = np.array(
            [
                (in_condition := which == k).sum() >= self.rows and len(np.unique(owner[in_condition])) >= self.units
                for k in range(len(distinct))
            ]
        )
        return np.split(enough[which], np.cumsum(lengths)[:-1])

    def points_of(self, windows: WindowSet, fleet: Fleet, rule: Mapping[str, int]) -> WindowSet:
        """The histories that end at a row which counts."""
        if not rule or fleet.schema.task == "soh":
            return windows
        units = labelled_only(fleet, relative=False)
        counts = {unit.id: (unit.positions, rows) for unit, rows in zip(units, self.rows_of(units, rule), strict=True)}
        kept = np.ones(len(windows), dtype=bool)
        for number, name in enumerate(windows.unit_ids):
            of_unit, (positions, rows) = windows.unit == number, counts[name]
            kept[of_unit] = rows[np.searchsorted(positions, windows.position[of_unit])]
        return windows if kept.all() else windows.select(kept)
