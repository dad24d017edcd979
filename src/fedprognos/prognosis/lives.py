"""Lives of machines that were repaired, told apart row by row as :func:`fedprognos.fleet.table_units.lives_of` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedprognos.arrays import BoolArray, FloatArray
from fedprognos.fleet.table_layout import TableLayout
from fedprognos.fleet.table_units import name_of_life


@dataclass
class _Machine:
    """Where a machine has got to."""

    life: str
    last: float
    since: float = 0.0
    ended: bool = False


class Lives:
    """Names the life that each row belongs to, and counts its time from the beginning of that life.

    Examples
    --------
    >>> import numpy as np
    >>> lives = Lives(TableLayout(unit="pump", time="hour", new_life="time"))
    >>> lives.of(["p", "p", "p"], np.array([1.0, 2.0, 1.0]))
    (['p', 'p', 'p#2'], array([1., 2., 1.]))
    >>> lives.past
    {'p'}
    """

    def __init__(self, table: TableLayout | None) -> None:
        self._rule = None if table is None else table.new_life
        self._machines: dict[str, _Machine] = {}
        self.past: set[str] = set()
        """Lives that another one of the same machine has followed."""

    def of(
        self,
        machines: list[str],
        times: FloatArray,
        labels: Sequence[str] | None = None,
        failed: BoolArray | None = None,
        *,
        dated: bool = False,
    ) -> tuple[list[str], FloatArray]:
        """Units and times of rows that follow those of the call before; a date stays the date it is."""
        if labels is None and self._rule is None:
            return machines, times
        units, counted = [], times.copy()
        for k, machine in enumerate(machines):
            time = float(times[k])
            now = self._machines.get(machine)
            label = self._label(now, time, None if labels is None else labels[k])
            if now is None:
                now = self._machines[machine] = _Machine(label, time)
            elif label != now.life:
                went_on = time > now.last and not dated
                self.past.add(name_of_life(machine, now.life))
                now.life, now.since = label, now.last if went_on else 0.0
            now.last, now.ended = time, failed is not None and bool(failed[k])
            units.append(name_of_life(machine, label))
            self.past.discard(units[-1])
            counted[k] = time - now.since
        return units, counted

    def _label(self, now: _Machine | None, time: float, label: str | None) -> str:
        if label is not None:
            return label
        if now is None:
            return "1"
        begins = time < now.last if self._rule == "time" else now.ended
        return str(int(now.life) + 1) if begins else now.life
