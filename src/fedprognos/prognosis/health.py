"""What goes into a prognosis and what comes out: rows, updates and healths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

State = Literal["ok", "warming-up", "cannot-say"]
PADDED, STRETCHED = "padded", "stretched"
UNSEEN, OUT_OF_RANGE, DRIFT, GAP = "unseen-condition", "out-of-range", "drift", "gap"


@dataclass(frozen=True)
class Health:
    """Health of a unit at one moment of its life.

    Parameters
    ----------
    position
        Cycle number: of the row for a series unit, of the cycle for a cyclic one.
    value
        RUL or SoH in the recipe's unit; None unless the state is "ok".
    low, high
        Interval; both None where the bundle has no calibration, one of them where it cannot bound that side.
    reason
        Why there is no value, or what the flags mean; empty where there is nothing to say.
    flags
        What makes the value less trustworthy: "unseen-condition", "out-of-range", "drift" (see
        :mod:`fedprognos.prognosis.drift`), "padded" (fewer rows than a window), "stretched" (a cycle ended before the
        part that the model looks at did), "gap" (rows are missing within the window).
    """

    unit: str
    position: float
    value: float | None
    low: float | None = None
    high: float | None = None
    state: State = "ok"
    reason: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """One sample of one unit.

    Parameters
    ----------
    position
        Cycle number (series units), or seconds since the cycle began (cyclic units).
    cycle
        Number of the cycle the sample belongs to; cyclic units only.
    end
        The sample is the last of its cycle; cyclic units only. Without it a cycle is over when the part that the
        model looks at is, or when the next one begins.
    """

    unit: str
    position: float
    sensors: Mapping[str, float]
    settings: Mapping[str, float] = field(default_factory=dict)
    cycle: int | None = None
    end: bool = False


@dataclass(frozen=True)
class Update:
    """What became of a row.

    Parameters
    ----------
    health
        The unit's new health where the row brought one: every accepted row of a series unit, and the row of a
        cyclic unit that completes a cycle.
    accepted
        Whether the row was taken; a duplicate is not taken, and does no harm.
    reason
        Why not.
    """

    unit: str
    position: float
    health: Health | None
    accepted: bool
    reason: str = ""
