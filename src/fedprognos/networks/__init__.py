"""Networks as values, their training, heads and intervals, and the bundle they travel in."""

from fedprognos.networks.bundle import Bundle
from fedprognos.networks.calibration import Calibration
from fedprognos.networks.cells import Cell, cells
from fedprognos.networks.fit import Epoch, FitResult, fit
from fedprognos.networks.head import HeadStatistics
from fedprognos.networks.network import Network, Weights, check_weights
from fedprognos.networks.running import predict
from fedprognos.networks.spec import NetworkSpec

__all__ = [
    "Bundle",
    "Calibration",
    "Cell",
    "Epoch",
    "FitResult",
    "HeadStatistics",
    "Network",
    "NetworkSpec",
    "Weights",
    "cells",
    "check_weights",
    "fit",
    "predict",
]
