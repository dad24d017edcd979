"""A network one row at a time: the state of a unit is all that it remembers of the rows before."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedprognos.networks.module import States
from fedprognos.networks.network import Network
from fedprognos.networks.reservoir import reservoir_of

Rows = NDArray[np.float32]


class Stepper:
    """Steps a network that reads whole lives.

    States are plain vectors: those of the recurrent layers one after another, then the reservoir's, then a one once the
    unit has had its first row.

    Examples
    --------
    >>> from fedprognos.networks import NetworkSpec
    >>> stepper = Stepper(Network.seeded(NetworkSpec(inputs=2, widths=(3,), cell="gru", reservoir=5), 0))
    >>> outputs, states = stepper.step(np.ones((4, 2), np.float32), np.zeros((4, stepper.size), np.float32))
    >>> outputs.shape, states.shape
    ((4,), (4, 9))
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self._module = network.module().eval()
        self._head = network.head
        spec = network.spec
        self._reservoir = reservoir_of(spec.reservoir, spec.inputs) if spec.reservoir else None
        with torch.no_grad():
            _, self._rest = self._module.body(torch.zeros(1, 1, spec.inputs))
        self._sizes = [int(part.shape[-1]) for part in _parts(self._rest)]

    @property
    def size(self) -> int:
        """Numbers in a state."""
        return sum(self._sizes) + self._network.spec.reservoir + 1

    def step(self, rows: Rows, states: Rows) -> tuple[NDArray[np.float64], Rows]:
        """Standardised outputs (B,) after one more row (B, channels) of each unit, and the states (B, size) then."""
        recurrent = sum(self._sizes)
        with torch.inference_mode():
            cuts = np.split(states[:, :recurrent], np.cumsum(self._sizes)[:-1], axis=1)
            before = [torch.from_numpy(np.ascontiguousarray(part))[None] for part in cuts]
            x = torch.from_numpy(np.ascontiguousarray(rows))[:, None]
            hidden, after = self._module.body(x, _shaped(self._rest, iter(before)))
        parts, seen = [hidden[:, 0].numpy()], [part[0].numpy() for part in _parts(after)]
        if self._reservoir is not None:
            echo = states[:, recurrent:-1].T
            fresh = states[:, -1] == 0
            if fresh.any():
                echo = echo.copy()
                echo[:, fresh] = self._reservoir.start(rows[fresh])
            echo = self._reservoir.step(np.ascontiguousarray(echo), rows)
            parts.append(echo.T)
            seen.append(echo.T)
        if self._network.spec.direct:
            parts.append(rows)
        features = np.concatenate(parts, axis=1).astype(np.float64)
        one = np.ones((len(rows), 1), dtype=np.float32)
        return features @ self._head[:-1] + self._head[-1], np.concatenate([*seen, one], axis=1)


def _parts(states: States) -> Iterator[Tensor]:
    """All tensors (1, B, L) of the layers' states, in order."""
    for state in states:
        if isinstance(state, Tensor):
            yield state
        else:
            yield from _parts(list(state))


def _shaped(like: States, tensors: Iterator[Tensor]) -> States:
    """Tensors in the nesting that the layers want."""
    return [next(tensors) if isinstance(s, Tensor) else tuple(_shaped(list(s), tensors)) for s in like]
