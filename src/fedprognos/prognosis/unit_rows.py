"""Rows of one unit as they come: a window after every row of a series, one after the fixed part of every cycle.

The windows are those that :func:`fedprognos.features.build_windows` makes of the whole history.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedprognos.features import Recipe
from fedprognos.prognosis.health import GAP, PADDED, STRETCHED, UNSEEN, Health
from fedprognos.prognosis.points import GAP_SHARE, Point
from fedprognos.prognosis.unit_state import ENOUGH_STEPS, TAKEN, Taken, UnitState, Windows, follows

Made = tuple[Point, Windows | None, Health | None]
Row = NDArray[np.float32]


def take_series_row(recipe: Recipe, state: UnitState, unit: str, position: float, row: Row, unseen: bool) -> Taken:
    """Put a row of a series unit into its ring."""
    if state.last is not None:
        if position == state.last:
            return Taken("duplicates", f"position {position:g} was there already")
        if position < state.last:
            return Taken("out_of_order", f"position {position:g} comes after {state.last:g}")
        reason, gap = follows(state, state.last, position, "position")
        if reason:
            return Taken("refused", reason)
        if gap:
            state.gap_at = state.count
    state.buffer[state.count % recipe.window] = row
    if unseen:
        state.unseen_at = state.count
    state.count += 1
    state.last = position
    if state.count < recipe.window and recipe.short == "exclude":
        missing = recipe.window - state.count
        reason = f"{state.count} of {recipe.window} rows; {missing} more are needed"
        health = Health(unit, position, None, state="warming-up", reason=reason)
        return Taken(made=((Point(unit, position), None, health),))
    oldest = state.count - recipe.window
    flags = (
        *((PADDED,) if oldest < 0 else ()),
        *((GAP,) if state.gap_at > max(oldest, 0) else ()),
        *((UNSEEN,) if state.unseen_at >= max(oldest, 0) else ()),
    )
    return Taken(made=((Point(unit, position, flags), None, None),))


def series_window(recipe: Recipe, state: UnitState) -> Windows:
    """The last rows of a series unit, padded on the left with the first where there are too few."""
    missing = recipe.window - state.count
    if missing > 0:
        return np.concatenate([np.repeat(state.buffer[:1], missing, axis=0), state.buffer[: state.count]])
    oldest = state.count % recipe.window
    return np.concatenate([state.buffer[oldest:], state.buffer[:oldest]])


def take_cycle_row(
    recipe: Recipe, state: UnitState, unit: str, cycle: int, position: float, row: Row, unseen: bool, end: bool
) -> Taken:
    """Put a row of a cyclic unit into its running cycle; a new cycle, or the mark of the end, closes it."""
    closed: tuple[Made, ...] = ()
    if state.cycle is None:
        state.cycle = cycle
    elif cycle < state.cycle:
        return Taken("out_of_order", f"cycle {cycle} comes after {state.cycle}")
    elif cycle > state.cycle:
        reason, _ = follows(state, state.cycle, cycle, "cycle")
        if reason:
            return Taken("refused", reason)
        closed = close_cycle(recipe, state, unit)
        _begin(state, cycle)
    elif state.last is not None and position == state.last:
        if not end or state.ended:
            return Taken("duplicates", f"position {position:g} of cycle {cycle} was there already")
        state.ended = True  # the last sample again, now known to be the last
        return Taken(made=close_cycle(recipe, state, unit))
    elif state.last is not None and position < state.last:
        return Taken("out_of_order", f"position {position:g} of cycle {cycle} comes after {state.last:g}")
    elif state.ended:
        return Taken("refused", f"cycle {cycle} has ended at position {state.last:g}")
    elif reason := _leap(state, cycle, position):
        return Taken("refused", reason)
    before, state.last, state.ended = state.last, position, end
    if not state.done:
        _add(recipe, state, before, position, row, unseen)
        if state.filled == recipe.window:
            return Taken(made=(*closed, _complete(state, unit, ())))
        if end:
            return Taken(made=(*closed, *close_cycle(recipe, state, unit)))
    return Taken(made=closed) if closed else TAKEN


def _leap(state: UnitState, cycle: int, position: float) -> str:
    """Why a sample is not believed to follow the one before; measured by the cycle's mean step so far."""
    if state.done or state.count <= ENOUGH_STEPS or not state.last or state.last < 0:
        return ""
    usual = [state.last / (state.count - 1)] * ENOUGH_STEPS
    return follows(state, state.last, position, f"position of cycle {cycle}:", usual)[0]


def _add(recipe: Recipe, state: UnitState, before: float | None, position: float, row: Row, unseen: bool) -> None:
    if unseen:
        state.unseen_at = state.count
    if recipe.cycle == "grid":
        _fill_grid(recipe, state, before, position, row)
    else:
        state.buffer[state.filled] = row
        state.filled += 1
    state.count += 1


def close_cycle(recipe: Recipe, state: UnitState, unit: str) -> tuple[Made, ...]:
    """End the running cycle; one that ended before its fixed part did is held at its last value, padded or refused."""
    if state.done or state.cycle is None or not state.count:
        return ()
    if recipe.cycle == "grid" and state.previous is not None:
        state.buffer[state.filled :] = state.previous
        return (_complete(state, unit, (STRETCHED,)),)
    if recipe.short == "pad":
        known = state.buffer[: state.filled].copy()
        missing = recipe.window - state.filled
        state.buffer[:missing], state.buffer[missing:] = known[0], known
        return (_complete(state, unit, (PADDED,)),)
    state.done = True
    reason = f"the cycle has {state.filled} samples, {recipe.window} are needed"
    point = Point(unit, float(state.cycle))
    return ((point, None, Health(unit, point.position, None, state="cannot-say", reason=reason)),)


def cycle_progress(recipe: Recipe, state: UnitState, unit: str) -> Health:
    """The state of a cyclic unit that has no health yet."""
    if recipe.cycle == "grid":
        reason = f"{state.last or 0.0:g} of {recipe.grid_end_in_s:g} s of the cycle"
    else:
        reason = f"{state.filled} of {recipe.window} samples of the cycle"
    return Health(unit, float(state.cycle or 0), None, state="warming-up", reason=reason)


def _begin(state: UnitState, cycle: int) -> None:
    state.cycle, state.last, state.previous = cycle, None, None
    state.count = state.filled = 0
    state.unseen_at = state.gap_at = -1
    state.done = state.ended = False


def _complete(state: UnitState, unit: str, flags: tuple[str, ...]) -> Made:
    state.done = True
    flags = (
        *flags,
        *((GAP,) if state.gap_at >= 0 else ()),
        *((UNSEEN,) if state.unseen_at >= 0 else ()),
    )
    return Point(unit, float(state.cycle or 0), flags), state.buffer.copy(), None


def _fill_grid(recipe: Recipe, state: UnitState, before: float | None, now: float, row: Row) -> None:
    """Fill the grid points up to `now`, as :func:`numpy.interp` over the whole cycle would."""
    end = float(recipe.grid_end_in_s or 0.0)
    grid = _grid(end, recipe.window)
    stop = int(np.searchsorted(grid, now, side="right"))
    if now - (min(0.0, now) if before is None else before) > GAP_SHARE * end:
        state.gap_at = state.count
    if before is None or state.previous is None:
        state.buffer[:stop] = row
    elif stop > state.filled:
        times = grid[state.filled : stop, None]
        old, new = state.previous.astype(np.float64), row.astype(np.float64)
        slope = (new - old) / (now - before)
        state.buffer[state.filled : stop] = np.where(times == now, new, slope * (times - before) + old)
    state.filled = max(stop, state.filled)
    state.previous = row.copy()


@lru_cache(maxsize=8)
def _grid(end_in_s: float, points: int) -> NDArray[np.float64]:
    return np.linspace(0.0, end_in_s, points)
