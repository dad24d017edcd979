"""What an experiment says about privacy, and what a request carries of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveFloat

from fedprognos.features import Recipe
from fedprognos.federation.privacy.mechanism import noise_for
from fedprognos.options import Options


class PrivacyOptions(Options):
    """Differential privacy of what clients send."""

    epsilon: PositiveFloat
    """What a whole run may spend on a client's data."""
    delta: Annotated[float, Field(gt=0.0, lt=0.01)] = 1e-5
    """The chance that the bound does not hold; well below one over the number of units or rows."""
    per: Literal["unit", "row"] = "unit"
    """Whose presence is hidden: a whole machine with all its rows, or one row."""
    clip: PositiveFloat = 0.5
    """Longest row of features, in multiples of the square root of their number; longer ones are shortened to it."""


@dataclass(frozen=True)
class Privacy:
    """What a client does before statistics leave.

    Parameters
    ----------
    noise
        Standard deviation of the noise, in multiples of the sums' sensitivity.
    clip, label_clip
        Longest row of features, and largest standardised label.
    """

    noise: float
    per: Literal["unit", "row"]
    clip: float
    label_clip: float

    @staticmethod
    def of(options: PrivacyOptions, recipe: Recipe, columns: int, releases: int) -> Privacy:
        """For one of so many releases of a run, of so many columns with the one that is constant."""
        ends = np.array([0.0, recipe.cap or 3 * recipe.label_std + recipe.label_mean])
        label_clip = float(np.abs(ends - recipe.label_mean).max() / recipe.label_std)
        noise = noise_for(options.epsilon, options.delta, releases)
        return Privacy(noise, options.per, options.clip * float(np.sqrt(columns)), label_clip)
