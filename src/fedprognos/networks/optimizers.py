"""Gradient steps of Adam and RMSprop, the same numbers as `torch.optim` gives.

`torch.optim` loads torch's compiler with its first optimizer, which costs every process that trains a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn


class Optimizer(Protocol):
    """Changes parameters by their gradients."""

    def step(self, learning_rate: float) -> None:
        """One step; parameters without a gradient stay."""


class Adam:
    """Adam (Kingma & Ba, 2015), its decay apart from the gradient (Loshchilov & Hutter, 2019): one kernel for all."""

    def __init__(self, parameters: Sequence[nn.Parameter], weight_decay: float) -> None:
        self._parameters, self._weight_decay = parameters, weight_decay
        self._means, self._squares = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
        self._steps = [torch.zeros((), device=p.device) for p in parameters]

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        moving = [(k, p.grad) for k, p in enumerate(self._parameters) if p.grad is not None]
        if not moving:
            return
        parts = (self._parameters, self._means, self._squares, self._steps)
        parameters, means, squares, steps = ([part[k] for k, _ in moving] for part in parts)
        torch._foreach_add_(steps, 1)
        torch._fused_adamw_(
            parameters,
            [gradient for _, gradient in moving],
            means,
            squares,
            [],
            steps,
            amsgrad=False,
            lr=learning_rate,
            beta1=0.9,
            beta2=0.999,
            weight_decay=self._weight_decay,
            eps=1e-8,
            maximize=False,
        )


class RMSprop:
    """RMSprop (Tieleman & Hinton, 2012); weight decay is a part of the gradient."""

    SHARE, EPS = 0.99, 1e-8

    def __init__(self, parameters: Sequence[nn.Parameter], weight_decay: float) -> None:
        self._parameters, self._weight_decay = parameters, weight_decay
        self._squares = [torch.zeros_like(p) for p in parameters]

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        for parameter, square in zip(self._parameters, self._squares, strict=True):
            if (gradient := parameter.grad) is None:
                continue
            if self._weight_decay:
                gradient = gradient.add(parameter, alpha=self._weight_decay)
            square.mul_(self.SHARE).addcmul_(gradient, gradient, value=1 - self.SHARE)
            parameter.addcdiv_(gradient, square.sqrt().add_(self.EPS), value=-learning_rate)


OPTIMIZERS: dict[str, Callable[[Sequence[nn.Parameter], float], Optimizer]] = {"adam": Adam, "rmsprop": RMSprop}


def without_gradients(parameters: Sequence[Tensor]) -> None:
    """Let the gradients of the last step go."""
    for parameter in parameters:
        parameter.grad = None
