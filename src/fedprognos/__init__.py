"""Federated health prognosis: one SoH or RUL model trained across owners who keep their data."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_LAZY = {
    "Bundle": "fedprognos.networks",
    "Fleet": "fedprognos.fleet",
    "Unit": "fedprognos.fleet",
    "load_fleets": "fedprognos.experiment.run",
    "run": "fedprognos.experiment.run",
}


def __getattr__(name: str) -> Any:
    """Load public names on first use, so that importing the matcher alone never loads torch."""
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'fedprognos' has no attribute '{name}'")
