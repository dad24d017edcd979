"""Whether a row may follow the rows before it: repeated, late, or too far ahead to be believed."""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray
from fedprognos.features import Arrays, RowMemory
from fedprognos.prognosis.health import Verdict

STEPS = 15
"""Steps between positions whose median is the usual one."""
ENOUGH_STEPS = 3
JUMP = 1000.0
"""A step this many times the usual one is taken for a broken clock until a later row confirms it."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a row is taken.

    Parameters
    ----------
    gap
        Rows are missing before it.
    again
        It is the last sample of its cycle once more, now marked as such.
    """

    verdict: Verdict = Verdict.ACCEPTED
    reason: str = ""
    gap: bool = False
    again: bool = False


FOLLOWS = Judgement()
AFTER_A_GAP = Judgement(gap=True)
AGAIN = Judgement(again=True)


class Clock(RowMemory):
    """Where one unit's rows have got to.

    Parameters
    ----------
    cyclic
        Rows belong to cycles, and positions count from the beginning of each.

    Examples
    --------
    >>> clock = Clock(cyclic=False)
    >>> [clock.judge(position).verdict.value for position in (1.0, 2.0, 2.0, 1.5)]
    ['accepted', 'accepted', 'duplicate', 'late']
    """

    __slots__ = ("count", "cycle", "cyclic", "ended", "first", "last", "origin", "steps", "suspect")
    scalars = ("first", "last", "cycle", "count", "ended", "suspect", "origin")

    def __init__(self, cyclic: bool) -> None:
        self.cyclic = cyclic
        self.first = math.nan  # position of the first row
        self.last = math.nan  # of the last one
        self.cycle = math.nan  # running cycle; a number of up to 2^53 fits a float
        self.count = 0  # samples of the running cycle
        self.ended = False  # its last sample was marked as such
        self.origin = 0.0  # where the machine's clock stood when this life began
        self.suspect = math.nan  # where a jump led to that was not believed
        self.steps: list[float] = []  # the latest of the position (series) or cycle number (cyclic)

    def judge(self, position: float, cycle: int = 0, end: bool = False, filling: bool = True) -> Judgement:
        """Judge the next row, and remember it where it is accepted.

        Parameters
        ----------
        filling
            The running cycle is still looked at. What comes after that changes nothing, so its clock is not judged.
        """
        judged = self._in_cycle(position, cycle, end, filling) if self.cyclic else self._in_series(position)
        if judged.verdict is Verdict.ACCEPTED:
            self._reach(position)
            self.ended = self.ended or end
            self.count += 1
        return judged

    def believe(self, position: float, cycle: int = 0) -> Judgement:
        """Accept the next row whatever its clock says."""
        self._reach(position)
        if self.cyclic:
            self.cycle = float(cycle)
        return FOLLOWS

    def follow(self, positions: FloatArray, trusting: bool = False) -> None:
        """Accept rows of a series that are known to follow one another without a jump; see :meth:`judge`."""
        if not trusting:
            latest = [self.last, *positions[-STEPS - 1 :].tolist()][-STEPS - 1 :]
            # Before the first row there is no step. Most series are one row, so arrays would cost more than they save.
            steps = [after - before for before, after in itertools.pairwise(latest) if not math.isnan(before)]
            self.steps = [*self.steps, *steps][-STEPS:]
            self.suspect = math.nan if steps else self.suspect
            self.count += len(positions)
        self._reach(float(positions[0]))
        self.last = float(positions[-1])

    def _reach(self, position: float) -> None:
        self.last = position
        if math.isnan(self.first):
            self.first = position

    def _in_series(self, position: float) -> Judgement:
        if math.isnan(self.last):
            return FOLLOWS
        if position == self.last:
            return Judgement(Verdict.DUPLICATE, f"position {position:g} was there already")
        if position < self.last:
            anew = "; after a repair, forget the unit or count its lives" if position <= self.first else ""
            return Judgement(Verdict.LATE, f"position {position:g} comes after {self.last:g}{anew}")
        return self._step(self.last, position, "position", self.steps)

    def _in_cycle(self, position: float, cycle: int, end: bool, filling: bool) -> Judgement:
        judged = FOLLOWS
        if math.isnan(self.cycle):
            self._begin(cycle)
        elif cycle < self.cycle:
            return Judgement(Verdict.LATE, f"cycle {cycle} comes after {self.cycle:.0f}")
        elif cycle > self.cycle:
            judged = self._step(self.cycle, cycle, "cycle", self.steps)
            if judged.verdict is Verdict.ACCEPTED:
                self._begin(cycle)
                return FOLLOWS
        elif position == self.last:
            if end and not self.ended:
                return AGAIN
            return Judgement(Verdict.DUPLICATE, f"position {position:g} of cycle {cycle} was there already")
        elif position < self.last:
            return Judgement(Verdict.LATE, f"position {position:g} of cycle {cycle} comes after {self.last:g}")
        elif self.ended:
            return Judgement(Verdict.REFUSED, f"cycle {cycle} has ended at position {self.last:g}")
        elif filling and self.count > ENOUGH_STEPS and self.last > 0:
            usual = [self.last / (self.count - 1)] * ENOUGH_STEPS  # the cycle's mean step so far
            judged = self._step(self.last, position, f"position of cycle {cycle}:", usual)
        return judged

    def _begin(self, cycle: int) -> None:
        self.cycle, self.count, self.ended = float(cycle), 0, False

    def _step(self, before: float, now: float, what: str, steps: list[float]) -> Judgement:
        """A jump is not believed once. Where the next row goes on from there it was the unit that paused."""
        step = now - before
        if not _is_jump(steps, step):
            self.suspect = math.nan
            _remember(steps, step)
            return FOLLOWS
        if now > self.suspect and not _is_jump(steps, now - self.suspect):
            _remember(steps, now - self.suspect)
            self.suspect = math.nan
            return AFTER_A_GAP
        self.suspect = now
        times = step / statistics.median(steps)
        reason = (
            f"{what} {now:g} after {before:g} is a jump of {times:.3g} usual steps; "
            "taken to be a wrong clock unless later rows go on from there"
        )
        return Judgement(Verdict.JUMPED, reason)

    def snapshot(self) -> dict[str, NDArray[Any]]:
        steps = np.full(STEPS, np.nan)
        steps[: len(self.steps)] = self.steps
        return {**super().snapshot(), "steps": steps}

    def restore(self, kept: Arrays) -> None:
        super().restore(kept)
        self.steps = [float(step) for step in kept["steps"] if not math.isnan(step)]


def _is_jump(steps: list[float], step: float) -> bool:
    if len(steps) < ENOUGH_STEPS or step <= JUMP * min(steps):
        return False
    return step > JUMP * statistics.median(steps)


def _remember(steps: list[float], step: float) -> None:
    steps.append(step)
    if len(steps) > STEPS:
        steps.pop(0)
