"""What the network sees of a unit's history, one file a rule.

Each rule has two ways to the same numbers: `cut` takes a whole unit, `start` begins a :class:`History` that is fed row
by row. Tests hold them to be equal to the last bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import BoolArray, IntArray, Rows
from fedprognos.features.recipe import Recipe
from fedprognos.features.row_memory import RowMemory
from fedprognos.fleet import Unit
from fedprognos.shelf import Shelf

if TYPE_CHECKING:
    from fedprognos.features.recipe_options import RecipeOptions

PADDED, STRETCHED, GAP, UNSEEN = 1, 2, 4, 8
"""What can be odd about a window, as bits: it repeats its first row for want of rows; its cycle ended before the part
that is looked at did and is held at its last value; rows are missing in it; a row of it is in an operating condition
that the training data did not have."""


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """One window.

    Parameters
    ----------
    position
        Cycle number of its last row, or of its cycle.
    odd
        Bits of what is odd about it.
    window : (length, channels)
        Scaled rows; None for a cycle too short to be looked at.
    """

    position: float
    odd: int
    window: Rows | None


@dataclass(frozen=True, eq=False)
class UnitCuts:
    """All windows of one unit: `rows[starts[k] : starts[k] + recipe.window]` is window k.

    Parameters
    ----------
    points : (N,)
        The labelled point of the unit that each window belongs to.
    odd : (N,)
        Bits of what is odd about each.
    """

    rows: Rows
    starts: IntArray
    points: IntArray
    odd: NDArray[np.uint8]


class History(RowMemory, ABC):
    """One unit's history as the network sees it, row by row; it remembers no more than it needs for the next window."""

    __slots__ = ()
    complete = False
    """Whether what follows in the running cycle changes nothing."""

    @abstractmethod
    def push(
        self, row: Rows, position: float, *, cycle: int = 0, end: bool = False, unseen: bool = False, gap: bool = False
    ) -> tuple[Cut, ...]:
        """Add a row, later than all before it; the windows it completes.

        Parameters
        ----------
        row : (channels,)
            Scaled.
        position
            Cycle number (series), or seconds since the cycle began (cyclic).
        cycle, end
            Number of its cycle, and whether it is known to be the last sample of it (cyclic).
        unseen
            It is in an operating condition that the training data did not have.
        gap
            Rows are known to be missing before it.
        """

    def count_rows(self, rows: int) -> None:
        """So many rows went through the network beside those of other units, not through :meth:`push`."""

    def close(self) -> tuple[Cut, ...]:
        """End a running cycle, as at the end of a file; the window that this completes."""
        return ()

    @property
    @abstractmethod
    def progress(self) -> tuple[float, float]:
        """How far the next window is filled, and its full size: in rows or, on a time grid, in seconds."""


@dataclass(frozen=True)
class HistoryRule:
    """A way to show a unit's history to the network.

    Parameters
    ----------
    cut
        From recipe, unit, scaled rows (T, channels), which of them met an unseen condition (T,), and stride to all
        windows; None where the unit is too short for any.
    start
        From a recipe to the empty history of a unit.
    fits
        Whether any window can be cut from a unit.
    counted
        What :attr:`History.progress` counts.
    lengths
        From the options, and the rows and seconds of the shortest cycle of all clients (0 for series), to the rows of a
        window and, where it covers a part of a cycle, the seconds of that part.
    cyclic
        Whether it is for cyclic units: its name is then a choice of `recipe.cycle`, else one of `recipe.history`.
    reach
        Series: from a recipe to the rows that a window reaches back over; None where all rows since the first count.
    """

    name: str
    label: str
    order: int
    cut: Callable[[Recipe, Unit, Rows, BoolArray, int], UnitCuts | None]
    start: Callable[[Recipe], History]
    fits: Callable[[Recipe, Unit], bool]
    counted: str
    lengths: Callable[[RecipeOptions, int, float], tuple[int, float | None]]
    cyclic: bool = False
    reach: Callable[[Recipe], int | None] = lambda recipe: recipe.window


histories: Shelf[HistoryRule] = Shelf("history rule", __name__, "fedprognos.histories")


def rule_of(recipe: Recipe) -> HistoryRule:
    """The rule that a recipe follows."""
    return histories[recipe.cycle or recipe.history or ("life" if recipe.life else "window")]


def padded(rows: Rows, length: int) -> Rows:
    """Rows (T, C) with the first one repeated on the left until there are `length`; more are left as they are.

    >>> padded(np.array([[1.0], [2.0]], dtype=np.float32), 4).ravel().tolist()
    [1.0, 1.0, 1.0, 2.0]
    """
    missing = max(length - len(rows), 0)
    return np.concatenate([np.repeat(rows[:1], missing, axis=0), rows]) if missing else rows
