"""All tensors of all clients as one row a client: what rules that compare whole models work on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fedprognos.federation.aggregation import Stacks
from fedprognos.federation.aggregation._stack import Floats


@dataclass(frozen=True, eq=False)
class Whole:
    """Models of J clients side by side.

    Parameters
    ----------
    values, held : (J, P)
        Every client's weights at their places in the federated model, and whether the client has that neuron.
    weights : (J,)
        How much each client counts.
    median, start : (P,)
        The coordinate-wise median of the holders; where the round began, the median where that is not known.
    """

    stacks: Stacks
    values: Floats
    held: Floats
    weights: Floats
    median: Floats
    start: Floats

    @staticmethod
    def of(stacks: Stacks) -> Whole:
        """Lay every tensor out flat."""
        values, held, starts = [], [], []
        for stack in stacks.values():
            dense = np.zeros((len(stack.arrays), *stack.shape))
            mask = np.zeros_like(dense)
            for own, there, array, grid in zip(dense, mask, stack.arrays, stack.grids, strict=True):
                own[np.ix_(*grid)] = array
                there[grid[0]] = 1.0
            values.append(dense.reshape(len(dense), -1))
            held.append(mask.reshape(len(dense), -1))
            starts.append(None if stack.start is None else np.asarray(stack.start, np.float64).reshape(-1))
        flat, masks = np.concatenate(values, axis=1), np.concatenate(held, axis=1)
        known, median = masks.any(axis=0), np.zeros(flat.shape[1])
        median[known] = np.nanmedian(np.where(masks > 0, flat, np.nan)[:, known], axis=0)
        begun = [one for one in starts if one is not None]
        start = np.concatenate(begun) if len(begun) == len(starts) else median
        return Whole(stacks, flat, masks, np.array(next(iter(stacks.values())).weights), median, start)

    def mean(self, values: Floats | None = None, weights: Floats | None = None) -> Floats:
        """Mean (P,) over the holders."""
        w = (self.weights if weights is None else weights)[:, None] * self.held
        total = (w * (self.values if values is None else values)).sum(axis=0)
        return np.asarray(total / np.where(w.sum(axis=0) > 0, w.sum(axis=0), 1.0))

    def distances_to(self, centre: Floats) -> Floats:
        """Distance (J,) of each client to a model (P,), over the neurons it has, as if it had all of them."""
        squared = (np.square(self.values - centre) * self.held).sum(axis=1)
        return np.asarray(np.sqrt(squared * self.held.shape[1] / np.maximum(self.held.sum(axis=1), 1.0)))

    def distances(self) -> Floats:
        """Distances (J, J) between clients, over the neurons that both have, as if these were all."""
        squares = np.square(self.values) @ self.held.T
        common = self.held @ self.held.T
        squared = squares + squares.T - 2 * self.values @ self.values.T
        scaled = np.maximum(squared, 0.0) * self.held.shape[1] / np.maximum(common, 1.0)
        return np.asarray(np.sqrt(np.where(common > 0, scaled, np.median(scaled))))

    def with_weights(self, weights: Floats) -> Stacks:
        """The tensors, every client counting as much as this."""
        given = tuple(float(w) for w in weights)
        return {name: replace(stack, weights=given) for name, stack in self.stacks.items()}

    def drawn_to(self, centre: Floats, factors: Floats) -> Stacks:
        """The tensors, each client's difference to the centre (P,) shortened by its factor."""
        shorter = centre + factors[:, None] * (self.values - centre)
        found, at = {}, 0
        for name, stack in self.stacks.items():
            size = int(np.prod(stack.shape, dtype=np.intp))
            dense = shorter[:, at : at + size].reshape(len(shorter), *stack.shape)
            arrays = tuple(own[np.ix_(*grid)] for own, grid in zip(dense, stack.grids, strict=True))
            found[name] = replace(stack, arrays=arrays)
            at += size
        return found


def whole(rule: Callable[[Whole], Stacks]) -> Callable[[Stacks], Stacks]:
    """A rule on whole models as an aggregator's `prepare`; two clients or fewer are left as they are."""

    def prepare(stacks: Stacks) -> Stacks:
        one = Whole.of(stacks)
        return rule(one) if len(one.values) > 2 else stacks

    return prepare
