"""What is remembered of one unit while its rows come in."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray, Rows
from fedprognos.features import Arrays, Channels, Recipe, RowMemory
from fedprognos.features.history import GAP, PADDED, STRETCHED, UNSEEN, Cut, rule_of
from fedprognos.prognosis.health import Health, Verdict
from fedprognos.prognosis.row_clock import Clock
from fedprognos.prognosis.sensor_faults import MID_LIFE, NoveltyWatch, SensorLimits, SensorWatch
from fedprognos.tables import LATEST, TableLayout, first_health, is_worn

WORN = "worn"
"""The end of life by a threshold of health is reached: no life is left, and the network is not asked."""
FLAGS = {PADDED: "padded", STRETCHED: "stretched", GAP: "gap", UNSEEN: "unseen-condition"}


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """What the network is to look at.

    Parameters
    ----------
    health
        Unit, position, flags and reason, filled in before the network gives the value.
    window : (length, channels)
        Scaled rows.
    levels : (sensors,)
        Smoothed deviations of the sensors at that row, to say which ones move.
    stretch
        How many times wider the interval is than on machines whose sensors agree.
    """

    health: Health
    window: Rows
    state: UnitState
    levels: FloatArray
    stretch: float


class WornWatch(RowMemory):
    """First and latest values of one unit's health; that it is worn latches.

    Parameters
    ----------
    column
        Of the health among the recipe's sensors.
    share
        Of the first value, below which a unit is worn.
    """

    __slots__ = ("column", "count", "first", "latest", "share", "worn")
    scalars = ("count", "worn")
    arrays = ("first", "latest")

    def __init__(self, column: int, share: float) -> None:
        self.column, self.share = column, share
        self.first, self.latest = np.full(LATEST, np.nan), np.full(LATEST, np.nan)
        self.count = 0
        self.worn = False

    @staticmethod
    def for_model(recipe: Recipe, table: TableLayout | None) -> WornWatch | None:
        """A watch for a unit of a model whose lives end by a threshold; None for other models."""
        if recipe.task != "rul" or table is None or table.health not in recipe.sensors:
            return None
        return WornWatch(recipe.sensors.index(table.health), table.end_of_life)

    def push(self, value: float) -> None:
        """Note the health of one more row; a blank one says nothing."""
        if math.isnan(value):
            return
        if self.count < LATEST:
            self.first[self.count] = value
        self.latest = np.append(self.latest[1:], value)
        self.count += 1
        if self.count >= LATEST:
            self.worn = self.worn or is_worn(first_health(self.first), self.latest, self.share)

    def words(self, sensors: tuple[str, ...]) -> str:
        """Why the unit is worn."""
        return f"end of life reached: {sensors[self.column]} is below {self.share:.0%} of its first value"


class UnitState:
    """One unit's memory: its history, its clock, its sensors, and where it stands.

    Parameters
    ----------
    recipe
        Of the model that reads it.
    limits
        What the sensors may do.
    size
        Numbers of the network's state, where it carries one.
    worn
        Watches for the end of life, where a threshold says it.
    memory : (size,)
        That state; NaN before the first row.
    pending
        The latest window, where the model has not looked at it yet.
    health
        The latest health.
    latest_values : (sensors + settings,)
        The latest value of each that was given.
    """

    __slots__ = (
        "channels",
        "clock",
        "health",
        "history",
        "latest_values",
        "limits",
        "memory",
        "novelty",
        "pending",
        "recipe",
        "sensors",
        "worn",
    )

    def __init__(self, recipe: Recipe, limits: SensorLimits, size: int = 0, worn: WornWatch | None = None) -> None:
        self.recipe = recipe
        self.history = rule_of(recipe).start(recipe)
        self.channels = Channels(recipe.extra, len(recipe.sensors))
        self.clock = Clock(recipe.cycle is not None)
        self.sensors = SensorWatch(len(recipe.sensors))
        self.novelty = NoveltyWatch()
        self.worn = worn
        self.latest_values = np.full(len(recipe.sensors) + len(recipe.settings), np.nan)
        self.limits = limits
        self.memory = np.full(size, np.nan, dtype=np.float32)
        self.pending: Question | None = None
        self.health: Health | None = None

    def push(
        self,
        position: float,
        cycle: int | None,
        end: bool,
        *,
        raw: FloatArray,
        given: FloatArray,
        deviations: FloatArray,
        scaled: Rows,
        unseen: bool,
        trusting: bool = False,
    ) -> tuple[Verdict, str, tuple[Cut, ...]]:
        """Take a row; returns the verdict, its reason, and the windows that are now complete.

        Parameters
        ----------
        raw, deviations : (sensors,)
            As they were measured, and how far from the mean of the operating condition.
        given : (sensors + settings,)
            What was given, NaN where a value was blank.
        scaled : (columns,)
            The input of the network, from which extra channels are computed.
        unseen
            The row is in an operating condition that the training data did not have.
        trusting
            Accept the row's clock without a check.
        """
        number, held = cycle or 0, self.held(cycle)
        if trusting:
            judged = self.clock.believe(position, number)
        else:
            judged = self.clock.judge(position, number, end, not self.history.complete)
        width = len(raw)
        if judged.verdict is Verdict.DUPLICATE and self._differs(given, width):
            return Verdict.CONFLICT, f"{judged.reason}, with other values", ()
        if judged.verdict is not Verdict.ACCEPTED:
            return judged.verdict, judged.reason, ()
        if judged.again:
            return judged.verdict, "", self.history.close()
        visible = self.sensors.push(raw, np.isnan(given[:width]), deviations, self.limits)
        impossible = visible != deviations
        if impossible.any():
            scaled = self.recipe.with_deviations(scaled, visible, impossible)
            given = given.copy()
            given[:width][impossible] = np.nan  # an impossible value must not fill a later blank
        self.latest_values = np.where(np.isnan(given), held, given)
        if self.worn is not None:
            self.worn.push(float(given[self.worn.column]))
        inputs = self.channels.extend(scaled)
        cuts = self.history.push(inputs, position, cycle=number, end=end, unseen=unseen, gap=judged.gap)
        return judged.verdict, "", cuts

    def _differs(self, given: FloatArray, sensors: int) -> bool:
        """Whether a row says something else than the last one did; a blank setting says nothing."""
        settings, before = given[sensors:], self.latest_values[sensors:]
        same = np.array_equal(given[:sensors], self.sensors.raw, equal_nan=True)
        return not same or bool(((settings != before) & ~np.isnan(settings)).any())

    def doubts(self, cut: Cut) -> tuple[tuple[str, ...], str]:
        """Flags and reason that make the health at a window doubtful before the model reads the window.

        A worn unit has one flag only: beyond its end of life the sensors leave what training showed.
        """
        if self.worn is not None and self.worn.worn:
            return (WORN,), self.worn.words(self.recipe.sensors)
        faults, reason = self.limits.faults(self.sensors)
        if late := self.mid_life:
            faults = (MID_LIFE, *faults)
            reason = "; ".join(filter(None, (late, reason)))
        return (*(FLAGS[bit] for bit in FLAGS if cut.odd & bit), *faults), reason

    @property
    def mid_life(self) -> str:
        """That the beginning of its life was not seen, in words; empty where it was."""
        # The life after a repair starts at the repair, so a late first position is normal there.
        if self.clock.origin or not self.limits.first < self.clock.first < self.limits.dates:
            return ""
        return f"watched from {self.clock.first:g} on, not from its first row"

    def acknowledge(self, sensor: str | None = None) -> None:
        """Drop the faults that latched: those of one sensor that was exchanged, or all."""
        if sensor is not None:
            self.sensors.acknowledge(self.recipe.sensors.index(sensor))
            return
        self.sensors.acknowledge()
        self.novelty.acknowledge()

    @property
    def position(self) -> float:
        """Cycle number that the unit has got to; NaN before its first row."""
        return self.clock.last if math.isnan(self.clock.cycle) else self.clock.cycle

    def held(self, cycle: int | None) -> FloatArray:
        """The latest sensors and settings that were given, of a cyclic unit in this cycle; NaN where there is none."""
        return (
            self.latest_values
            if not self.clock.cyclic or cycle == self.clock.cycle
            else np.full_like(self.latest_values, np.nan)
        )

    @property
    def begun(self) -> bool:
        """Whether the network has a state of it."""
        return bool(len(self.memory)) and not math.isnan(self.memory[0])

    def _parts(self) -> dict[str, RowMemory | Channels]:
        watched: dict[str, RowMemory | Channels] = {} if self.worn is None else {"worn": self.worn}
        return {
            **watched,
            "history": self.history,
            "clock": self.clock,
            "channels": self.channels,
            "sensors": self.sensors,
            "novelty": self.novelty,
        }

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """All arrays; the health is kept apart."""
        kept = {
            f"{part}.{name}": array
            for part, memory in self._parts().items()
            for name, array in memory.snapshot().items()
        }
        kept["known"] = self.latest_values.copy()
        return {**kept, "memory": self.memory.copy()} if len(self.memory) else kept

    def restore(self, kept: Arrays) -> None:
        """Go on from a snapshot."""
        names_of_parts = _names_by_part(tuple(kept))
        for part, memory in self._parts().items():
            memory.restore({short: kept[name] for name, short in names_of_parts.get(part, ())})
        self.latest_values[:] = kept["known"]
        if len(self.memory):
            self.memory[:] = kept["memory"]


@lru_cache(maxsize=8)
def _names_by_part(names: tuple[str, ...]) -> dict[str, list[tuple[str, str]]]:
    """Names of a snapshot's arrays with their names within each part; the same for all units of a model."""
    parts = defaultdict[str, list[tuple[str, str]]](list)
    for name in names:
        part, dot, short = name.partition(".")
        if dot:
            parts[part].append((name, short))
    return dict(parts)
