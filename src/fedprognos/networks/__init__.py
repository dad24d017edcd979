"""Networks as values, their training, heads and intervals, and the bundle they travel in."""

from fedprognos.networks.anatomy import Anatomy, Array, Layer, Places, Tensors, anatomy_of, place_in
from fedprognos.networks.batches import LifeBatches, WindowBatches
from fedprognos.networks.bundle import Bundle, sign_bundle
from fedprognos.networks.calibration import (
    EDGES,
    MIN_UNITS,
    POINTS,
    Calibration,
    HeadSums,
    Residuals,
    calibration_of,
    neighbours_joined,
    prediction_ranges,
    residuals,
)
from fedprognos.networks.cells import Cell, cells
from fedprognos.networks.from_torch import network_of
from fedprognos.networks.head import (
    UNIT_WEIGHT,
    HeadStatistics,
    add_all,
    alike_weights,
    exact_head,
    head_statistics,
    mean_squared_error,
    solve_head,
    weighted_statistics,
)
from fedprognos.networks.model_options import ModelOptions, Training, TrainOptions
from fedprognos.networks.network import OWN_RESERVOIR, Network, Weights, check_alike, check_weights
from fedprognos.networks.novelty import LIMIT, Novelty, novelty_from_sums
from fedprognos.networks.pooling import (
    CentredSums,
    Fits,
    Grid,
    forward_fits,
    judged_on_held_out,
    pooled_fits,
    shared_slopes,
)
from fedprognos.networks.reservoir_body import WARM_UP, Reservoir, reservoir_of
from fedprognos.networks.running import BATCH, output_sums, pieces, predict, window_outputs
from fedprognos.networks.sample_gradients import sample_gradients
from fedprognos.networks.spec import NetworkSpec
from fedprognos.networks.stepping import Stepper
from fedprognos.networks.torch_threads import one_torch_thread
from fedprognos.networks.training_loop import OPTIMIZERS, Epoch, FitResult, decay_share, device_of, fit
from fedprognos.networks.trust import (
    SignatureError,
    Trust,
    sign_file,
    trust_text,
    write_trust,
)

__all__ = [
    "BATCH",
    "EDGES",
    "LIMIT",
    "MIN_UNITS",
    "OPTIMIZERS",
    "OWN_RESERVOIR",
    "POINTS",
    "UNIT_WEIGHT",
    "WARM_UP",
    "Anatomy",
    "Array",
    "Bundle",
    "Calibration",
    "Cell",
    "CentredSums",
    "Epoch",
    "FitResult",
    "Fits",
    "Grid",
    "HeadStatistics",
    "HeadSums",
    "Layer",
    "LifeBatches",
    "ModelOptions",
    "Network",
    "NetworkSpec",
    "Novelty",
    "Places",
    "Reservoir",
    "Residuals",
    "SignatureError",
    "Stepper",
    "Tensors",
    "TrainOptions",
    "Training",
    "Trust",
    "Weights",
    "WindowBatches",
    "add_all",
    "alike_weights",
    "anatomy_of",
    "calibration_of",
    "cells",
    "check_alike",
    "check_weights",
    "decay_share",
    "device_of",
    "exact_head",
    "fit",
    "forward_fits",
    "head_statistics",
    "judged_on_held_out",
    "mean_squared_error",
    "neighbours_joined",
    "network_of",
    "novelty_from_sums",
    "one_torch_thread",
    "output_sums",
    "pieces",
    "place_in",
    "pooled_fits",
    "predict",
    "prediction_ranges",
    "reservoir_of",
    "residuals",
    "sample_gradients",
    "shared_slopes",
    "sign_bundle",
    "sign_file",
    "solve_head",
    "trust_text",
    "weighted_statistics",
    "window_outputs",
    "write_trust",
]
