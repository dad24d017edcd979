"""The one training loop: gradient steps on batches of windows or of whole lives, early stopping, frozen layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from fedprognos.errors import ConfigError, TrainingError
from fedprognos.features import Recipe, WindowSet
from fedprognos.networks.batches import LifeBatches, WindowBatches
from fedprognos.networks.model_options import Training
from fedprognos.networks.module import Dropout, HealthNetwork
from fedprognos.networks.network import Network
from fedprognos.networks.network_outputs import outputs
from fedprognos.networks.optimizers import OPTIMIZERS, without_gradients

COLLAPSE = 0.05
"""A model whose predictions vary less than this share of the labels has collapsed to the mean."""


@dataclass(frozen=True)
class Epoch:
    """One line of a training history; errors in the label's own unit, labels capped."""

    epoch: int
    train_rmse: float
    validation_rmse: float | None


@dataclass(frozen=True, eq=False)
class FitResult:
    """What training gave: the network kept, how it went, and whether the model collapsed to the mean."""

    network: Network
    history: tuple[Epoch, ...]
    best_epoch: int
    collapsed: bool
    windows: int


def device_of(name: str) -> torch.device:
    """`auto` is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"train.device = '{name}' is not a device", hint="use auto, cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("train.device = 'cuda', but this machine has no GPU", hint="use auto or cpu")
    return device


def fit(
    start: Network,
    train: WindowSet,
    validation: WindowSet | None,
    recipe: Recipe,
    training: Training,
    *,
    seed: int,
    device: str = "auto",
    frozen: int = 0,
    proximal: float = 0.0,
    on_epoch: Callable[[Epoch], None] | None = None,
) -> FitResult:
    """Train a network from where it is and return the one kept.

    Parameters
    ----------
    train, validation
        Windows to learn from and to stop on. With a validation part the epoch of the lowest validation
        error after the warm-up is kept; without one, the last.
    frozen
        Layers from the first that stay as they are. Their outputs are computed once, not every epoch.
    proximal
        FedProx's mu: adds mu/2 times the squared distance from the weights training started with.
    seed
        Decides the order of the batches.

    Raises
    ------
    TrainingError
        When the loss is no longer a number.
    """
    where = device_of(device)
    network = start.module().to(where).train()
    network.freeze(frozen)
    network.dropout = Dropout(training.dropout, seed)
    batches = WindowBatches if train.lives is None else LifeBatches
    data = batches(network, train, recipe, training, frozen)
    epochs = training.epochs if training.steps is None else max(round(training.steps / data.per_epoch), 1)
    learning = [p for p in network.parameters() if p.requires_grad]
    anchors = [p.detach().clone() for p in learning] if proximal > 0 else []
    optimizer = OPTIMIZERS[training.optimizer](learning, training.weight_decay)
    order = np.random.default_rng(seed)
    kept = _BestEpoch(training, epochs, Network.from_module(network))
    for epoch in range(1, epochs + 1):
        squared, seen = 0.0, 0
        learning_rate = training.learning_rate * decay_share(training.schedule, epochs, epoch - 1)
        for loss, count in data.losses(network, order):
            without_gradients(learning)
            pull = sum((p - a).square().sum() for p, a in zip(learning, anchors, strict=True)) if anchors else 0.0
            (loss + 0.5 * proximal * pull).backward()  # type: ignore[no-untyped-call]
            if training.clip is not None:
                nn.utils.clip_grad_norm_(learning, training.clip)
            optimizer.step(learning_rate)
            squared, seen = squared + loss.item() * count, seen + count
        train_rmse = float(np.sqrt(squared / seen)) * recipe.label_std
        if not np.isfinite(train_rmse):
            raise TrainingError(
                f"the loss is no longer a number in epoch {epoch}",
                hint=f"lower train.learning_rate (now {training.learning_rate:g}) or set train.clip",
            )
        error = None if validation is None or not len(validation) else _rmse(network, validation, recipe)
        stop = kept.keep(Epoch(epoch, train_rmse, error), network)
        if on_epoch is not None:
            on_epoch(kept.history[-1])
        if stop:
            break
    collapsed = False
    if not _surely_varies(kept, train, validation, recipe):
        is_last = kept.best_epoch == kept.history[-1].epoch
        collapsed = _collapsed(network if is_last else kept.best.module().to(where), train, recipe)
    return FitResult(kept.best, tuple(kept.history), kept.best_epoch, collapsed, len(train))


@dataclass(eq=False)
class _BestEpoch:
    """Keeps the network of the best validation error after the warm-up; without a validation part, the last one."""

    training: Training
    epochs: int
    best: Network
    best_epoch: int = 0
    best_rmse: float = np.inf
    history: list[Epoch] = field(default_factory=list)

    def keep(self, epoch: Epoch, network: HealthNetwork) -> bool:
        """Take note of an epoch; whether training should stop."""
        self.history.append(epoch)
        error, number = epoch.validation_rmse, epoch.epoch
        if error is None:
            if number == self.epochs:
                self.best, self.best_epoch = Network.from_module(network), number
            return False
        if number >= min(self.training.warmup, self.epochs) and error < self.best_rmse:
            self.best, self.best_epoch, self.best_rmse = Network.from_module(network), number, error
            return False
        patience = self.training.patience
        return patience is not None and number > self.training.warmup and number - self.best_epoch >= patience


def _rmse(network: HealthNetwork, validation: WindowSet, recipe: Recipe) -> float:
    network.eval()
    predicted = recipe.decode(outputs(network, validation))
    network.train()
    return float(np.sqrt(np.mean(np.square(predicted - recipe.capped(validation.labels)))))


def _surely_varies(kept: _BestEpoch, train: WindowSet, validation: WindowSet | None, recipe: Recipe) -> bool:
    """Whether an error that is known already shows that predictions vary.

    Deviations obey the triangle inequality: that of the labels is at most that of the predictions plus the error.
    """
    if validation is not None and len(validation):
        judged, error = validation, kept.best_rmse
    elif train.lives is None:
        judged, error = train, kept.history[-1].train_rmse
    else:  # lives are shown at other paces, and some labels count more than others
        return False
    return bool(error < (1 - COLLAPSE) * recipe.capped(judged.labels).std())


def _collapsed(network: HealthNetwork, train: WindowSet, recipe: Recipe, sample: int = 512) -> bool:
    """Whether predictions hardly vary; a few hundred are enough to tell."""
    chosen = train.select(np.linspace(0, len(train) - 1, min(len(train), sample)).astype(np.int64))
    return bool(outputs(network.eval(), chosen).std() < COLLAPSE * recipe.encode(chosen.labels).std())


def decay_share(schedule: str, epochs: int, epoch: int) -> float:
    """Share of the learning rate left after `epoch` epochs."""
    return 1.0 if schedule == "constant" else 0.5 * (1 + math.cos(math.pi * epoch / epochs))
