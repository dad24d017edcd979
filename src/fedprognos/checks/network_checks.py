"""What every recurrent cell promises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from fedprognos.arrays import FloatArray
from fedprognos.checks.requirement import check_named, require
from fedprognos.networks import Network, NetworkSpec
from fedprognos.networks.cells import INPUTS, NEURONS, Cell, cells

WIDTH, CHANNELS, BATCH, STEPS = 4, 3, 2, 6
TOLERANCE = 1e-5
"""Two orders of the same float32 operations differ by about 1e-7; a wrong gate differs by about 1e-1."""


def check_cell(cell: Cell) -> None:
    """Check what matching, streaming and export rely on in a recurrent cell.

    - Its module has the tensors that `tensors` lists, with the axes that it says.
    - A sequence in two parts, the second from the state after the first, gives the outputs of the whole.
    - Neurons can be put in another order: the network predicts the same, and `signature` has its rows in that order.
    - `step` gives the outputs of the module, and `bounded` outputs stay within [-1, 1].

    Raises
    ------
    CheckError
        The first promise that the cell breaks.

    Examples
    --------
    >>> import fedprognos as fp
    >>> fp.checks.check_cell(fp.registry.cells["gru"])
    """
    where = check_named("cell", cell)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        module = cell.module(CHANNELS, WIDTH).eval()
        tensors = {name: tensor.numpy() for name, tensor in module.named_parameters()}
        rows = torch.randn(BATCH, STEPS, CHANNELS)
        _check_tensors(cell, tensors, where)
        outputs = _check_module(module, rows, where)
        _check_step(cell, tensors, rows, outputs, where)
        if cell.bounded:
            extreme, _ = module(1000 * rows)
            require(
                float(extreme.abs().max()) <= 1 + TOLERANCE,
                f"an output is {float(extreme.abs().max()):g}, but it is `bounded`",
                where=where,
                hint="set bounded=False if outputs can leave [-1, 1]",
            )
    if cell.forget_gate is not None:
        require(0 <= cell.forget_gate < cell.gates, f"has no gate {cell.forget_gate}", where=where)
    with cells.including([cell]):
        _check_order_of_neurons(cell, where)


def _check_tensors(cell: Cell, tensors: Mapping[str, Any], where: str) -> None:
    require(
        set(tensors) == set(cell.tensors),
        f"the module has {sorted(tensors)}, `tensors` lists {sorted(cell.tensors)}",
        where=where,
    )
    lengths = {NEURONS: WIDTH, INPUTS: CHANNELS}
    for name, axes in cell.tensors.items():
        require(axes[0] == NEURONS, f"the first axis of '{name}' does not count neurons", where=where)
        shape = (cell.gates * WIDTH, *(lengths[axis] for axis in axes[1:]))
        require(
            tensors[name].shape == shape,
            f"'{name}' has shape {tensors[name].shape}, not {shape}",
            where=where,
            hint="compare `gates` and `tensors` with the module",
        )


def _check_module(module: torch.nn.Module, rows: torch.Tensor, where: str) -> FloatArray:
    outputs, _ = module(rows)
    require(outputs.shape == (BATCH, STEPS, WIDTH), f"outputs have shape {tuple(outputs.shape)}", where=where)
    first, state = module(rows[:, : STEPS // 2])
    rest, _ = module(rows[:, STEPS // 2 :], state)
    apart = float((torch.cat([first, rest], dim=1) - outputs).abs().max())
    require(
        apart <= TOLERANCE,
        f"a sequence in two parts differs from the whole by {apart:g}",
        where=where,
        hint="take the state as second argument, and return the state after the last step",
    )
    return np.asarray(outputs.numpy(), dtype=np.float64)


def _check_step(cell: Cell, tensors: Mapping[str, Any], rows: torch.Tensor, outputs: FloatArray, where: str) -> None:
    if cell.step is None:
        return
    step = cell.step(*(tensors[name] for name in cell.tensors))
    states = 1 if cell.onnx is None else len(cell.onnx.states)
    state = np.zeros((BATCH, states * WIDTH), dtype=np.float32)
    for k in range(STEPS):
        state = step(rows[:, k].numpy(), state)
        apart = float(np.abs(state[:, :WIDTH] - outputs[:, k]).max())
        require(apart <= TOLERANCE, f"`step` differs from the module by {apart:g} at row {k}", where=where)


def _check_order_of_neurons(cell: Cell, where: str) -> None:
    network = Network.seeded(NetworkSpec(inputs=CHANNELS, widths=(WIDTH, WIDTH), cell=cell.name), 1)
    rng = np.random.default_rng(2)
    order = {group: rng.permutation(width) for group, width in network.widths.items()}
    turned = network.slice(order)
    rows = torch.from_numpy(rng.normal(size=(BATCH, STEPS, CHANNELS)).astype(np.float32))
    with torch.no_grad():
        apart = float((network.module()(rows) - turned.module()(rows)).abs().max())
    require(
        apart <= TOLERANCE,
        f"with its neurons in another order a network predicts {apart:g} more or less",
        where=where,
        hint="check which axes `tensors` says to count neurons",
    )
    # The first layer alone: the columns of the second one follow the order of the first one's neurons.
    plain, permuted = (
        cell.signature(*(weights[f"recurrent.0.{name}"] for name in cell.tensors))
        for weights in (network.weights, turned.weights)
    )
    require(plain.ndim == 2 and len(plain) == WIDTH, f"`signature` has shape {plain.shape}", where=where)
    require(
        np.allclose(plain[order["recurrent.0"]], permuted, atol=TOLERANCE),
        "`signature` does not follow the order of the neurons",
        where=where,
        hint="give one row a neuron, made of that neuron's own weights",
    )
