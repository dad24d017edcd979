"""What an experiment says about privacy, and what a request carries of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveFloat

from fedprognos.arrays import FloatArray
from fedprognos.errors import MessageError
from fedprognos.features import Recipe
from fedprognos.options import Options
from fedprognos.privacy.noise_mechanisms import Account, Mechanism, MechanismName, mechanisms


class PrivacyOptions(Options):
    """Differential privacy of what clients send."""

    epsilon: PositiveFloat
    """What a whole run may spend on a client's data."""
    delta: Annotated[float, Field(gt=0.0, lt=0.01)] = 1e-5
    """The chance that the bound does not hold; well below one over the number of units or rows."""
    per: Literal["unit", "row"] = "unit"
    """Whose presence is hidden: a whole machine with all its rows, or one labelled row with the history before it."""
    mechanism: MechanismName | None = None
    """Name of a noise mechanism; `discrete` where sums are masked and `gaussian` elsewhere by default."""
    clip: PositiveFloat = 0.5
    """Longest row of features, in multiples of the square root of their number; longer ones are shortened to it."""
    gradient_clip: PositiveFloat = 1.0
    """Longest gradient of a unit or row, for methods that train; longer ones are shortened to it."""

    def chosen(self, masked: bool) -> Mechanism:
        """The mechanism of a run whose sums are masked, or not."""
        return mechanisms[self.mechanism or ("discrete" if masked else "gaussian")]

    def account(self, releases: int, masked: bool) -> Account:
        """What so many releases spend."""
        one = self.chosen(masked)
        noise = one.noise(self.epsilon, self.delta, releases)
        spent = one.account(noise, releases, self.delta)
        return Account(spent, self.delta, noise, releases, self.per, one.label)


@dataclass(frozen=True)
class Privacy:
    """What a client does before sums leave.

    Parameters
    ----------
    noise
        Standard deviation of the noise, in multiples of the sums' sensitivity.
    clip, label_clip
        Longest row of features, or longest gradient; and largest standardised label.
    mechanism
        What draws the noise.
    share
        The part of the noise's variance that this client adds.
    """

    noise: float
    per: Literal["unit", "row"]
    clip: float
    label_clip: float
    mechanism: str = "gaussian"
    share: float = 1.0

    def __post_init__(self) -> None:
        """Requests may come from anybody."""
        if not (self.noise > 0 and self.clip > 0 and self.label_clip >= 0 and 0 < self.share <= 1):
            raise MessageError("noise, clip and share of privacy must be positive")

    @staticmethod
    def of(options: PrivacyOptions, recipe: Recipe, columns: int, releases: int, quorum: int = 0) -> Privacy:
        """For one of so many releases of a run: statistics of so many columns with the one that is constant.

        Parameters
        ----------
        quorum
            How many clients a masked sum has at the least; 0 where sums are not masked.
        """
        ends = np.array([0.0, recipe.cap or 3 * recipe.label_std + recipe.label_mean])
        label_clip = float(np.abs(ends - recipe.label_mean).max() / recipe.label_std)
        one = options.chosen(quorum > 0)
        noise = one.noise(options.epsilon, options.delta, releases)
        share = 1 / quorum if quorum and one.adds_up else 1.0
        return Privacy(noise, options.per, options.clip * float(np.sqrt(columns)), label_clip, one.name, share)

    @staticmethod
    def of_gradients(options: PrivacyOptions, releases: int, masked: bool) -> Privacy:
        """For one of so many releases of a run: a step of training at one client, which adds all of the noise."""
        one = options.chosen(masked)
        noise = one.noise(options.epsilon, options.delta, releases)
        return Privacy(noise, options.per, options.gradient_clip, 0.0, one.name)

    def noised(self, sums: FloatArray, bound: float, *, seed: int | None = None) -> FloatArray:
        """Sums that one unit or row changes by `bound` at most, with this client's noise; a seed is for tests."""
        return mechanisms[self.mechanism].apply(sums, bound, self.noise * float(np.sqrt(self.share)), seed)
