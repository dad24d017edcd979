"""What a network puts out over histories: what its head sees at each point, its predictions, sums of its outputs.

Each window is run by itself. A whole life is run once, however many of its rows are points. It is run in chunks, and
the state is carried from one to the next, so that a long life needs no more memory than a short one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fedprognos.arrays import FloatArray, IntArray, Rows
from fedprognos.features import Recipe, WindowSet
from fedprognos.matching import OutputSums
from fedprognos.networks.module import HealthNetwork, States
from fedprognos.networks.network import Network
from fedprognos.networks.reservoir_body import reservoir_of

BATCH = 1024
"""Windows run at once."""
ROWS_AT_ONCE = 65_536
"""Rows of whole lives run at once, all units of a batch together."""
CHUNK = 2048
"""Rows of a life that are run before the state is carried on."""
MOST_UNITS = 64
"""Units of a batch, at most."""
MEMORY_LIMIT_IN_BYTES = 1 << 30
"""Outputs of frozen layers that need more than this go to a temporary file."""
CACHED_AT_ONCE = 512
"""Windows that the frozen layers are run on at once."""

Inputs = Callable[[IntArray], Tensor]
"""From window numbers to what a layer is fed."""
OutputCheck = Callable[[int, FloatArray], None]
"""Called with the number of a layer and some of its outputs (n, N)."""


@dataclass(frozen=True, eq=False)
class Piece:
    """Some points and what the head sees of them.

    Parameters
    ----------
    index : (n,)
        Which points of the set.
    hidden : (n, L)
        Outputs of the last recurrent layer.
    beside : (n, reservoir + direct x channels)
        States of the reservoir and rows of the history.
    """

    index: IntArray
    hidden: Tensor
    beside: Rows

    def features(self) -> FloatArray:
        """All that the head sees: (n, features)."""
        return np.concatenate([self.hidden.cpu().numpy(), self.beside], axis=1).astype(np.float64)


def predict(network: Network, points: WindowSet, recipe: Recipe) -> FloatArray:
    """Health at every point in the label's own measure, clipped to what is possible."""
    module = network.module().eval()
    with module.in_blocks():
        return recipe.decode(outputs(module, points))


def outputs(module: HealthNetwork, points: WindowSet) -> FloatArray:
    """Standardised health at every point: (N,)."""
    predicted = np.empty(len(points))
    with torch.no_grad():
        for piece in pieces(module, points):
            predicted[piece.index] = _head_outputs(module, piece.hidden, piece.beside)
    return predicted


def window_outputs(module: HealthNetwork, windows: Rows) -> tuple[FloatArray, Rows]:
    """Standardised health (B,) of windows (B, T, inputs), and all that the head sees of them (B, features)."""
    with torch.inference_mode():
        hidden, beside = _seen_by_head(module, torch.from_numpy(np.ascontiguousarray(windows)))
        features = np.concatenate([hidden.numpy(), beside], axis=1) if beside.shape[1] else hidden.numpy()
        return _head_outputs(module, hidden, beside), features


def _head_outputs(module: HealthNetwork, hidden: Tensor, beside: Rows) -> FloatArray:
    head, predicted = module.head, module.head(hidden).squeeze(-1).cpu().numpy().astype(np.float64)
    if beside.shape[1]:
        slopes: list[Tensor] = [
            head.get_parameter(n) for n in ("reservoir", "direct") if getattr(head, n, None) is not None
        ]
        predicted += beside @ torch.cat(slopes, dim=1)[0].cpu().numpy()
    return np.asarray(predicted)


def pieces(module: HealthNetwork, points: WindowSet) -> Iterator[Piece]:
    """The points, some at a time, with what the head sees of each."""
    with torch.no_grad():
        yield from _windows(module, points) if points.lives is None else _lives(module, points)


def _windows(module: HealthNetwork, points: WindowSet) -> Iterator[Piece]:
    raw = raw_inputs(points, next(module.parameters()).device)
    for start in range(0, len(points), BATCH):
        index = np.arange(start, min(start + BATCH, len(points)))
        yield Piece(index, *_seen_by_head(module, raw(index)))


def _seen_by_head(module: HealthNetwork, x: Tensor) -> tuple[Tensor, Rows]:
    """What the head sees of windows (B, T, inputs): outputs of the last layer, and what is beside them."""
    spec = module.spec
    hidden = module.run(x, 0, spec.layers - 1) if spec.widths else x[:, -1, :0]
    parts = [np.empty((len(x), 0), dtype=np.float32)]
    if spec.reservoir or spec.direct:
        rows = x.cpu().numpy()
    if spec.reservoir:
        body = reservoir_of(spec.reservoir, spec.inputs)
        states = body.start(rows[:, 0])
        for t in range(rows.shape[1]):
            states = body.step(states, rows[:, t])
        parts.append(states.T)
    if spec.direct:
        at = np.linspace(0, rows.shape[1] - 1, spec.direct).round().astype(int) if spec.direct > 1 else [-1]
        parts.append(rows[:, at].reshape(len(x), -1))
    return hidden, np.concatenate(parts, axis=1)


def _lives(module: HealthNetwork, points: WindowSet) -> Iterator[Piece]:
    order = np.argsort(points.starts, kind="stable")
    point_rows = points.starts[order]
    for first, lengths in unit_batches(points):
        for row, x, hidden, reservoir in _run_units(module, points, first, lengths):
            low, high = np.searchsorted(point_rows, (row, row + len(x)))
            if low == high:
                continue
            at = point_rows[low:high] - row
            beside = [np.empty((len(at), 0), dtype=np.float32)]
            if reservoir is not None:
                beside.append(reservoir[at])
            if module.spec.direct:
                beside.append(x[at])
            yield Piece(order[low:high], hidden[torch.from_numpy(at)], np.concatenate(beside, axis=1))


def unit_batches(points: WindowSet) -> Iterator[tuple[IntArray, IntArray]]:
    """Batches of units of similar length, longest first: the first row of each, and its rows up to its last point."""
    lives = points.lives if points.lives is not None else np.zeros(1, dtype=np.int64)
    needed = np.zeros(len(lives) - 1, dtype=np.int64)
    np.maximum.at(needed, points.unit, points.starts - lives[points.unit] + 1)
    units = np.flatnonzero(needed)
    units = units[np.argsort(-needed[units], kind="stable")]
    start = 0
    while start < len(units):
        count = max(1, min(MOST_UNITS, ROWS_AT_ONCE // max(int(min(needed[units[start]], CHUNK)), 1)))
        batch = units[start : start + count]
        yield lives[batch], needed[batch]
        start += count


def _run_units(
    module: HealthNetwork, points: WindowSet, first: IntArray, lengths: IntArray
) -> Iterator[tuple[int, Rows, Tensor, Rows | None]]:
    """Run some units side by side, a chunk of rows at a time; the longest unit comes first.

    Yields, for each unit and chunk, the number of its first row, its inputs (T, inputs), the last layer's outputs
    (T, L), and the states (T, units) of the reservoir, where there is one.
    """
    spec = module.spec
    device = next(module.parameters()).device
    body = reservoir_of(spec.reservoir, spec.inputs) if spec.reservoir else None
    body_states = None if body is None else body.start(points.features[first])
    states: States | None = None
    for begin in range(0, int(lengths[0]), CHUNK):
        units = int(np.count_nonzero(lengths > begin))  # the others, which are the last ones, have no more rows
        if states is not None:
            states = [_first_units(state, units) for state in states]
        rows = np.minimum(lengths[:units] - begin, CHUNK)
        x = np.zeros((units, int(rows[0]), spec.inputs), dtype=np.float32)
        for k in range(units):
            at = first[k] + begin
            x[k, : rows[k]] = points.features[at : at + rows[k]]
        hidden, states = module.body(torch.from_numpy(x).to(device), states)
        reservoir = None
        if body is not None and body_states is not None:
            reservoir = np.empty((units, x.shape[1], body.units), dtype=np.float32)
            body_states = np.ascontiguousarray(body_states[:, :units])
            for t in range(x.shape[1]):
                running = int(np.count_nonzero(rows > t))
                body_states[:, :running] = body.step(body_states[:, :running], x[:running, t])
                reservoir[:running, t] = body_states[:, :running].T
        for k, count in enumerate(rows.tolist()):
            trace = None if reservoir is None else reservoir[k, :count]
            yield int(first[k]) + begin, x[k, :count], hidden[k, :count], trace


def _first_units(state: object, count: int) -> object:
    """The states of the first units: (layers, B, L) tensors, pairs of them for an LSTM, lists for blocks."""
    if isinstance(state, Tensor):
        return state[:, :count].contiguous()
    if isinstance(state, tuple):
        return tuple(_first_units(part, count) for part in state)
    return [_first_units(part, count) for part in state]  # type: ignore[attr-defined]


def output_sums(network: Network, points: WindowSet, check: OutputCheck | None = None) -> tuple[OutputSums, ...]:
    """Sums of the outputs of every layer below the head, over all time steps of all histories.

    Parameters
    ----------
    check
        Called with the outputs that are about to be added, part by part.
    """
    module = network.module().eval()
    layers = [network.widths[str(layer.group)] for layer in network.anatomy.layers[:-1]]
    sums = [OutputSums(0, 0, np.zeros(width), np.zeros((width, width))) for width in layers]
    with torch.no_grad(), module.in_blocks():
        if points.lives is None:
            raw = raw_inputs(points, torch.device("cpu"))
            for start in range(0, len(points), BATCH):
                index = np.arange(start, min(start + BATCH, len(points)))
                _add(module, raw(index), [points.length] * len(index), sums, check)
        else:
            for first, lengths in unit_batches(points):
                x = np.zeros((len(first), int(lengths.max()), points.channels), dtype=np.float32)
                for k, (begin, length) in enumerate(zip(first, lengths, strict=True)):
                    x[k, :length] = points.features[begin : begin + length]
                _add(module, torch.from_numpy(x), lengths.tolist(), sums, check)
    return tuple(sums)


def _add(
    module: HealthNetwork, x: Tensor, lengths: list[int], sums: list[OutputSums], check: OutputCheck | None
) -> None:
    """Add the outputs over sequences (B, T, inputs), of each the first `lengths` steps."""
    for layer, stage in enumerate(module.stages()[:-1]):
        x = torch.relu(stage(x)) if isinstance(stage, nn.Linear) else stage(x)[0]
        rows = torch.cat([x[k, :length] for k, length in enumerate(lengths)]).cpu().numpy().astype(np.float64)
        if check is not None:
            check(layer, rows)
        sums[layer] = sums[layer].add(OutputSums(len(rows), len(lengths), rows.sum(axis=0), rows.T @ rows))


def cached_inputs(
    network: HealthNetwork,
    windows: WindowSet,
    frozen: int,
    device: torch.device,
    limit_in_bytes: int = MEMORY_LIMIT_IN_BYTES,
) -> Inputs:
    """A function from window numbers to the inputs of the first layer that still learns.

    If no layer is frozen, these are the raw windows, gathered from the shared rows. Otherwise they are the outputs of
    the last frozen layer, taken from a cache.
    """
    raw = raw_inputs(windows, device)
    if frozen == 0:
        return raw
    with torch.no_grad():
        shape = network.run(raw(np.zeros(1, dtype=np.int64)), 0, frozen).shape[1:]
        cache = _allocate((len(windows), *shape), limit_in_bytes)
        for start in range(0, len(windows), CACHED_AT_ONCE):
            index = np.arange(start, min(start + CACHED_AT_ONCE, len(windows)))
            cache[index] = network.run(raw(index), 0, frozen).cpu().numpy()

    def from_cache(index: IntArray) -> Tensor:
        return torch.from_numpy(np.asarray(cache[index])).to(device)

    return from_cache


def raw_inputs(windows: WindowSet, device: torch.device) -> Inputs:
    """A function from window numbers to windows, gathered from the shared rows."""
    features = torch.from_numpy(windows.features).to(device)
    starts = torch.from_numpy(windows.starts).to(device)

    def gather(index: IntArray) -> Tensor:
        from_every_row = features.unfold(0, windows.length, 1).transpose(1, 2)  # a view; whole windows copy faster
        return from_every_row[starts[torch.from_numpy(index).to(device)]]

    return gather


def _allocate(shape: tuple[int, ...], limit_in_bytes: int) -> Rows:
    if 4 * int(np.prod(shape)) <= limit_in_bytes:
        return np.empty(shape, dtype=np.float32)
    # Unlinked at once: the file lives as long as the mapping does and cannot be left behind.
    with tempfile.TemporaryFile(prefix="fedprognos-") as file:
        return np.memmap(file, dtype=np.float32, mode="w+", shape=shape)
