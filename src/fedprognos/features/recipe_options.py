"""How rows become what the network sees: the section [recipe] of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from fedprognos.features.channels import MOST_SPAN, channels
from fedprognos.features.history import histories
from fedprognos.options import Options


class RecipeOptions(Options):
    """How rows become windows and labels."""

    sensors: tuple[str, ...] | None = None
    """Which sensors the network sees; all of them by default."""
    drop: tuple[str, ...] = ()
    """Sensors to leave out."""
    columns: Literal["all", "wear"] = "all"
    """Series: every sensor, or only those that move with the remaining life within units, found from sums that sites
    send."""
    history: PositiveInt | str | None = None
    """What the network sees at one point of a unit's life: a number of latest rows, "life" for all rows since the
    first, or the name of a rule of your own."""
    window: PositiveInt | None = None
    """The same as a number for `history`; for cycles by sample index the default is the shortest cycle of all."""
    stride: PositiveInt = 1
    """Rows between training windows, counted back from the end of a unit's life."""
    short: Literal["exclude", "pad"] = "exclude"
    """Units shorter than the window are left out (and counted), or padded on the left."""
    cap: PositiveFloat | None = None
    """RUL labels above it are set to it; predictions are clipped to [0, cap]."""
    label: Literal["absolute", "relative"] = "absolute"
    """Cyclic data: learn the capacity itself, or its share of the rated capacity (state of health)."""
    conditions: Mapping[str, Annotated[int, Field(ge=-6, le=9)]] = {}
    """Decimals to which each setting is rounded to make an operating condition; empty = one condition."""
    setting_inputs: bool = False
    """Feed the settings themselves to the network, standardised over all conditions."""
    condition_inputs: bool = False
    """Feed the operating condition to the network as one-hot columns."""
    channels: Mapping[str, PositiveInt | tuple[PositiveInt, ...]] = {}
    """Series: columns computed from the sensors and fed beside them. For each kind (`age`, `mean`, `slope`, `change`
    since the first rows) the number of rows it looks back on, or several numbers."""
    cycle: str = "grid"
    """Cyclic data: cut every cycle by sample index, resample it onto a grid in time, or read it when one sensor first
    falls to each of some levels; or a rule of your own."""
    grid_end_in_s: PositiveFloat | None = None
    """Only this first part of a cycle is looked at, on a grid or at levels."""
    grid_points: Annotated[int, Field(ge=2, le=10_000)] = 171
    """Points of the grid."""
    levels: str | None = None
    """The sensor at whose levels cycles are read; the times at which they are met take its place."""
    level_points: Annotated[int, Field(ge=2, le=10_000)] = 19
    """Number of levels."""
    min_count: PositiveInt = 20
    """Moments of fewer rows than this never leave a client."""

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if (isinstance(self.history, int) or self.history == "life") and self.window is not None:
            raise ValueError("history and window mean the same; give one of them")
        if histories[histories.valid_name(self.series)].cyclic:
            raise ValueError(f"history: '{self.history}' is for cycles; set recipe.cycle")
        for name in self.channels:
            channels.valid_name(name)
        if any(span > MOST_SPAN for _, span in self.extra):
            raise ValueError(f"channels: they look back on {MOST_SPAN} rows at most")
        if not histories[histories.valid_name(self.cycle)].cyclic:
            raise ValueError(f"cycle: '{self.cycle}' is not a way to read cycles")
        if (self.cycle == "levels") != (self.levels is not None):
            raise ValueError("cycle = 'levels' and levels = SENSOR go together")
        if self.levels is not None and (self.grid_end_in_s is None or self.conditions):
            raise ValueError("levels need grid_end_in_s, and one operating condition (no recipe.conditions)")
        return self

    @property
    def extra(self) -> tuple[tuple[str, int], ...]:
        """Kind and span of every channel."""
        return tuple(
            (n, s) for n, spans in self.channels.items() for s in ((spans,) if isinstance(spans, int) else spans)
        )

    @property
    def series(self) -> str:
        """Name of the rule that reads series."""
        return self.history if isinstance(self.history, str) else "window"

    @property
    def length(self) -> int | None:
        """Rows in a window; 1 where whole lives are read row by row; None if no option gives it."""
        return 1 if self.history == "life" else self.history if isinstance(self.history, int) else self.window
