"""What the releases of a run spend together, by the accountants of `dp-accounting`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedprognos.errors import ConfigError


@dataclass(frozen=True)
class Account:
    """What a run spends on each client: epsilon at delta, the noise of a release, and how many there are."""

    epsilon: float
    delta: float
    noise: float
    releases: int
    per: str
    mechanism: str

    def in_words(self) -> str:
        """For reports and bundles."""
        return (
            f"epsilon {self.epsilon:.3g} at delta {self.delta:g} per {self.per}: {self.releases} releases with "
            f"{self.mechanism} noise of {self.noise:.3g} sensitivities; moments of the columns are not covered"
        )


def gaussian_epsilon(noise: float, releases: int, delta: float) -> float:
    """What several Gaussian releases spend: as much as one with less noise (Dong et al., 2022)."""
    return float(_accounting().get_epsilon_gaussian(noise / releases**0.5, delta))


def concentrated_epsilon(noise: float, releases: int, delta: float) -> float:
    """What several releases with the concentrated privacy 1 / (2 noise^2) spend (Bun & Steinke, 2016)."""
    accounting = _accounting()
    accountant = accounting.rdp.RdpAccountant()
    accountant.compose(accounting.ZCDpEvent(releases / (2 * noise**2)))
    return float(accountant.get_epsilon(delta))


def _accounting() -> Any:
    try:
        import dp_accounting
        import dp_accounting.rdp
    except ImportError:
        raise ConfigError(
            "counting a privacy budget needs dp-accounting", hint="pip install 'fedprognos[privacy]'"
        ) from None
    return dp_accounting
