"""The network as a torch module: optional input layer, recurrent layers, a linear regressor on the last hidden state.

Every recurrent layer is a single-layer module of its own, because layers may come to differ in
width when federated layers grow. Tensor names and shapes are those of the paper's table of parameters
(`recurrent.k.weight_ih_l0` is its lstm.weight.input-hidden of layer k).

Where clients' networks stand side by side the recurrent matrix is block-diagonal, and most of a dense product would be
with zeros. Such a layer is run as blocks. These are found from the weights, so the output is the same to rounding.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from fedprognos.networks.cells import cells
from fedprognos.networks.spec import NetworkSpec

States: TypeAlias = list[Any]
"""The state of each recurrent layer."""


class Dropout:
    """Leaves out a share of a layer's outputs, from a random stream of its own."""

    def __init__(self, share: float, seed: int) -> None:
        self.share = share
        self._stream = torch.Generator().manual_seed(seed % 2**63)

    def __call__(self, x: Tensor) -> Tensor:
        if self.share == 0:
            return x
        kept = torch.rand(x.shape, generator=self._stream).to(x.device) >= self.share
        return x * kept / (1 - self.share)


class Head(nn.Linear):
    """A linear regressor on the last layer. Slopes of what it sees beside that layer are solved for, not trained."""

    def __init__(self, spec: NetworkSpec) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a head that sees a reservoir alone has no weights to draw
            super().__init__(spec.hidden, 1)
        for name, size in (("reservoir", spec.reservoir), ("direct", spec.direct * spec.inputs)):
            if size:
                self.register_parameter(name, nn.Parameter(torch.zeros(1, size), requires_grad=False))


class HealthNetwork(nn.Module):
    """Windows (B, T, inputs) to standardised health (B,).

    Examples
    --------
    >>> HealthNetwork(NetworkSpec(inputs=2, widths=(128,)))(torch.zeros(5, 171, 2)).shape
    torch.Size([5])
    """

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.spec = spec
        self.dropout: Dropout | None = None
        self._blocks: dict[int, Blocks] = {}
        width = spec.inputs
        if spec.input_width is not None:
            self.input = nn.Linear(width, spec.input_width)
            width = spec.input_width
        self.recurrent = nn.ModuleList()
        for layer_width in spec.widths:
            self.recurrent.append(cells[spec.cell].module(width, layer_width))
            width = layer_width
        self.head = Head(spec)

    def stages(self) -> list[nn.Module]:
        """Layers in the paper's order: input layer (if any), recurrent layers, regressor."""
        first = [self.input] if self.spec.input_width is not None else []
        return [*first, *self.recurrent, self.head]

    def run(self, x: Tensor, start: int = 0, stop: int | None = None) -> Tensor:
        """Pass the outputs of layer `start - 1` through layers start:stop.

        What comes out is a sequence (B, T, L) when the next layer is recurrent, the last hidden
        state (B, L) when it is the regressor, and (B,) after the regressor.
        """
        stages = self.stages()
        stop = len(stages) if stop is None else stop
        for q in range(start, stop):
            stage = stages[q]
            if stage is self.head:
                x = stage(x).squeeze(-1)
            elif isinstance(stage, nn.Linear):
                x = torch.relu(stage(x))
            else:
                x = self._blocks.get(q, stage)(x)[0]
                if q + 1 == len(stages) - 1:
                    x = x[:, -1]
                if self.training and self.dropout is not None:
                    x = self.dropout(x)
        return x

    def body(self, x: Tensor, states: States | None = None) -> tuple[Tensor, States]:
        """Outputs of the last layer below the head at every step (B, T, L), and the states after the last step.

        Parameters
        ----------
        states
            Those after the step before the first; at rest by default.
        """
        after: States = []
        for q, stage in enumerate(self.stages()[:-1]):
            if isinstance(stage, nn.Linear):
                x = torch.relu(stage(x))
                continue
            layer = self._blocks.get(q, stage)
            x, state = layer(x) if states is None else layer(x, states[len(after)])
            after.append(state)
            if self.training and self.dropout is not None:
                x = self.dropout(x)
        return x if after else x[..., :0], after

    @contextmanager
    def in_blocks(self) -> Iterator[None]:
        """Run layers that fall apart into blocks as blocks, while the weights do not change."""
        with torch.random.fork_rng(devices=[]):  # making a block draws weights that are then replaced
            by_stage = {q: blocks_of(s) for q, s in enumerate(self.stages()) if isinstance(s, nn.LSTM | nn.GRU)}
        self._blocks = {q: blocks for q, blocks in by_stage.items() if blocks is not None}
        try:
            yield
        finally:
            self._blocks = {}

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x)

    def freeze(self, layers: int) -> None:
        """Keep the first `layers` layers out of training."""
        for q, stage in enumerate(self.stages()):
            for name, parameter in stage.named_parameters():
                parameter.requires_grad_(q >= layers and name not in ("reservoir", "direct"))


@dataclass(frozen=True, eq=False)
class Blocks:
    """A recurrent layer as several smaller ones that read the same inputs.

    Parameters
    ----------
    parts
        One layer a block.
    order : (H,)
        Position of each neuron of the whole layer in the blocks' concatenated outputs.
    """

    parts: tuple[nn.Module, ...]
    order: Tensor

    def __call__(self, x: Tensor, states: list[Any] | None = None) -> tuple[Tensor, list[Any]]:
        each = [part(x) if states is None else part(x, states[k]) for k, part in enumerate(self.parts)]
        return torch.cat([h for h, _ in each], dim=-1)[..., self.order], [state for _, state in each]


def blocks_of(layer: nn.LSTM | nn.GRU) -> Blocks | None:
    """The blocks of a layer; None if it does not fall apart.

    Examples
    --------
    >>> layer = nn.LSTM(2, 4, batch_first=True)
    >>> blocks_of(layer) is None
    True
    >>> with torch.no_grad():
    ...     layer.weight_hh_l0.view(4, 4, 4)[:, :2, 2:] = 0
    ...     layer.weight_hh_l0.view(4, 4, 4)[:, 2:, :2] = 0
    >>> [part.hidden_size for part in blocks_of(layer).parts]
    [2, 2]
    """
    width, recurrent = layer.hidden_size, layer.get_parameter("weight_hh_l0").detach()
    gates = len(recurrent) // width
    joined = (recurrent.cpu().numpy().reshape(gates, width, width) != 0).any(axis=0)
    if joined.all():
        return None
    from scipy.sparse import csr_array  # loaded late: most networks are one block
    from scipy.sparse.csgraph import connected_components

    count, member = connected_components(csr_array(joined), directed=False)
    if count == 1:
        return None
    parts, groups = [], []
    for block in range(count):
        neurons = np.flatnonzero(member == block)
        groups.append(neurons)
        parts.append(_part(layer, torch.from_numpy(neurons), gates))
    order = np.argsort(np.concatenate(groups))
    return Blocks(tuple(parts), torch.from_numpy(order).to(recurrent.device))


def _part(layer: nn.LSTM | nn.GRU, neurons: Tensor, gates: int) -> nn.Module:
    rows = (torch.arange(gates)[:, None] * layer.hidden_size + neurons).reshape(-1)
    part = type(layer)(layer.input_size, len(neurons), batch_first=True)
    with torch.no_grad():
        for name, tensor in part.named_parameters():
            whole = layer.get_parameter(name)[rows]
            tensor.copy_(whole[:, neurons] if name == "weight_hh_l0" else whole)
    return part.to(layer.get_parameter("weight_hh_l0").device).eval()
