"""What is remembered of one unit while its rows come in."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedprognos.features import Recipe
from fedprognos.features.channels import Channels
from fedprognos.features.history import Cut, rule_of
from fedprognos.features.memory import Arrays, Memory
from fedprognos.prognosis.clock import Clock
from fedprognos.prognosis.health import Health, Verdict


class UnitState:
    """One unit's memory: its history, its clock, and where it stands.

    Parameters
    ----------
    size
        Numbers of the network's state, where it carries one.
    memory : (size,)
        That state; NaN before the first row.
    pending
        The latest window, where the model has not looked at it yet.
    health
        The latest health.
    """

    __slots__ = ("channels", "clock", "health", "history", "memory", "pending")

    def __init__(self, recipe: Recipe, size: int = 0) -> None:
        self.history = rule_of(recipe).start(recipe)
        self.channels = Channels(recipe.extra, len(recipe.sensors))
        self.clock = Clock(recipe.cycle is not None)
        self.memory = np.full(size, np.nan, dtype=np.float32)
        self.pending: Cut | None = None
        self.health: Health | None = None

    def push(
        self,
        row: NDArray[np.float32],
        position: float,
        cycle: int | None,
        end: bool,
        unseen: bool,
        trusting: bool = False,
    ) -> tuple[Verdict, str, tuple[Cut, ...]]:
        """Take a scaled row: what became of it, why, and the windows it completes.

        Parameters
        ----------
        trusting
            Do not judge its clock.
        """
        number = cycle or 0
        if trusting:
            judged = self.clock.believe(position, number)
        else:
            judged = self.clock.judge(position, number, end, not self.history.complete)
        if judged.verdict is not Verdict.ACCEPTED:
            return judged.verdict, judged.reason, ()
        if judged.again:
            return judged.verdict, "", self.history.close()
        row = self.channels.extend(row)
        cuts = self.history.push(row, position, cycle=number, end=end, unseen=unseen, gap=judged.gap)
        return judged.verdict, "", cuts

    @property
    def position(self) -> float:
        """Cycle number that the unit has got to; NaN before its first row."""
        return self.clock.last if math.isnan(self.clock.cycle) else self.clock.cycle

    @property
    def begun(self) -> bool:
        """Whether the network has a state of it."""
        return bool(len(self.memory)) and not math.isnan(self.memory[0])

    def _parts(self) -> dict[str, Memory | Channels]:
        return {"history": self.history, "clock": self.clock, "channels": self.channels}

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """All arrays; the health is kept apart."""
        kept = {
            f"{part}.{name}": array for part, own in self._parts().items() for name, array in own.snapshot().items()
        }
        return {**kept, "memory": self.memory.copy()} if len(self.memory) else kept

    def restore(self, kept: Arrays) -> None:
        """Go on from a snapshot."""
        for part, own in self._parts().items():
            own.restore({name.partition(".")[2]: array for name, array in kept.items() if name.startswith(part + ".")})
        if len(self.memory):
            self.memory[:] = kept["memory"]
