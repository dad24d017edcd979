"""The health network, its training, and the bundle it travels in."""

from fedprognos.model.bundle import Bundle
from fedprognos.model.calibration import Calibration
from fedprognos.model.fit import Epoch, FitResult, fit, predict
from fedprognos.model.head import HeadStatistics
from fedprognos.model.network import HealthNetwork, NetworkSpec, parameters_of
from fedprognos.model.weights import Weights, check_weights, network_with, weights_of

__all__ = [
    "Bundle",
    "Calibration",
    "Epoch",
    "FitResult",
    "HeadStatistics",
    "HealthNetwork",
    "NetworkSpec",
    "Weights",
    "check_weights",
    "fit",
    "network_with",
    "parameters_of",
    "predict",
    "weights_of",
]
