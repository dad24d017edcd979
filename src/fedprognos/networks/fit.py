"""The one training loop: mini-batches, early stopping, frozen layers trained past on cached features."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedprognos.errors import ConfigError, TrainingError
from fedprognos.features import Recipe, WindowSet
from fedprognos.networks.cache import cached_inputs
from fedprognos.networks.module import Dropout, HealthNetwork
from fedprognos.networks.network import Network
from fedprognos.networks.options import Training

COLLAPSE = 0.05
"""A model whose predictions vary less than this share of the labels has collapsed to the mean."""
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": partial(torch.optim.AdamW, fused=True),  # one kernel for all tensors; AdamW without decay is Adam
    "rmsprop": torch.optim.RMSprop,
}
PREDICT_BATCH = 1024


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
    plan: Training,
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
    network.dropout = Dropout(plan.dropout, seed)
    inputs = cached_inputs(network, train, frozen, where)
    targets = torch.from_numpy(recipe.encode(train.labels).astype(np.float32)).to(where)
    held = None
    if validation is not None and len(validation):
        held = (cached_inputs(network, validation, frozen, where), recipe.capped(validation.labels))
    learning = [p for p in network.parameters() if p.requires_grad]
    anchors = [p.detach().clone() for p in learning] if proximal > 0 else []
    optimizer = OPTIMIZERS[plan.optimizer](learning, lr=plan.learning_rate, weight_decay=plan.weight_decay)
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, partial(_decay, plan))
    order = np.random.default_rng(seed)
    history: list[Epoch] = []
    best, best_epoch, best_rmse = Network.of(network), 0, np.inf
    for epoch in range(1, plan.epochs + 1):
        squared = 0.0
        for index in _batches(order.permutation(len(train)), plan.batch_size):
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.mse_loss(network.run(inputs(index), frozen), targets[torch.from_numpy(index)])
            pull = sum((p - a).square().sum() for p, a in zip(learning, anchors, strict=True)) if anchors else 0.0
            (loss + 0.5 * proximal * pull).backward()  # type: ignore[no-untyped-call]
            if plan.clip is not None:
                nn.utils.clip_grad_norm_(learning, plan.clip)
            optimizer.step()
            squared += loss.item() * len(index)
        decay.step()
        train_rmse = float(np.sqrt(squared / len(train))) * recipe.label_std
        if not np.isfinite(train_rmse):
            raise TrainingError(
                f"the loss is no longer a number in epoch {epoch}",
                hint=f"lower train.learning_rate (now {plan.learning_rate:g}) or set train.clip",
            )
        validation_rmse = None
        if held is not None:
            outputs = _outputs(network, held[0], len(held[1]), frozen)
            validation_rmse = float(np.sqrt(np.mean(np.square(recipe.decode(outputs) - held[1]))))
        history.append(Epoch(epoch, train_rmse, validation_rmse))
        if on_epoch is not None:
            on_epoch(history[-1])
        if validation_rmse is None:
            continue
        if epoch >= min(plan.warmup, plan.epochs) and validation_rmse < best_rmse:
            best, best_epoch, best_rmse = Network.of(network), epoch, validation_rmse
        elif plan.patience is not None and epoch > plan.warmup and epoch - best_epoch >= plan.patience:
            break
    if held is None:
        best, best_epoch = Network.of(network), len(history)
    collapsed = _collapsed(best.module().to(where), inputs, recipe.encode(train.labels), frozen)
    return FitResult(best, tuple(history), best_epoch, collapsed, len(train))


def predict(network: Network, windows: WindowSet, recipe: Recipe) -> NDArray[np.float64]:
    """Health of every window in the label's own measure, clipped to what is possible."""
    module = network.module()
    inputs = cached_inputs(module, windows, 0, torch.device("cpu"))
    with module.in_blocks():
        return recipe.decode(_outputs(module, inputs, len(windows), 0))


def _decay(plan: Training, epoch: int) -> float:
    """Share of the learning rate left after `epoch` epochs."""
    return 1.0 if plan.schedule == "constant" else 0.5 * (1 + math.cos(math.pi * epoch / plan.epochs))


def _batches(order: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    """Cut a permutation into batches; a last batch of one joins the one before it."""
    starts = list(range(0, len(order), size))
    if len(starts) > 1 and len(order) - starts[-1] == 1:
        starts.pop()
    return [order[a:b] for a, b in zip(starts, [*starts[1:], len(order)], strict=True)]


@torch.no_grad()
def _outputs(
    network: HealthNetwork, inputs: Callable[[NDArray[np.int64]], Tensor], count: int, frozen: int
) -> NDArray[np.float64]:
    network.eval()
    parts = [
        network.run(inputs(np.arange(a, min(a + PREDICT_BATCH, count))), frozen).cpu().numpy()
        for a in range(0, count, PREDICT_BATCH)
    ]
    network.train()
    return np.concatenate(parts).astype(np.float64)


def _collapsed(
    network: HealthNetwork,
    inputs: Callable[[NDArray[np.int64]], Tensor],
    targets: NDArray[np.float64],
    frozen: int,
    sample: int = 4096,
) -> bool:
    index = np.linspace(0, len(targets) - 1, min(len(targets), sample)).astype(np.int64)
    outputs = _outputs(network, lambda i: inputs(index[i]), len(index), frozen)
    return bool(outputs.std() < COLLAPSE * targets[index].std())
