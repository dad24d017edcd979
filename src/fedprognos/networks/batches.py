"""What a network learns from, step by step: batches of windows, or whole lives of similar length."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor, nn

from fedprognos.arrays import BoolArray, IntArray
from fedprognos.features import Recipe, WindowSet
from fedprognos.networks.model_options import Training
from fedprognos.networks.module import HealthNetwork
from fedprognos.networks.network_outputs import cached_inputs

SAMPLES, LIVES = 512, 32
"""Windows, and lives, whose single gradients are computed together."""
FIRST_ROWS = 20
"""Rows of a life that show what its sensors read when the unit was new."""
SHIFTED = 0.7
"""Share of the lives that are shown with another unit's first readings, where some units still run."""
BESIDE = 2
"""Units that still run beside each one that failed, at most: more take time and teach no more."""


class WindowBatches:
    """Windows in random order; frozen layers are run once, not every epoch.

    `losses` yields one epoch: the mean squared error of each batch and its number of points. Make the gradient step
    before you take the next one.
    `samples` yields one epoch as sequences: inputs (B, T, C), targets and weights (B, T), and the unit or row of each
    (B,). The weights of a unit or row add up to one, and no unit or row is split over two batches.
    """

    def __init__(
        self, network: HealthNetwork, train: WindowSet, recipe: Recipe, training: Training, frozen: int
    ) -> None:
        device = next(network.parameters()).device
        self._inputs = cached_inputs(network, train, frozen, device)
        self._targets = torch.from_numpy(recipe.encode(train.labels).astype(np.float32)).to(device)
        self._size, self._frozen, self._unit = training.batch_size or 128, frozen, train.unit

    @property
    def per_epoch(self) -> int:
        """Gradient steps of an epoch, approximately."""
        return math.ceil(len(self._targets) / self._size)

    def losses(self, network: HealthNetwork, order: Generator) -> Iterator[tuple[Tensor, int]]:
        for index in cut(order.permutation(len(self._targets)), self._size):
            predicted = network.run(self._inputs(index), self._frozen)
            yield nn.functional.mse_loss(predicted, self._targets[torch.from_numpy(index)]), len(index)

    def samples(self, order: Generator, per: Literal["unit", "row"]) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        groups = self._unit if per == "unit" else np.arange(len(self._unit))
        by_group = np.argsort(groups, kind="stable")
        each = np.split(by_group, np.flatnonzero(np.diff(groups[by_group])) + 1)
        many = max(SAMPLES * len(each) // len(groups), 1)
        for k in range(0, len(each), many):
            some = each[k : k + many]
            index = np.concatenate(some)
            x = self._inputs(index)
            y, weights = x.new_zeros(2, *x.shape[:2])
            y[:, -1] = self._targets[torch.from_numpy(index)]
            weights[:, -1] = torch.from_numpy(
                np.concatenate([np.full(len(windows), 1 / len(windows)) for windows in some])
            )
            yield x, y, weights, torch.from_numpy(np.repeat(np.arange(len(some)), [len(windows) for windows in some]))


def cut(order: IntArray, size: int) -> list[IntArray]:
    """Cut a permutation into batches; a last batch of one joins the one before it."""
    starts = list(range(0, len(order), size))
    if len(starts) > 1 and len(order) - starts[-1] == 1:
        starts.pop()
    return [order[a:b] for a, b in zip(starts, [*starts[1:], len(order)], strict=True)]


class LifeBatches:
    """Whole lives: the error at every row counts, units of similar length are run together.

    Lives longer than `train.truncate` rows are learnt in pieces: the state is carried from one to the next, the
    gradient is not. Each epoch may show a life with noise on its inputs, at another pace, or from a random row on.
    Where units still run, it may also show one with the first readings of another: a few failures say little about how
    machines differ when new, and those that still run say much.
    """

    def __init__(
        self, network: HealthNetwork, train: WindowSet, recipe: Recipe, training: Training, frozen: int
    ) -> None:
        self._recipe, self._training, self._set = recipe, training, train
        self._device = next(network.parameters()).device
        self._points = [np.flatnonzero(train.unit == u) for u in np.unique(train.unit)]
        self._lengths = np.array([self._rows(points)[1] for points in self._points])
        self._runs = np.array([self._running(points) for points in self._points])
        self._size = training.batch_size or automatic_batch(self._failed)
        self._noise = torch.Generator().manual_seed(0)
        self._beside = np.array([self._may_be_certain(points) for points in self._points])
        # Records that begin in mid-life do not show what a unit read when it was new.
        shifts = self._runs.any() and not training.random_start
        self._first_readings = [self._readings_when_new(points) for points in self._points] if shifts else []

    def _rows(self, points: IntArray) -> tuple[int, int]:
        """First row of a unit and how many rows of it there are up to its last point."""
        lives = self._set.lives if self._set.lives is not None else np.zeros(1, dtype=np.int64)
        first = int(lives[self._set.unit[points[0]]])
        return first, int(self._set.starts[points].max()) - first + 1

    def _readings_when_new(self, points: IntArray) -> NDArray[np.float32]:
        """Mean of the first scaled rows of a unit: (sensors,)."""
        first, length = self._rows(points)
        rows = self._set.features[first : first + min(length, FIRST_ROWS), : len(self._recipe.sensors)]
        return np.asarray(rows.mean(axis=0))

    def _may_be_certain(self, points: IntArray) -> bool:
        """Whether a unit that still runs has a certain row when it is shown as slowly as possible."""
        longest = float(self._set.labels[points].max()) * math.exp(self._training.warp)
        return self._running(points) and self._recipe.cap is not None and longest >= self._recipe.cap

    def _running(self, points: IntArray) -> bool:
        """Whether the unit of these points still runs."""
        return self._set.running is not None and bool(self._set.running[self._set.unit[points[0]]])

    @property
    def _failed(self) -> int:
        """Units that failed; all, where none did. An epoch is one pass over them."""
        return int((~self._runs).sum()) or len(self._runs)

    @property
    def per_epoch(self) -> int:
        return math.ceil(self._failed / self._size)

    def _balanced(self, targets: Tensor, weights: Tensor, failed: int) -> Tensor:
        """Weights where rows at the cap count together as much as those of the batch's first units, which failed.

        Units that still run have certain rows at the cap only. Counted in full they would teach the network that
        most rows are as good as new.
        """
        cap = float(self._recipe.encode(np.array([self._recipe.cap]))[0])
        at_cap = (targets >= cap - 1e-5) & (weights > 0)
        total = weights[at_cap].sum().clamp(min=1e-9)
        return torch.where(at_cap, weights * (weights[:failed][at_cap[:failed]].sum() / total), weights)

    def shown(self, order: Generator) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """One epoch: inputs (B, T, C), targets and weights (B, T) of each batch, with noise, warp and random starts."""
        self._noise.manual_seed(int(order.integers(2**62)))
        by_length = np.argsort(self._lengths * order.uniform(0.9, 1.1, len(self._lengths)), kind="stable")
        failed = np.array_split(by_length[~self._runs[by_length]], self.per_epoch)
        # Every batch has failed units: a step on running ones alone would pull all predictions to the cap.
        running = np.flatnonzero(self._beside)
        beside = np.array_split(order.permutation(running) if len(running) else running, self.per_epoch)
        for k in order.permutation(len(failed)):
            some = beside[k][: BESIDE * len(failed[k])]
            x, y, weights = self._padded([self._shown(int(u), order) for u in (*failed[k], *some)])
            if len(some):
                weights = self._balanced(y, weights, len(failed[k]))
            if self._training.noise:
                x = x + self._training.noise * torch.randn(x.shape, generator=self._noise)
            yield x, y, weights

    def losses(self, network: HealthNetwork, order: Generator) -> Iterator[tuple[Tensor, int]]:
        for x, y, weights in self.shown(order):
            states = None
            for a in range(0, x.shape[1], self._training.truncate):
                part = slice(a, a + self._training.truncate)
                hidden, states = network.body(x[:, part].to(self._device), states)
                states = [_detached(state) for state in states]
                predicted = network.head(hidden).squeeze(-1)
                count = weights[:, part].to(self._device)
                squares = count * torch.square(predicted - y[:, part].to(self._device))
                # A piece of a batch may have no row with a certain label.
                yield squares.sum() / count.sum().clamp(min=1e-9), int((weights[:, part] > 0).sum())

    def samples(self, order: Generator, per: Literal["unit", "row"]) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        self._noise.manual_seed(int(order.integers(2**62)))
        by_length = np.argsort(self._lengths, kind="stable")
        for some in np.array_split(by_length, math.ceil(len(by_length) / LIVES)):
            x, y, weights = self._padded([self._shown(int(u), order) for u in some])
            if self._training.noise:
                x = x + self._training.noise * torch.randn(x.shape, generator=self._noise)
            yield x, y, weights / weights.sum(1, keepdim=True).clamp(min=1e-9), torch.arange(len(some))

    def _shown(self, unit: int, order: Generator) -> tuple[NDArray[np.float32], NDArray[np.float32], BoolArray]:
        """A unit's rows and standardised targets in this epoch, and which rows have a target."""
        training, points = self._training, self._points[unit]
        first, length = self._rows(points)
        labels = np.full(length, np.nan)
        labels[self._set.starts[points] - first] = self._set.labels[points]
        start = int(order.integers(max(length // 2, 1))) if order.random() < training.random_start else 0
        warps = training.warp and self._recipe.task == "rul"  # how a forecast changes with the pace is not known
        pace = math.exp(order.uniform(-training.warp, training.warp)) if warps else 1.0
        at = np.arange(start, length)
        if pace != 1.0:  # as if it had worn so much faster: rows are skipped or repeated, and less life is left
            at = np.floor(np.arange(start + order.random() * min(pace, 1.0), length, pace)).astype(np.int64)
        has_label = np.isfinite(labels[at])
        if self._running(points):  # the label is at least this much, which is certain from the cap on only
            has_label &= labels[at] / pace >= (np.inf if self._recipe.cap is None else self._recipe.cap)
            kept = max(int(has_label.sum()), 1)  # certain rows come first; the rest would be run through for nothing
            at, has_label = at[:kept], has_label[:kept]
        targets = self._recipe.encode(np.where(has_label, labels[at] / pace, 0.0)).astype(np.float32)
        rows = self._set.features[first + at]
        if self._first_readings and order.random() < SHIFTED:
            other = self._first_readings[order.integers(len(self._first_readings))]
            rows[:, : len(other)] += other - self._first_readings[unit]
        if self._recipe.extra:  # computed from the warped life that the network sees
            rows = self._recipe.extended(rows[:, : self._recipe.columns])
        return rows, targets, has_label

    def _padded(
        self, units: list[tuple[NDArray[np.float32], NDArray[np.float32], BoolArray]]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs (B, T, C), targets (B, T) and weights (B, T), zero where there is nothing."""
        longest = max(len(rows) for rows, _, _ in units)
        x = np.zeros((len(units), longest, self._set.channels), dtype=np.float32)
        y, weights = np.zeros((2, len(units), longest), dtype=np.float32)
        for k, (rows, targets, has_label) in enumerate(units):
            x[k, : len(rows)], y[k, : len(rows)] = rows, targets
            weights[k, : len(rows)] = has_label / (max(has_label.sum(), 1) if self._training.alike else 1)
        return torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(weights)


def automatic_batch(units: int) -> int:
    """Units in a batch by default: small fleets take small batches, so that they make enough steps.

    >>> [automatic_batch(n) for n in (3, 18, 66, 115, 249)]
    [4, 4, 8, 16, 16]
    """
    return int(2 ** np.clip(np.floor(np.log2(max(units / 5, 1))), 2, 4))


def _detached(state: object) -> object:
    """A state that carries values, not gradients."""
    if isinstance(state, Tensor):
        return state.detach()
    return tuple(_detached(part) for part in state)  # type: ignore[attr-defined]
