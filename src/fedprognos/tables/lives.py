"""Which unit each row is of: machines of the same name are told apart, and so are the lives of each machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedprognos.arrays import IntArray
from fedprognos.tables.column_names import folded
from fedprognos.tables.columns import Columns

if TYPE_CHECKING:
    from fedprognos.tables.rows import Rows


@dataclass
class _Life:
    """Where a machine has got to: its latest row, and its present life and cycle."""

    table: int
    last: float
    life: str = "1"
    since: float = 0.0
    ended: bool = False
    cycle: float = np.nan
    cycle_began: float = 0.0


@dataclass
class _Namesake:
    """The table that a machine's name was last met in, the unit that it means there, and its first cycle and time."""

    table: int
    unit: str
    first: tuple[float, float]


class Lives:
    """Names the units of rows, table after table; a machine may go on in the next table.

    Attributes
    ----------
    past
        Lives that another one of the same machine has followed.
    again
        Machines that came again in a later table with a time that does not go on: other machines of the same name.
    goes_on
        Whether a machine has rows in several tables.
    """

    def __init__(self, columns: Columns, *, own_clock: bool) -> None:
        self.columns, self.own_clock = columns, own_clock
        self._table = -1
        # By the machine's name in the table, and for sites by machine and site:
        self._lives: dict[str, _Life] = {}
        self._namesakes: dict[str, _Namesake] = {}
        self._first_site: dict[str, str] = {}
        self._latest_time: dict[str, float] = {}
        self._unit_at_site: dict[tuple[str, str], str] = {}
        self.past: set[str] = set()
        self.again: set[str] = set()
        self.goes_on = False

    def begin_table(self) -> None:
        """The rows that follow are of another table."""
        self._table += 1

    def name_units(self, rows: Rows) -> Rows:
        """Rows with the unit of each, and the time since its life, or its cycle, began."""
        if rows.sites is not None:
            rows = self._named_by_sites(rows, rows.sites)
        has_lives = self.columns.life is not None or self.columns.new_life is not None
        dated_cycles = rows.dates is not None and rows.cycles is not None
        return self._named_by_lives(rows) if has_lives or dated_cycles else self._named_by_tables(rows)

    def _named_by_sites(self, rows: Rows, sites: Sequence[str]) -> Rows:
        """Rows whose machines have one site each, as far as clocks tell: plants may all count their machines from 1.

        If a machine comes at a second site and its clock does not go on there, it is another machine of the same name.
        Its unit is called after the site: `south/1`.
        """
        clock = rows.times if rows.cycles is None else rows.cycles
        machine_of_row, machines, _ = coded(rows.machines)
        site_of_row, site_names, _ = coded(sites)
        pair_of_row, _, first_rows = coded(machine_of_row * len(site_names) + site_of_row)
        names = []
        for first in first_rows:
            machine, spelled = rows.machines[first], sites[first]
            site = folded(spelled)
            if (machine, site) not in self._unit_at_site:
                name = machine
                if self._first_site.setdefault(machine, site) != site:
                    before = np.flatnonzero(machine_of_row[:first] == machine_of_row[first])
                    latest = clock[before[-1]] if before.size else self._latest_time[machine]
                    name = f"{spelled}/{machine}" if clock[first] <= latest else machine
                self._unit_at_site[machine, site] = name
            names.append(self._unit_at_site[machine, site])
        last_rows = np.zeros(len(machines), dtype=np.int64)
        last_rows[machine_of_row] = np.arange(len(rows))
        self._latest_time.update(zip(machines, clock[last_rows].tolist(), strict=True))
        if names == [rows.machines[first] for first in first_rows]:
            return rows
        renamed = np.asarray(names, dtype=object)[pair_of_row].tolist()
        return replace(rows, machines=renamed, units=rows.units if self.columns.life is not None else renamed)

    def _named_by_tables(self, rows: Rows) -> Rows:
        """Every machine is a unit. One that comes again in a later table goes on there.

        If its clock begins anew it is another machine of the same name, as plants have that all count from 1; its unit
        is called after the table: `north/1`.
        """
        cycles = np.zeros(len(rows)) if rows.cycles is None else rows.cycles
        machine_of_row, machines, first_rows = coded(rows.machines)
        names = []
        for machine, first in zip(machines, first_rows, strict=True):
            begins = float(cycles[first]), float(rows.times[first])
            state = self._namesakes.get(machine)
            if state is None:
                state = self._namesakes[machine] = _Namesake(self._table, machine, begins)
            elif state.table != self._table:
                if begins <= state.first:
                    state.unit = f"{rows.table.stem}/{machine}"
                    state.first = begins
                    self.again.add(machine)
                else:
                    self.goes_on = True
                state.table = self._table
            names.append(state.unit)
        if names == machines:
            return replace(rows, units=rows.machines)
        units = np.asarray(names, dtype=object)[machine_of_row].tolist()
        return replace(rows, units=units, machines=units)

    def _named_by_lives(self, rows: Rows) -> Rows:
        """Each life of a machine is a unit, `pump#2`, and its clock begins with it; within cycles, with each cycle."""
        units, times = list[str](), rows.times.copy()
        for k, machine in enumerate(rows.machines):
            time = float(rows.times[k])
            label = rows.units[k] if self.columns.life is not None else None
            state = self._lives.get(machine)
            if state is None:
                state = self._lives[machine] = _Life(self._table, time, label or "1")
            else:
                label = label or self._next_life(state, time)
                if label != state.life:
                    # A counter that goes on over a repair begins anew with the life; a date stays the date it is.
                    went_on = time > state.last and rows.dates is None
                    self.past.add(name_of_life(machine, state.life))
                    state.life, state.since = label, state.last if went_on else 0.0
                self.goes_on |= state.table != self._table
            state.last, state.table = time, self._table
            state.ended = rows.failed is not None and bool(rows.failed[k])
            units.append(name_of_life(machine, state.life))
            self.past.discard(units[-1])
            if rows.dates is not None and rows.cycles is not None:
                if rows.cycles[k] != state.cycle:
                    state.cycle, state.cycle_began = float(rows.cycles[k]), time
                times[k] = time - state.cycle_began
            else:
                goes_on = self.own_clock and state.life.isdecimal()
                times[k] = time if goes_on else time - state.since
        return replace(rows, units=units, times=times)

    def _next_life(self, state: _Life, time: float) -> str:
        rule = self.columns.new_life
        begins = time < state.last if rule == "time" else rule == "failed" and state.ended
        return str(int(state.life) + 1) if begins else state.life


def coded(values: Sequence[str] | IntArray) -> tuple[IntArray, list[Any], list[int]]:
    """Numbers for values, the values in the order in which they come, and where each comes first.

    >>> codes, different, firsts = coded(["b", "a", "b"])
    >>> codes.tolist(), different, firsts
    ([0, 1, 0], ['b', 'a'], [0, 1])
    """
    array = values if isinstance(values, np.ndarray) else np.asarray(values, dtype=object)
    codes, different = pd.factorize(array)
    firsts = np.zeros(len(different), dtype=np.int64)
    firsts[codes[::-1]] = np.arange(len(codes))[::-1]
    return codes, different.tolist(), firsts.tolist()


def name_of_life(machine: str, life: str) -> str:
    """The unit that one life of a machine is.

    >>> name_of_life("pump", "1"), name_of_life("pump", "2")
    ('pump', 'pump#2')
    """
    return machine if life == "1" else f"{machine}#{life}"
