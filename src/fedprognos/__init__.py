"""Federated health prognosis: one SoH or RUL model trained across owners who keep their data.

>>> import fedprognos as fp
>>> "run" in dir(fp)
True
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fedprognos import checks as checks
    from fedprognos import registry as registry
    from fedprognos.api import absorb as absorb
    from fedprognos.api import match_networks as match_networks
    from fedprognos.api import plot as plot
    from fedprognos.api import run as run
    from fedprognos.api import windows as windows
    from fedprognos.estimator import FederatedModel as FederatedModel
    from fedprognos.evaluation import Baseline as Baseline
    from fedprognos.evaluation import Metric as Metric
    from fedprognos.evaluation import Results as Results
    from fedprognos.experiment.experiment_run import Extras as Extras
    from fedprognos.experiment.experiment_run import Run as Run
    from fedprognos.experiment.experiment_run import load_fleets as load_fleets
    from fedprognos.federation.averages import Aggregator as Aggregator
    from fedprognos.federation.averages import average as average
    from fedprognos.federation.exchanges import Exchange as Exchange
    from fedprognos.federation.exchanges import Words as Words
    from fedprognos.federation.exchanges.fit import train as train
    from fedprognos.federation.plan import Plan as Plan
    from fedprognos.federation.plan import Round as Round
    from fedprognos.federation.strategies import Strategy as Strategy
    from fedprognos.fleet import Fleet as Fleet
    from fedprognos.fleet import Unit as Unit
    from fedprognos.fleet.readers import Reader as Reader
    from fedprognos.matching import match as match
    from fedprognos.networks import Bundle as Bundle
    from fedprognos.networks import Cell as Cell
    from fedprognos.networks import Network as Network
    from fedprognos.networks import NetworkSpec as NetworkSpec
    from fedprognos.networks.from_torch import network_of as network_of
    from fedprognos.options import Options as Options
    from fedprognos.options import Tunable as Tunable
    from fedprognos.privacy.mechanisms import Mechanism as Mechanism
    from fedprognos.prognosis import Predictor as Predictor

_LAZY = {
    "Aggregator": "fedprognos.federation.averages",
    "Baseline": "fedprognos.evaluation",
    "Bundle": "fedprognos.networks",
    "Cell": "fedprognos.networks",
    "Exchange": "fedprognos.federation.exchanges",
    "Extras": "fedprognos.experiment.experiment_run",
    "Fleet": "fedprognos.fleet",
    "Mechanism": "fedprognos.privacy.mechanisms",
    "Metric": "fedprognos.evaluation",
    "Network": "fedprognos.networks",
    "NetworkSpec": "fedprognos.networks",
    "Options": "fedprognos.options",
    "Plan": "fedprognos.federation.plan",
    "Predictor": "fedprognos.prognosis",
    "Reader": "fedprognos.fleet.readers",
    "Results": "fedprognos.evaluation",
    "Round": "fedprognos.federation.plan",
    "Run": "fedprognos.experiment.experiment_run",
    "Strategy": "fedprognos.federation.strategies",
    "Tunable": "fedprognos.options",
    "Unit": "fedprognos.fleet",
    "FederatedModel": "fedprognos.estimator",
    "absorb": "fedprognos.api",
    "Words": "fedprognos.federation.exchanges",
    "average": "fedprognos.federation.averages",
    "checks": "fedprognos",
    "load_fleets": "fedprognos.experiment.experiment_run",
    "match": "fedprognos.matching",
    "match_networks": "fedprognos.api",
    "network_of": "fedprognos.networks.from_torch",
    "plot": "fedprognos.api",
    "registry": "fedprognos",
    "run": "fedprognos.api",
    "train": "fedprognos.federation.exchanges.fit",
    "windows": "fedprognos.api",
}

__all__ = [
    "Aggregator",
    "Baseline",
    "Bundle",
    "Cell",
    "Extras",
    "FederatedModel",
    "Fleet",
    "Mechanism",
    "Metric",
    "Network",
    "NetworkSpec",
    "Options",
    "Plan",
    "Predictor",
    "Reader",
    "Results",
    "Round",
    "Run",
    "Strategy",
    "Tunable",
    "Unit",
    "absorb",
    "average",
    "checks",
    "load_fleets",
    "match",
    "match_networks",
    "network_of",
    "plot",
    "registry",
    "run",
    "train",
    "windows",
]


def __getattr__(name: str) -> Any:
    """Load public names on first use, so that importing the matcher alone never loads torch."""
    if name in ("checks", "registry"):
        return importlib.import_module(f"fedprognos.{name}")
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'fedprognos' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
