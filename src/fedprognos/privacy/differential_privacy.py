"""Differential privacy: the options of an experiment, and the part of them that a request carries."""

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
        """What this number of releases spends."""
        mechanism = self.chosen(masked)
        noise = mechanism.noise(self.epsilon, self.delta, releases)
        spent = mechanism.account(noise, releases, self.delta)
        return Account(spent, self.delta, noise, releases, self.per, mechanism.label)


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
        """Refuse impossible values: a request may come from anybody."""
        if not (self.noise > 0 and self.clip > 0 and self.label_clip >= 0 and 0 < self.share <= 1):
            raise MessageError(
                "privacy needs noise and clip above 0, label_clip of at least 0, and share above 0 and at most 1"
            )

    @staticmethod
    def for_statistics(
        options: PrivacyOptions, recipe: Recipe, columns: int, releases: int, quorum: int = 0
    ) -> Privacy:
        """Noise and clips for one of a run's `releases`: statistics of `columns` columns, the constant one included.

        Parameters
        ----------
        quorum
            The least number of clients in a masked sum; 0 if sums are not masked.
        """
        ends = np.array([0.0, recipe.cap or 3 * recipe.label_std + recipe.label_mean])
        label_clip = float(np.abs(ends - recipe.label_mean).max() / recipe.label_std)
        mechanism = options.chosen(quorum > 0)
        noise = mechanism.noise(options.epsilon, options.delta, releases)
        # Discrete noise adds up over clients: the quorum's parts together have the variance that is needed.
        share = 1 / quorum if quorum and mechanism.adds_up else 1.0
        return Privacy(noise, options.per, options.clip * float(np.sqrt(columns)), label_clip, mechanism.name, share)

    @staticmethod
    def for_gradients(options: PrivacyOptions, releases: int, masked: bool) -> Privacy:
        """Noise and clip for one of a run's `releases`: a training step at a client that adds all the noise."""
        mechanism = options.chosen(masked)
        noise = mechanism.noise(options.epsilon, options.delta, releases)
        return Privacy(noise, options.per, options.gradient_clip, 0.0, mechanism.name)

    def noised(self, sums: FloatArray, bound: float, *, seed: int | None = None) -> FloatArray:
        """Add this client's noise to sums that a single unit or row changes by at most `bound`; a seed is for tests."""
        return mechanisms[self.mechanism].apply(sums, bound, self.noise * float(np.sqrt(self.share)), seed)
