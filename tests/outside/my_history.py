"""Every other row of the last ones: a window that reaches back twice as far."""

import numpy as np

from fedprognos.features.history import Cut, History, HistoryRule, UnitCuts


def cut(recipe, unit, scaled, unseen, stride):
    """All windows of a unit at once: their rows one after another."""
    last = np.arange(unit.rows - 1, reach(recipe) - 2, -stride)[::-1]
    rows = scaled[last[:, None] + 2 * np.arange(1 - recipe.window, 1)].reshape(-1, scaled.shape[1])
    starts = np.arange(len(last)) * recipe.window
    return UnitCuts(rows, starts, last, np.zeros(len(last), np.uint8)) if fits(recipe, unit) else None


class Thinned(History):
    """The same, row by row; `scalars` and `arrays` are what a snapshot keeps."""

    __slots__ = ("count", "ring")
    scalars, arrays = ("count",), ("ring",)

    def __init__(self, recipe):
        self.count, self.ring = 0, np.zeros((reach(recipe), recipe.channels), np.float32)

    def push(self, row, position, *, cycle=0, end=False, unseen=False, gap=False):
        self.ring = np.concatenate([self.ring[1:], row[None]])
        self.count += 1
        return (Cut(position, 0, self.ring[::2].copy()),) if self.count >= len(self.ring) else ()

    @property
    def progress(self):
        return min(self.count, len(self.ring)), len(self.ring)


def fits(recipe, unit):
    """Whether a unit has rows enough for a window."""
    return unit.rows >= reach(recipe)


def reach(recipe):
    """Rows from the first to the last of a window."""
    return 2 * recipe.window - 1


def lengths(options, shortest_cycle, shortest_in_s):
    """Rows of a window; `recipe.window` says it."""
    return options.length, None


THINNED = HistoryRule("thinned", "every other row", 40, cut, Thinned, fits, "rows", lengths, reach=reach)
