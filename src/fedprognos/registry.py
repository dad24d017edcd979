"""Everything that can be added by name, one shelf a kind; a file or an object puts itself there with `add`.

>>> from fedprognos import registry
>>> "absorb" in registry.strategies
True
"""

from __future__ import annotations

from fedprognos.evaluation import baselines, metrics
from fedprognos.features import channels
from fedprognos.features.history import histories
from fedprognos.federation import aggregators
from fedprognos.federation.exchanges import exchanges
from fedprognos.federation.strategies import strategies
from fedprognos.fleet import partitions
from fedprognos.fleet.readers import readers
from fedprognos.networks.cells import cells
from fedprognos.privacy import mechanisms

__all__ = [
    "aggregators",
    "baselines",
    "cells",
    "channels",
    "exchanges",
    "histories",
    "mechanisms",
    "metrics",
    "partitions",
    "readers",
    "strategies",
]
