"""From what the network is to look at to health: its outputs, decoded, with intervals and flags."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray, Rows
from fedprognos.errors import RecipeError
from fedprognos.features import Recipe
from fedprognos.networks import Calibration
from fedprognos.prognosis.health import Health
from fedprognos.prognosis.sensor_faults import limits_of
from fedprognos.prognosis.unit_state import UnitState
from fedprognos.tables.columns import TableLayout

BATCH = 1024
"""Rows looked at together."""
PASS = 256
"""Windows the network is given at a time: more would no longer fit into the processor's cache."""
Forward = Callable[[Rows], NDArray[np.floating]]
"""Standardised outputs (B,) of scaled windows (B, window, channels)."""


class Steps(Protocol):
    """A network that reads whole lives row by row; see :class:`fedprognos.networks.stepping.Stepper`."""

    size: int
    digest: str

    def rest(self, first: Rows) -> Rows: ...

    def run(self, rows: Rows, states: Rows) -> tuple[FloatArray, Rows]: ...


class HealthModel:
    """Health of units at some of their rows.

    Parameters
    ----------
    recipe
        How rows become what the network looks at, and outputs become health.
    network
        A function of windows; where the recipe asks for whole lives, steps that carry a state.
    calibration
        What intervals are made from, where there is one.
    table
        How the tables were written that it was trained on, where they were tables.

    Attributes
    ----------
    policies : (sensors + settings,)
        What stands in for blank values.
    """

    def __init__(
        self,
        recipe: Recipe,
        network: Forward | Steps,
        calibration: Calibration | None = None,
        table: TableLayout | None = None,
    ) -> None:
        self.recipe = recipe
        self.calibration = calibration
        self.table = table
        columns = (*recipe.sensors, *recipe.settings)
        self.policies = (table or TableLayout(time="time")).policies(columns)
        self._forward: Forward = network if callable(network) else self._from_rest
        self.steps = None if callable(network) else network
        self._limits = limits_of(recipe)
        self._lock = threading.Lock()

    @property
    def digest(self) -> str:
        """Names what a unit's memory belongs to: the recipe and, where states are carried, the network they are of."""
        own = self.recipe.to_json() + ("" if self.steps is None else self.steps.digest)
        return hashlib.sha256(own.encode()).hexdigest()

    def start(self) -> UnitState:
        """The empty memory of a unit."""
        return UnitState(self.recipe, self._limits, 0 if self.steps is None else self.steps.size)

    def windows(self, batch: Rows) -> FloatArray:
        """Health (B,) at the last row of scaled histories (B, T, channels). May be called from several threads."""
        return self.recipe.decode(self.outputs(batch))

    def outputs(self, batch: Rows) -> FloatArray:
        """Standardised outputs of the network (B,), before they become health."""
        length, channels = self.recipe.window, self.recipe.channels
        if batch.shape[2] != channels or (batch.shape[1] != length and not self.recipe.life):
            raise RecipeError(f"windows of shape {batch.shape[1:]}, expected {(length, channels)}")
        if not len(batch):
            return np.empty(0)
        with self._lock:
            parts = [self._forward(batch[a : a + PASS]) for a in range(0, len(batch), PASS)]
        return np.concatenate(parts).astype(np.float64)

    def _from_rest(self, batch: Rows) -> FloatArray:
        if self.steps is None:
            raise RecipeError("this model has no states to begin from")
        said: FloatArray = self.steps.run(batch, self.steps.rest(batch[:, 0]))[0][:, -1]
        return said

    def healths(self, asked: Sequence[tuple[Health, Rows, UnitState]], coverage: float) -> list[Health]:
        """Health of units at windows that follow one another in this order; states are carried on.

        Parameters
        ----------
        asked
            What is known of each health beforehand, what the network is to look at, and the unit's memory.
        """
        if not asked:
            return []
        batch = np.stack([window for _, window, _ in asked])
        said = self.outputs(batch) if self.steps is None else self._carried(batch, [state for *_, state in asked])
        values = self.recipe.decode(said).tolist()
        low, high = _bounds(self.calibration, values, coverage)
        made = []
        for (known, *_), value, least, most in zip(asked, values, low, high, strict=True):
            if math.isfinite(value):
                made.append(Health(known.unit, known.position, value, least, most, "ok", known.reason, known.flags))
            else:
                text = "; ".join(part for part in ("inputs overflow after scaling", known.reason) if part)
                made.append(replace(known, state="cannot-say", reason=text))
        return made

    def _carried(self, rows: Rows, states: Sequence[UnitState]) -> FloatArray:
        """Outputs at rows (N, 1, channels) of units, each unit's from where it was; its state goes on with them.

        Units with as many rows run side by side, the longest first; those that have ended drop out.
        """
        steps = self.steps
        if steps is None:
            raise RecipeError("this model carries no states")
        places: dict[int, list[int]] = {}
        for k, state in enumerate(states):
            places.setdefault(id(state), []).append(k)
        own = sorted(places.values(), key=len, reverse=True)
        fresh = np.array([not states[k[0]].begun for k in own])
        memory = np.stack([states[k[0]].memory for k in own])
        said = np.empty(len(rows))
        begin = 0
        with self._lock:
            if fresh.any():
                memory[fresh] = steps.rest(rows[[k[0] for k, new in zip(own, fresh, strict=True) if new], 0])
            while begin < len(own[0]):
                alive = sum(len(k) > begin for k in own)
                end = len(own[alive - 1])
                at = np.array([k[begin:end] for k in own[:alive]])
                said[at], after = steps.run(rows[at, 0], memory[:alive])
                sound = np.isfinite(after).all(axis=1)
                memory[:alive][sound] = after[sound]  # a row that no number comes of does not spoil the next
                begin = end
        for rows_of_unit, numbers in zip(own, memory, strict=True):
            states[rows_of_unit[0]].memory = numbers
        return said


def _bounds(
    calibration: Calibration | None, values: list[float], coverage: float
) -> tuple[list[float | None], list[float | None]]:
    """Ends of the intervals; None where one is not bounded, or there is no calibration."""
    if calibration is None:
        return [None] * len(values), [None] * len(values)
    low, high = calibration.interval(np.array(values), coverage)
    return [_finite(bound) for bound in low.tolist()], [_finite(bound) for bound in high.tolist()]


def _finite(bound: float) -> float | None:
    return bound if math.isfinite(bound) else None
