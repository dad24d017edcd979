"""From scaled windows to health: the network's outputs, decoded, with intervals and flags."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray
from fedprognos.errors import RecipeError
from fedprognos.features import Recipe
from fedprognos.features.history import GAP, PADDED, STRETCHED, UNSEEN, Cut
from fedprognos.networks import Calibration
from fedprognos.prognosis import drift
from fedprognos.prognosis.health import Health

BATCH = 1024
"""Windows looked at together."""
PASS = 256
"""Windows the network is given at a time: more would no longer fit into the processor's cache."""
FLAGS = {PADDED: "padded", STRETCHED: "stretched", GAP: "gap", UNSEEN: "unseen-condition"}
Windows = NDArray[np.float32]
Forward = Callable[[Windows], NDArray[np.floating]]


class Stepping(Protocol):
    """A network one row at a time; see :class:`fedprognos.networks.stepping.Stepper`."""

    @property
    def size(self) -> int: ...

    def step(self, rows: Windows, states: Windows) -> tuple[FloatArray, Windows]: ...


class HealthModel:
    """Health of windows.

    Parameters
    ----------
    recipe
        How rows become windows and outputs become health.
    forward
        Standardised outputs (B,) of scaled windows (B, window, channels).
    calibration
        What intervals are made from, where there is one.
    stepper
        For whole lives, instead of `forward`: from rows and the states of their units to outputs and states.
    digest
        Names the model, where the states of its units are of no use to another one.
    """

    def __init__(
        self,
        recipe: Recipe,
        forward: Forward,
        calibration: Calibration | None = None,
        stepper: Stepping | None = None,
        digest: str = "",
    ) -> None:
        self.recipe = recipe
        self.calibration = calibration
        self.stepper = stepper
        self._forward, self._digest = forward, digest
        self._lock = threading.Lock()
        if recipe.life and stepper is None:
            raise RecipeError("a model of whole lives needs a step", hint="load the bundle, or a step graph")

    @property
    def recipe_digest(self) -> str:
        """Names how rows are scaled and cut, and for whole lives the model: what is kept under one fits no other."""
        model = self._digest if self.recipe.life else ""
        return hashlib.sha256((self.recipe.to_json() + model).encode()).hexdigest()

    @property
    def state_size(self) -> int:
        """Numbers that the network remembers of a unit; none where it looks at windows."""
        return 0 if self.stepper is None else self.stepper.size

    def step(self, rows: Windows, states: Windows) -> tuple[FloatArray, Windows]:
        """Standardised outputs (B,) of units after one more row each, and their states then."""
        if self.stepper is None:
            raise RecipeError("this model reads windows, not whole lives")
        with self._lock:
            return self.stepper.step(rows, states)

    def windows(self, batch: Windows) -> FloatArray:
        """Health (B,) of scaled windows (B, window, channels). May be called from several threads."""
        return self.recipe.decode(self.outputs(batch))

    def outputs(self, batch: Windows) -> FloatArray:
        """Standardised outputs of the network (B,), before they become health."""
        expected = (self.recipe.window, self.recipe.channels)
        if batch.shape[1:] != expected:
            raise RecipeError(f"windows of shape {batch.shape[1:]}, expected {expected}")
        if not len(batch):
            return np.empty(0)
        with self._lock:
            parts = [self._forward(batch[a : a + PASS]) for a in range(0, len(batch), PASS)]
        return np.concatenate(parts).astype(np.float64)

    def healths(
        self, cuts: Sequence[tuple[str, Cut]], coverage: float, outputs: FloatArray | None = None
    ) -> list[Health]:
        """Health of units at their windows, in one pass; from standardised outputs (N,) where they are known."""
        if not cuts:
            return []
        batch = np.stack([cut.window for _, cut in cuts if cut.window is not None])
        values = self.windows(batch) if outputs is None else self.recipe.decode(outputs)
        low, high = _bounds(self.calibration, values, coverage)
        found = drift.inspect(self.recipe, batch, np.array([bool(cut.odd & PADDED) for _, cut in cuts]))
        made = []
        for k, (unit, cut) in enumerate(cuts):
            flags, reason = found.of(k)
            flags = (*(name for bit, name in FLAGS.items() if cut.odd & bit), *flags)
            if np.isfinite(values[k]):
                made.append(Health(unit, cut.position, float(values[k]), low[k], high[k], reason=reason, flags=flags))
            else:
                text = "; ".join(part for part in ("inputs overflow after scaling", reason) if part)
                made.append(Health(unit, cut.position, None, state="cannot-say", reason=text, flags=flags))
        return made


def _bounds(
    calibration: Calibration | None, values: FloatArray, coverage: float
) -> tuple[list[float | None], list[float | None]]:
    """Ends of the intervals; None where one is not bounded, or there is no calibration."""
    if calibration is None:
        return [None] * len(values), [None] * len(values)
    low, high = calibration.interval(values, coverage)
    return [_finite(bound) for bound in low.tolist()], [_finite(bound) for bound in high.tolist()]


def _finite(bound: float) -> float | None:
    return bound if np.isfinite(bound) else None
