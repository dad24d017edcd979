"""Baselines that cost next to nothing: a network that does not beat them has learnt nothing worth having.

One file each; a file puts its baseline on the shelf with `baselines.add`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator

from fedprognos.arrays import FloatArray
from fedprognos.features import Recipe, WindowSet
from fedprognos.shelf import Shelf

BATCH = 2048
"""Windows that a baseline looks at together, so that long histories fit into memory."""


@dataclass(frozen=True)
class Baseline:
    """A rule that predicts without training a network.

    Parameters
    ----------
    name, label, order
        Its name in files, its name for people, and its place in tables.
    predict
        From training windows, test windows and the recipe to predictions (N,); None where the rule does not apply.
    selected_on
        Whether it chooses anything on held-out training data.
    by_default
        Whether an experiment that names no baselines has it.
    """

    name: str
    label: str
    order: int
    predict: Callable[[WindowSet, WindowSet, Recipe], FloatArray | None]
    selected_on: Literal["validation", "last"] = "last"
    by_default: bool = False


baselines: Shelf[Baseline] = Shelf("baseline", __name__, "fedprognos.baselines")
BaselineName = Annotated[str, AfterValidator(baselines.known)]
"""The name of a baseline on the shelf, in options."""

__all__ = ["Baseline", "BaselineName", "baselines"]
