"""Predicting data frames: rows in, a line of health for each unit out."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import pandas as pd

from fedprognos.errors import DataError
from fedprognos.fleet import Fleet
from fedprognos.fleet.roles import pick

if TYPE_CHECKING:
    from fedprognos.prognosis.predictor import Predictor


def predict_frame(
    predictor: Predictor,
    frame: pd.DataFrame,
    *,
    unit: str | None = None,
    time: str | None = None,
    cycle: str | None = None,
    last: bool = True,
    coverage: float = 0.9,
) -> pd.DataFrame:
    """Health of each unit of a frame, at its last row or at every row where there is something to say.

    Parameters
    ----------
    unit, time, cycle
        Columns; guessed from their names where not given.

    Returns
    -------
    DataFrame
        A line a health: unit, position, value, low, high, state, reason, flags.
    """
    recipe = predictor.recipe
    used = [*recipe.sensors, *recipe.settings]
    free = [str(c) for c in frame.columns if c not in used]

    def column(role: str, given: str | None, kinds: tuple[str, ...]) -> str:
        for kind in kinds:
            given = given or pick(free, kind, lambda _: True, named=True)
        if given is None:
            raise DataError(
                f"cannot tell which column is the {role}", hint=f"give {role}=..., one of: {', '.join(free)}"
            )
        free[:] = [c for c in free if c != given]
        return given

    cycles = column("cycle", cycle, ("cycle",)) if recipe.cycle is not None else None
    times = column("time", time, ("time",) if cycles else ("cycle", "time"))
    units = column("unit", unit, ("unit",))
    fleet = Fleet.from_frame(
        frame,
        task=recipe.task,
        unit=units,
        time=times,
        cycle=cycles,
        time_measure=recipe.time_measure or None,
        sensors=recipe.sensors,
        settings=recipe.settings,
        require_labels=False,
    )
    healths = [asdict(health) for health in predictor.predict(fleet, last, coverage)]
    return pd.DataFrame(healths).assign(flags=lambda found: [" ".join(flags) for flags in found["flags"]])
