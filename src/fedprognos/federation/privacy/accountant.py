"""What the releases of a run spend together, by the accountant of `dp-accounting`."""

from __future__ import annotations

from dataclasses import dataclass

from fedprognos.errors import ConfigError


@dataclass(frozen=True)
class Account:
    """What a run spends on each client: epsilon at delta, the noise of a release, and how many there are."""

    epsilon: float
    delta: float
    noise: float
    releases: int
    per: str

    @staticmethod
    def of(noise: float, releases: int, delta: float, per: str) -> Account:
        """Count several releases with this noise."""
        return Account(epsilon_of(noise, releases, delta), delta, noise, releases, per)

    def in_words(self) -> str:
        """For reports and bundles."""
        return (
            f"epsilon {self.epsilon:.3g} at delta {self.delta:g} per {self.per}: {self.releases} releases of "
            f"statistics with noise of {self.noise:.3g} sensitivities; moments of the columns are not covered"
        )


def epsilon_of(noise: float, releases: int, delta: float) -> float:
    """What several Gaussian releases spend, as `dp-accounting` counts it."""
    try:
        from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
        from dp_accounting.pld import PLDAccountant
    except ImportError:
        raise ConfigError(
            "counting a privacy budget needs dp-accounting", hint="pip install 'fedprognos[privacy]'"
        ) from None
    accountant = PLDAccountant()
    accountant.compose(SelfComposedDpEvent(GaussianDpEvent(noise), releases))
    return float(accountant.get_epsilon(delta))
