"""Training under differential privacy (Abadi et al., 2016): clipped gradients with noise, one step an epoch.

A step goes over all data of the client, because larger batches of few units need less noise for the same epsilon.
So each step releases one sum, and nothing else that leaves depends on the data.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedprognos.arrays import FloatArray
from fedprognos.errors import ConfigError
from fedprognos.features import Recipe, WindowSet
from fedprognos.networks import OPTIMIZERS, LifeBatches, Network, Training, WindowBatches, decay_share, sample_gradients
from fedprognos.privacy.differential_privacy import Privacy


def private_fit(
    start: Network,
    train: WindowSet,
    recipe: Recipe,
    plan: Training,
    privacy: Privacy,
    *,
    seed: int,
    proximal: float = 0.0,
) -> tuple[Network, int]:
    """The network after `plan.epochs` noised steps, and the number of units or rows behind each.

    Parameters
    ----------
    seed
        Decides how lives are shown, not the noise, which nobody can predict.
    """
    if privacy.per == "row" and train.lives is not None:
        raise ConfigError("privacy per row does not cover whole lives", hint="set federation.privacy.per = 'unit'")
    module = start.module().train()
    module.freeze(0)
    names = [name for name, p in module.named_parameters() if p.requires_grad]
    learning = [module.get_parameter(name) for name in names]
    anchors = [p.detach().clone() for p in learning]
    optimizer = OPTIMIZERS[plan.optimizer](learning, plan.weight_decay)
    batches = WindowBatches if train.lives is None else LifeBatches
    data, order = batches(module, train, recipe, plan, 0), np.random.default_rng(seed)
    count = len(train) if privacy.per == "row" else len(np.unique(train.unit))
    for epoch in range(plan.epochs):
        total: FloatArray = np.zeros(sum(p.numel() for p in learning))
        for x, y, weights, groups in data.samples(order, privacy.per):
            gradients = sample_gradients(module, x, y, weights)
            total += clipped_sum([gradients[name] for name in names], groups, privacy.clip)
        step = torch.from_numpy(privacy.noised(total, privacy.clip) / count).float()
        parts = torch.split(step, [p.numel() for p in learning])
        for p, anchor, part in zip(learning, anchors, parts, strict=True):
            p.grad = part.view_as(p) + proximal * (p.detach() - anchor)
        optimizer.step(plan.learning_rate * decay_share(plan.schedule, plan.epochs, epoch))
    return Network.from_module(module), count


def clipped_sum(gradients: list[Tensor], groups: Tensor, clip: float) -> FloatArray:
    """Gradients of sequences (B, ...) added up by group, none longer than `clip`, and then over all: (P,)."""
    flat = torch.cat([gradient.flatten(1) for gradient in gradients], dim=1).double()
    each = flat.new_zeros(int(groups.max()) + 1, flat.shape[1]).index_add_(0, groups, flat)
    length = each.norm(dim=1, keepdim=True)
    total: FloatArray = (each * (clip / length.clamp(min=clip))).sum(0).numpy()
    return total
