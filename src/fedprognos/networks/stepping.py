"""Running a network row by row: what it remembers of a unit is one vector of numbers.

Cells that know a step in NumPy are run in it, without torch, which takes most of a second to load; only a very long
run of rows is faster in torch. All others are run in torch. The vector is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedprognos.arrays import FloatArray, Rows
from fedprognos.networks.cells import Step, cells
from fedprognos.networks.network import Network, body_digest
from fedprognos.networks.reservoir_body import reservoir_of
from fedprognos.networks.torch_threads import one_torch_thread

if TYPE_CHECKING:
    from torch import Tensor

    from fedprognos.networks.module import HealthNetwork

LONG = 8192
"""Rows of a unit in a row from which on torch is faster, the time to load it included."""
HEAD = ("weight", "reservoir", "direct")
"""What the head sees, in this order."""


class Stepper:
    """A network that continues from the state of a unit.

    Parameters
    ----------
    size
        Numbers of a unit's state: of every recurrent layer, then of the reservoir.
    digest
        Names the network below the head. States belong to it; the head may change without making them invalid.

    Examples
    --------
    >>> from fedprognos.networks import NetworkSpec
    >>> stepper = Stepper(Network.seeded(NetworkSpec(inputs=2, widths=(4,)), seed=0))
    >>> rows = np.ones((1, 3, 2), dtype=np.float32)
    >>> rest = stepper.rest(rows[:, 0])
    >>> whole, _ = stepper.run(rows, rest)
    >>> first, state = stepper.run(rows[:, :1], rest)
    >>> then, _ = stepper.run(rows[:, 1:], state)
    >>> bool(np.allclose(whole, np.concatenate([first, then], axis=1)))
    True
    """

    def __init__(self, network: Network) -> None:
        spec, weights = network.spec, network.weights
        self._network = network
        self._reservoir = reservoir_of(spec.reservoir, spec.inputs) if spec.reservoir else None
        cell = cells[spec.cell]
        if cell.step is not None and cell.onnx is not None:
            sizes = [len(cell.onnx.states) * width for width in spec.widths]
        else:
            sizes = [sum(_size(part) for part in _leaves(state)) for state in self._states]
        self._starts = np.cumsum([0, *sizes]).tolist()
        self.size = self._starts[-1] + spec.reservoir
        self.digest = body_digest(network)
        parts = [weights[f"head.{part}"] for part in HEAD if f"head.{part}" in weights]
        self._slopes, self._bias = np.concatenate(parts, axis=1)[0], float(weights["head.bias"][0])
        self._input = (weights["input.weight"].T, weights["input.bias"]) if spec.input_width is not None else None
        self._direct, self._widths = bool(spec.direct), spec.widths
        layers = [layer for layer in network.anatomy.layers if layer.cell == spec.cell]
        self._steps = None if cell.step is None else [cell.step(*network.layer(layer).values()) for layer in layers]

    @cached_property
    def _module(self) -> HealthNetwork:
        return self._network.module().eval()

    @cached_property
    def _states(self) -> Sequence[object]:
        """States of one unit, as torch puts them together."""
        import torch

        with torch.inference_mode():
            return self._module.body(torch.zeros(1, 1, self._network.spec.inputs))[1]

    def rest(self, first: Rows) -> Rows:
        """States (B, size) of units before their first rows (B, inputs)."""
        states = np.zeros((len(first), self.size), dtype=np.float32)
        if self._reservoir is not None:
            states[:, self._starts[-1] :] = self._reservoir.start(first).T
        return states

    def run(self, rows: Rows, states: Rows) -> tuple[FloatArray, Rows]:
        """Standardised health (B, T) at each of some more rows (B, T, inputs) of units, and their states after them."""
        outputs, _, after = self.read(rows, states)
        return outputs, after

    def read(self, rows: Rows, states: Rows) -> tuple[FloatArray, Rows, Rows]:
        """What :meth:`run` gives, with all that the head sees (B, T, features) in between."""
        after = states.copy()
        if rows.shape[1] <= LONG and self._steps is not None:
            head_inputs = [self._in_numpy(rows, self._steps, after)]
        else:
            head_inputs = [self._in_torch(rows, after)]
        if self._reservoir is not None:
            echo = np.ascontiguousarray(after[:, self._starts[-1] :].T)
            trace = np.empty((*rows.shape[:2], len(echo)), dtype=np.float32)
            for t in range(rows.shape[1]):
                echo = self._reservoir.step(echo, rows[:, t])
                trace[:, t] = echo.T
            after[:, self._starts[-1] :] = echo.T
            head_inputs.append(trace)
        if self._direct:
            head_inputs.append(rows)
        features = np.concatenate(head_inputs, axis=2) if len(head_inputs) > 1 else head_inputs[0]
        return (features @ self._slopes).astype(np.float64) + self._bias, features, after

    def _in_numpy(self, rows: Rows, steps: Sequence[Step], states: Rows) -> Rows:
        """Outputs of the last layer (B, T, L) after each of some rows; the states are changed in place."""
        if self._input is not None:
            rows = np.maximum(rows @ self._input[0] + self._input[1], 0.0)
        outputs: Rows = np.empty((*rows.shape[:2], self._widths[-1] if self._widths else 0), dtype=np.float32)
        layers = list(zip(self._starts, self._starts[1:], self._widths, steps, strict=False))
        for t in range(rows.shape[1]):
            x = rows[:, t]
            for start, stop, width, step in layers:
                states[:, start:stop] = step(x, states[:, start:stop])
                x = states[:, start : start + width]
            if layers:
                outputs[:, t] = x
        return outputs

    def _in_torch(self, rows: Rows, states: Rows) -> Rows:
        """What :meth:`_in_numpy` does, in torch."""
        import torch

        whole, before = torch.from_numpy(states), []
        for state, start in zip(self._states, self._starts, strict=False):
            before.append(_like(state, whole[:, start:]))
        with torch.inference_mode(), one_torch_thread():
            hidden, after = self._module.body(torch.from_numpy(np.ascontiguousarray(rows)), before)
            flat = [part.permute(1, 0, 2).reshape(len(rows), -1) for state in after for part in _leaves(state)]
        if flat:
            states[:, : self._starts[-1]] = torch.cat(flat, dim=1).numpy()
        outputs: Rows = hidden.numpy()
        return outputs


def _leaves(state: object) -> Iterator[Tensor]:
    """Tensors (layers, B, neurons) of a layer's state, whatever they are put together in."""
    from torch import Tensor

    if isinstance(state, Tensor):
        yield state
    else:
        for part in state:  # type: ignore[attr-defined]
            yield from _leaves(part)


def _size(part: Tensor) -> int:
    return part.shape[0] * part.shape[2]


def _like(state: object, numbers: Tensor) -> object:
    """A state built like another one, from the first of some numbers (B, ...)."""
    from torch import Tensor

    parts, at = [], 0
    for part in _leaves(state):
        values = numbers[:, at : at + _size(part)].reshape(len(numbers), part.shape[0], part.shape[2])
        parts.append(values.permute(1, 0, 2).contiguous())
        at += _size(part)
    return parts[0] if isinstance(state, Tensor) else tuple(parts)
