"""What goes into a prognosis and what comes out: rows, what became of them, and health."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

import numpy as np

from fedprognos.arrays import BoolArray, FloatArray, IntArray

HealthState = Literal["ok", "warming-up", "cannot-say"]
STATES: tuple[HealthState, ...] = ("ok", "warming-up", "cannot-say")
AT_CAP = "at-cap"
"""The value is the largest that the model can say: it stands for "as much or more", so no end can be told from it."""


@dataclass(frozen=True, slots=True)
class Health:
    """Health of a unit at one moment of its life.

    Parameters
    ----------
    position
        Cycle number: of the row for a series unit, of the cycle for a cyclic one.
    value
        RUL or SoH in the recipe's measure; None unless the state is "ok".
    low, high
        Interval; both None where the bundle has no calibration, one of them where it cannot bound that side.
    reason
        Why there is no value, or what the flags mean; empty where there is nothing to say.
    flags
        What makes the value less trustworthy: "out-of-range", "drift", "stuck", "missing" (a sensor is broken),
        "unknown-wear" (the machine moves as no training machine did); under these there is no interval; see
        :mod:`fedprognos.prognosis.sensor_faults`. "mid-life" (a model of whole lives has not seen the beginning),
        "unseen-condition", "padded" (fewer rows than a window), "stretched" (a cycle ended before the part that the
        model looks at did), "gap" (rows are missing within the window). And two that are no doubts: :data:`AT_CAP`, and
        "worn" (the end of life by a threshold of health is reached; the value is 0).
    """

    unit: str
    position: float
    value: float | None
    low: float | None = None
    high: float | None = None
    state: HealthState = "ok"
    reason: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class HealthTable:
    """Many healths as columns.

    Parameters
    ----------
    names
        Of the units.
    unit : (N,)
        Numbers of the units among them.
    position, value, low, high : (N,)
        NaN where a :class:`Health` has None.
    state : (N,)
        Places in :data:`STATES`.
    flags : (N,)
        Numbers of the combinations in `combinations`.
    reasons
        By row; there is none elsewhere.
    """

    names: Sequence[str]
    unit: IntArray
    position: FloatArray
    value: FloatArray
    low: FloatArray
    high: FloatArray
    state: IntArray
    flags: IntArray
    combinations: Sequence[tuple[str, ...]]
    reasons: Mapping[int, str]

    def __len__(self) -> int:
        return len(self.unit)

    @staticmethod
    def from_healths(healths: Sequence[Health]) -> HealthTable:
        """The columns of some healths."""
        names, combinations = dict[str, int](), dict[tuple[str, ...], int]()
        numbers = np.array(
            [
                (
                    names.setdefault(health.unit, len(names)),
                    health.position,
                    *(math.nan if x is None else x for x in (health.value, health.low, health.high)),
                    STATES.index(health.state),
                    combinations.setdefault(health.flags, len(combinations)),
                )
                for health in healths
            ]
        ).reshape(-1, 7)
        unit, position, value, low, high, state, flags = numbers.T
        reasons = {k: health.reason for k, health in enumerate(healths) if health.reason}
        codes = (column.astype(np.int64) for column in (unit, state, flags))
        unit_codes, state_codes, flag_codes = codes
        return HealthTable(
            list(names), unit_codes, position, value, low, high, state_codes, flag_codes, list(combinations), reasons
        )

    def healths(self, rows: Iterable[int] | None = None) -> list[Health]:
        """Some of the healths, by default all."""
        columns = (self.position, self.value, self.low, self.high, self.unit, self.state, self.flags)
        chosen = range(len(self)) if rows is None else list(rows)
        parts = [column.tolist() if rows is None else column[chosen].tolist() for column in columns]
        return [
            Health(
                self.names[unit],
                position,
                None if math.isnan(value) else value,
                None if math.isnan(low) else low,
                None if math.isnan(high) else high,
                STATES[state],
                self.reasons.get(k, ""),
                self.combinations[flags],
            )
            for k, position, value, low, high, unit, state, flags in zip(chosen, *parts, strict=True)
        ]

    @staticmethod
    def joined(tables: Sequence[HealthTable], rows: Sequence[IntArray]) -> HealthTable:
        """Some tables as one, in the order of the rows (N,) that each health is of."""
        if len(tables) == 1:
            return tables[0]
        order = np.argsort(np.concatenate(rows), kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        starts = np.cumsum([0, *(len(table) for table in tables)]).tolist()
        names = [name for table in tables for name in table.names]
        combinations = [flags for table in tables for flags in table.combinations]
        of_names = np.cumsum([0, *(len(table.names) for table in tables)]).tolist()
        of_flags = np.cumsum([0, *(len(table.combinations) for table in tables)]).tolist()

        def column(name: str, shifts: Sequence[int] | None = None) -> Any:
            parts = [getattr(table, name) for table in tables]
            parts = parts if shifts is None else [part + shift for part, shift in zip(parts, shifts, strict=False)]
            return np.concatenate(parts)[order]

        return HealthTable(
            names,
            column("unit", of_names),
            column("position"),
            column("value"),
            column("low"),
            column("high"),
            column("state"),
            column("flags", of_flags),
            combinations,
            {
                int(place[start + k]): reason
                for start, table in zip(starts, tables, strict=False)
                for k, reason in table.reasons.items()
            },
        )


@dataclass(frozen=True, slots=True)
class Row:
    """One sample of one unit.

    Parameters
    ----------
    position
        Cycle number or time (series units), or seconds since the cycle began (cyclic units). Where time is counted in
        hours or another measure of that kind it may be a date in ISO format.
    sensors, settings
        None for a value that is blank.
    cycle
        Number of the cycle the sample belongs to; cyclic units only.
    end
        The sample is the last of its cycle; cyclic units only. Without it a cycle is over when the part that the
        model looks at is, or when the next one begins.
    """

    unit: str
    position: float
    sensors: Mapping[str, float | None]
    settings: Mapping[str, float | None] = field(default_factory=dict)
    cycle: int | None = None
    end: bool = False


@dataclass(frozen=True, eq=False)
class RowTable:
    """Many rows in the order they came; NaN is a blank, all other numbers are finite.

    Parameters
    ----------
    sensors : (T, C)
    settings : (T, S)
        Columns in the recipe's order.
    """

    units: Sequence[str]
    positions: Sequence[float]
    cycles: Sequence[int | None]
    ends: Sequence[bool]
    sensors: FloatArray
    settings: FloatArray

    def __len__(self) -> int:
        return len(self.units)

    def part(self, some: slice) -> RowTable:
        """Some of the rows."""
        return RowTable(
            self.units[some],
            self.positions[some],
            self.cycles[some],
            self.ends[some],
            self.sensors[some],
            self.settings[some],
        )

    def take(self, rows: Sequence[int]) -> RowTable:
        """Some of the rows, by number."""
        return RowTable(
            [self.units[k] for k in rows],
            [self.positions[k] for k in rows],
            [self.cycles[k] for k in rows],
            [self.ends[k] for k in rows],
            self.sensors[rows],
            self.settings[rows],
        )

    def accepted(self, updates: Sequence[Update]) -> RowTable:
        """The rows that were accepted."""
        taken = [k for k, update in enumerate(updates) if update.accepted]
        return self if len(taken) == len(self) else self.take(taken)

    @property
    def blank_rows(self) -> BoolArray:
        """Which rows have a blank: (T,)."""
        return np.asarray(np.isnan(self.sensors).any(axis=1) | np.isnan(self.settings).any(axis=1))


class Verdict(StrEnum):
    """What became of a row."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    """It was there already, which does no harm."""
    CONFLICT = "conflict"
    """A row of this position was there already, with other values; that one stays."""
    LATE = "late"
    """A later row of its unit was there before it."""
    JUMPED = "jumped"
    """Its clock is too far ahead to be believed; rows that go on from there confirm it."""
    REFUSED = "refused"
    """It cannot be used."""


@dataclass(slots=True)
class Update:
    """What became of a row.

    Parameters
    ----------
    unit, position, cycle
        Whose row it was, and from when; a date is the time since 1970 in the recipe's measure.
    reason
        Why it was not accepted.
    healths
        What it told of its unit: one health for every accepted row of a series unit, one for every cycle that the
        row of a cyclic unit completed.
    """

    unit: str
    position: float
    cycle: int | None
    verdict: Verdict
    reason: str = ""
    healths: list[Health] = field(default_factory=list)

    @property
    def accepted(self) -> bool:
        return self.verdict is Verdict.ACCEPTED

    @property
    def health(self) -> Health | None:
        """The unit's new health, where the row brought one."""
        return self.healths[-1] if self.healths else None


def machine_and_life(unit: str) -> tuple[str, int]:
    """The machine that a unit's name stands for, and which of its lives it is.

    >>> machine_and_life("pump#2"), machine_and_life("pump")
    (('pump', 2), ('pump', 1))
    """
    machine, mark, life = unit.rpartition("#")
    if mark and machine and life.isdecimal() and life.isascii() and len(life) < 8 and int(life) > 1:
        return machine, int(life)
    return unit, 1
