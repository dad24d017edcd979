"""From what the network is to look at to health: its outputs, decoded, with intervals and flags."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray, Rows
from fedprognos.errors import RecipeError
from fedprognos.features import Recipe
from fedprognos.networks import Calibration, Novelty
from fedprognos.prognosis.health import AT_CAP, Health
from fedprognos.prognosis.row_steps import Steps
from fedprognos.prognosis.sensor_faults import DISTRUSTED, UNKNOWN_WEAR, SensorLimits, unknown_wear
from fedprognos.prognosis.unit_state import WORN, Question, UnitState, WornWatch
from fedprognos.tables import TableLayout

BATCH = 1024
"""Rows looked at together."""
PASS = 256
"""Windows the network is given at a time: more would no longer fit into the processor's cache."""
MOST_ROWS = 16_384
"""Rows of whole lives the network is given at a time."""
HALF_A_STEP = 0.5
"""A remaining life that is shown as the cap, once it is rounded to whole steps, is the cap."""
Forward = Callable[[Rows], NDArray[np.floating]]
"""Standardised outputs (B,) of scaled windows (B, window, channels)."""


class WindowNetwork(Protocol):
    """A network that looks at windows, and says what its head sees of them: outputs (B,), features (B, L)."""

    def look(self, windows: Rows) -> tuple[NDArray[np.floating], Rows]: ...


@runtime_checkable
class StatefulNetwork(Protocol):
    """A network that reads whole lives row by row; see :class:`fedprognos.networks.stepping.Stepper`."""

    size: int
    digest: str

    def rest(self, first: Rows) -> Rows: ...

    def read(self, rows: Rows, states: Rows) -> tuple[FloatArray, Rows, Rows]: ...


class HealthModel:
    """Health of units at some of their rows.

    Parameters
    ----------
    recipe
        How rows become what the network looks at, and outputs become health.
    network
        Looks at windows, or is a mere function of them; where the recipe asks for whole lives, steps that carry a
        state.
    calibration
        What intervals are made from, where there is one.
    table
        How the tables were written that it was trained on, where they were tables.
    novelty
        How far the network's features are from those of training, where that is known.

    Attributes
    ----------
    policies : (sensors + settings,)
        What stands in for blank values.
    """

    def __init__(
        self,
        recipe: Recipe,
        network: Forward | WindowNetwork | StatefulNetwork,
        calibration: Calibration | None = None,
        table: TableLayout | None = None,
        novelty: Novelty | None = None,
    ) -> None:
        self.recipe = recipe
        self.calibration = calibration
        self.novelty = novelty
        self.table = table
        columns = (*recipe.sensors, *recipe.settings)
        self.policies = (table or TableLayout(time="time")).policies(columns)
        self.steps = network if isinstance(network, StatefulNetwork) else None
        self._network = network
        self.novelty_limit = math.inf if novelty is None else novelty.limit
        self.limits = SensorLimits.from_recipe(recipe)
        self._lock = threading.Lock()

    @property
    def digest(self) -> str:
        """Names what a unit's memory belongs to: the recipe and, where states are carried, the network they are of."""
        text = self.recipe.to_json() + ("" if self.steps is None else self.steps.digest)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def unchecked(self) -> tuple[str, ...]:
        """What nobody could tell of a machine unlike those of training, because the model was not told it."""
        missing = []
        if self.recipe.usual is None:
            missing.append("how far sensors go and how long they stay still, but for fixed limits")
        if self.limits.joint is None and len(self.recipe.sensors) > 1:
            missing.append("whether sensors contradict one another")
        if self.novelty is None:
            missing.append("whether the machine wears in an unknown way")
        return tuple(missing)

    @property
    def fingerprint(self) -> str:
        """Names the model among others, as far as a bare function can be told from another."""
        return self.digest

    def start(self) -> UnitState:
        """The empty memory of a unit."""
        size = 0 if self.steps is None else self.steps.size
        return UnitState(self.recipe, self.limits, size, WornWatch.for_model(self.recipe, self.table))

    def windows(self, batch: Rows) -> FloatArray:
        """Health (B,) at the last row of scaled histories (B, T, channels). May be called from several threads."""
        return self.recipe.decode(self.outputs(batch))

    def outputs(self, batch: Rows) -> FloatArray:
        """Standardised outputs of the network (B,), before they become health."""
        return self.looked_at(batch)[0]

    def looked_at(self, batch: Rows) -> tuple[FloatArray, FloatArray]:
        """Standardised outputs (B,) at the last row of histories, and how far features are from training (B,)."""
        length, channels = self.recipe.window, self.recipe.channels
        if batch.shape[2] != channels or (batch.shape[1] != length and not self.recipe.life):
            raise RecipeError(f"windows of shape {batch.shape[1:]}, expected {(length, channels)}")
        outputs, distances = np.empty(len(batch)), np.zeros(len(batch))
        with self._lock:
            for begin in range(0, len(batch), PASS):
                some = slice(begin, begin + PASS)
                outputs[some], features = self._pass(batch[some])
                if self.novelty is not None:
                    distances[some] = self.novelty.distance(features)
        return outputs, distances

    def _pass(self, batch: Rows) -> tuple[NDArray[np.floating], Rows]:
        """Outputs (B,) and features (B, L) of a few histories."""
        network = self._network
        if isinstance(network, StatefulNetwork):
            outputs, features, _ = network.read(batch, network.rest(batch[:, 0]))
            return outputs[:, -1], features[:, -1]
        if callable(network):
            return network(batch), np.empty((len(batch), 0), dtype=np.float32)
        return network.look(batch)

    def healths(self, questions: Sequence[Question], coverage: float) -> list[Health]:
        """Health of units at windows that follow one another in this order; states are carried on.

        An interval says how often values were right on machines like those of training. Under a flag of
        :data:`DISTRUSTED` the machine or its sensors are not like those, so there is none.
        """
        if not questions:
            return []
        batch = np.stack([question.window for question in questions])
        if self.steps is None:
            outputs, distances = self.looked_at(batch)
        else:
            outputs, distances = self._carried_on(batch, [question.state for question in questions])
        values = self.recipe.decode(outputs).tolist()
        low, high = ([_finite(bound) for bound in ends.tolist()] for ends in self.bounds(np.array(values), coverage))
        healths = []
        for k, (question, value) in enumerate(zip(questions, values, strict=True)):
            draft, flags, reason = question.health, question.health.flags, question.health.reason
            if WORN in flags:
                healths.append(Health(draft.unit, draft.position, 0.0, reason=reason, flags=flags))
                continue
            if self._is_novel(question.state, float(distances[k])) and UNKNOWN_WEAR not in flags:
                flags = (*flags, UNKNOWN_WEAR)
                reason = "; ".join(filter(None, (reason, unknown_wear(self.recipe.sensors, question.levels))))
            least, most = _stretched(low[k], value, question.stretch), _stretched(high[k], value, question.stretch)
            if self.recipe.cap is not None:
                top = self.recipe.cap - HALF_A_STEP
                flags = (*flags, AT_CAP) if value > top else flags
                most = None if value > top or (most is not None and most > top) else most
            if DISTRUSTED.intersection(flags):
                least = most = None
            if math.isfinite(value):
                healths.append(Health(draft.unit, draft.position, value, least, most, "ok", reason, flags))
            else:
                text = "; ".join(filter(None, ("inputs overflow after scaling", reason)))
                healths.append(replace(draft, state="cannot-say", reason=text, flags=flags))
        return healths

    def _is_novel(self, state: UnitState, distance: float) -> bool:
        """Whether a unit wears in an unknown way. A window has all that its features rest on, so nothing latches."""
        if self.steps is None:
            return distance > self.novelty_limit
        return state.novelty.push(distance, self.novelty_limit)

    def bounds(self, values: FloatArray, coverage: float) -> tuple[FloatArray, FloatArray]:
        """Ends of the intervals at values (N,); NaN where there is no calibration or no bound."""
        if self.calibration is None:
            return np.full_like(values, np.nan), np.full_like(values, np.nan)
        if len(values) > BATCH:  # more at a time would no longer fit into the processor's cache
            parts = [self.bounds(values[a : a + BATCH], coverage) for a in range(0, len(values), BATCH)]
            return np.concatenate([low for low, _ in parts]), np.concatenate([high for _, high in parts])
        low, high = self.calibration.interval(values, coverage)
        return np.where(np.isfinite(low), low, np.nan), np.where(np.isfinite(high), high, np.nan)

    def _carried_on(self, batch: Rows, states: Sequence[UnitState]) -> tuple[FloatArray, FloatArray]:
        """:meth:`carry_on` for rows (N, 1, channels) of states in any order, each as often as it has rows."""
        numbers: dict[int, int] = {}
        steps = Steps.from_units(np.array([numbers.setdefault(id(state), len(numbers)) for state in states]))
        firsts = {id(state): state for state in states}
        by_number = list(firsts.values())
        outputs, distances = np.empty(len(batch)), np.empty(len(batch))
        outputs[steps.order], distances[steps.order] = self.carry_on(
            batch[steps.order, 0], steps, [by_number[k] for k in steps.units.tolist()]
        )
        return outputs, distances

    def carry_on(self, rows: Rows, steps: Steps, states: Sequence[UnitState]) -> tuple[FloatArray, FloatArray]:
        """Outputs (N,) at rows (N, channels) of units, each unit's from where it was, and how novel each state is.

        The states go on with them.

        Parameters
        ----------
        rows
            In the order of steps.
        states : (U,)
            By rank.
        """
        network = self.steps
        if network is None:
            raise RecipeError("this model carries no states")
        fresh = np.array([not state.begun for state in states])
        memory = np.stack([state.memory for state in states])
        outputs, distances = np.empty(len(rows)), np.zeros(len(rows))
        with self._lock:
            if fresh.any():
                memory[fresh] = network.rest(rows[: len(states)][fresh])
            for some in steps.runs(MOST_ROWS):
                units = some.units
                part = rows[some.rows].reshape(some.length, units, -1).transpose(1, 0, 2)
                found, features, after = network.read(part, memory[:units])
                outputs[some.rows] = found.T.ravel()
                if self.novelty is not None:
                    distances[some.rows] = self.novelty.distance(features).T.ravel()
                sound = np.isfinite(after).all(axis=1)
                if sound.all():
                    memory[:units] = after
                else:
                    memory[:units][sound] = after[sound]  # a row that no number comes of does not spoil the next
        for state, numbers in zip(states, memory, strict=True):
            state.memory = numbers
        return outputs, distances


def _stretched(bound: float | None, value: float, factor: float) -> float | None:
    """A bound so many times further from the value, never below zero."""
    return bound if bound is None or factor == 1 else max(value + factor * (bound - value), 0.0)


def _finite(bound: float) -> float | None:
    return bound if math.isfinite(bound) else None
