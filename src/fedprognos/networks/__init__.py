"""The health network, its training, and the bundle it travels in."""

from fedprognos.networks.bundle import Bundle
from fedprognos.networks.calibration import Calibration
from fedprognos.networks.fit import Epoch, FitResult, fit, predict
from fedprognos.networks.head import HeadStatistics
from fedprognos.networks.network import HealthNetwork, NetworkSpec, parameters_of
from fedprognos.networks.weights import Weights, check_weights, network_with, weights_of

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
