"""What is remembered of one unit while its rows come in: never more than one window."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedprognos.prognosis.health import Health
from fedprognos.prognosis.points import Point

STEPS = 15
"""Steps between positions whose median is the usual one."""
ENOUGH_STEPS = 3
JUMP = 1000.0
"""A step this many times the usual one is taken for a broken clock until a later row confirms it."""
Windows = NDArray[np.float32]
Refusal = Literal["duplicates", "out_of_order", "refused"]


@dataclass(slots=True, eq=False)
class UnitState:
    """One unit's memory.

    Parameters
    ----------
    buffer : (window, channels)
        Series: a ring of the last rows. Cyclic: the running cycle, on the time grid or sample by sample.
    count
        Rows taken: of the unit (series), of the running cycle (cyclic).
    filled
        Rows of the buffer that are known (cyclic).
    last
        Position of the last row taken; None before the first.
    cycle
        Running cycle (cyclic); None before the first.
    previous : (channels,)
        Last row taken, to interpolate from (cyclic, on a grid).
    done
        Whether the running cycle has given its health.
    ended
        Whether the last sample of the running cycle was marked as such.
    steps
        The latest steps of the position (series) or cycle number (cyclic).
    suspect
        Where a jump led to that was refused.
    unseen_at, gap_at
        Number of the latest row in an unseen condition, and of the latest row after a gap; -1 for none.
    pending
        A point not yet looked at by the network, with its window (None: the ring as it is).
    health
        The latest health.
    """

    buffer: Windows
    count: int = 0
    filled: int = 0
    last: float | None = None
    cycle: int | None = None
    previous: NDArray[np.float32] | None = None
    done: bool = False
    ended: bool = False
    steps: list[float] = field(default_factory=list)
    suspect: float | None = None
    unseen_at: int = -1
    gap_at: int = -1
    pending: tuple[Point, Windows | None] | None = None
    health: Health | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a row: taken, or refused and why; and the points it completed.

    Parameters
    ----------
    made
        Points with their windows (None until asked for), or with the health that is known without one.
    """

    refusal: Refusal | None = None
    reason: str = ""
    made: tuple[tuple[Point, Windows | None, Health | None], ...] = ()


TAKEN = Taken()


def follows(
    state: UnitState, before: float, now: float, what: str, steps: list[float] | None = None
) -> tuple[str, bool]:
    """Why a position cannot follow another (empty where it can), and whether rows are missing between them.

    A jump is refused once. Where the next row goes on from there it was the unit that paused, not its clock that
    broke, and that row is taken.

    Parameters
    ----------
    steps
        What is usual, where that is not remembered in the state.
    """
    steps = state.steps if steps is None else steps
    step = now - before
    if not _is_jump(steps, step):
        state.suspect = None
        _remember(steps, step)
        return "", False
    if state.suspect is not None and now > state.suspect and not _is_jump(steps, now - state.suspect):
        _remember(steps, now - state.suspect)
        state.suspect = None
        return "", True
    state.suspect = now
    usual = float(np.median(steps))
    return (
        f"{what} {now:g} after {before:g} is a jump of {step / usual:.3g} usual steps; "
        "taken to be a wrong clock unless later rows go on from there"
    ), False


def _is_jump(steps: list[float], step: float) -> bool:
    if len(steps) < ENOUGH_STEPS or step <= JUMP * min(steps):
        return False
    return step > JUMP * float(np.median(steps))


def _remember(steps: list[float], step: float) -> None:
    steps.append(step)
    if len(steps) > STEPS:
        steps.pop(0)
