"""BBP-MAP: partition the neurons of all clients by one assignment problem (Eq. 5) after the other.

The anchor's neurons, or those of the widest client, are the first global ones. Every other client is assigned to
[existing | new] neurons in turn. Then, in seeded sweeps, each client is taken out, solved again and put back.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedprognos.matching.arrays import Booleans, Floats, Indices
from fedprognos.matching.gains import Pricing, Sheet, costs
from fedprognos.matching.hyperparameters import Hyperparameters, estimated
from fedprognos.matching.neurons import GlobalNeurons
from fedprognos.matching.problem import Problem, Side
from fedprognos.matching.result import Absorbing, Diagnostics, Matching
from fedprognos.matching.solvers import Solver

FIRST_OFFER = 8
"""New columns offered first, beyond the expected ones; at least one, or they could not be doubled."""


@dataclass(frozen=True)
class Growth:
    """How far the global model may grow: to ``cap`` neurons in all, by ``quota`` new ones for each client."""

    cap: int
    quota: int

    def room(self, width: int, existing: int) -> int:
        """New neurons a client of this width may open: every one of its neurons has a place in any case."""
        return max(width - existing, min(self.cap - existing, self.quota))


@dataclass(frozen=True)
class Terms:
    """On what terms clients are matched: prices, limits, and how assignment problems are solved."""

    pricing: Pricing
    growth: Growth
    solver: Solver


@dataclass
class State:
    """Where the matching stands: the global neurons, the slots of each client's neurons, the hyper-parameters."""

    neurons: GlobalNeurons
    assignments: list[Indices]
    hyper: Hyperparameters
    sheet: Sheet = field(default_factory=Sheet)

    def settle(self, problem: Problem, estimate: bool) -> None:
        """After a pass over all clients: number the neurons anew, and estimate the hyper-parameters from them."""
        self.neurons.renumber(self.assignments)
        if estimate:
            live = self.neurons.live()
            self.hyper = estimated(self.hyper, problem, self.neurons.seen(live), self.neurons.sums(live))


def assign(side: Side, x: Floats, state: State, terms: Terms, *, expected: int = 0) -> tuple[Indices, float]:
    """Solve Eq. 5 for one client that is not among the global neurons: its slots, and the gain less all s w^2.

    Few new columns are offered first (``expected`` and some more), and twice as many only when all were taken. That
    is exact: their gains differ by constants that fall with k, so one left over makes all the later ones useless.
    """
    neurons, pricing, hyper = state.neurons, terms.pricing, state.hyper.over(side.where)
    live = neurons.live()
    seen, sums, counts = neurons.seen(live, side.dims), neurons.sums(live, side.dims), neurons.counts(live)
    room = terms.growth.room(side.width, len(live))
    offer = min(room, max(side.width - len(live), expected + FIRST_OFFER))
    while True:
        prior = pricing.popularity(counts, offer)
        cost = costs(x, seen, sums, prior, hyper=hyper, cost=pricing.cost, sheet=state.sheet)
        # Row minima of exactly zero: with other row constants rounding can send the row reduction of lapx in circles
        # where many columns differ by constants, as those of new neurons do.
        least = cost.min(axis=1)
        cost -= least[:, None]
        columns = solved(cost, len(live), terms.solver, last=offer == room)
        new = columns >= len(live)
        taken = int(np.count_nonzero(new))
        if offer == room or taken < offer:
            break
        offer = min(room, 2 * offer)
    slots = np.empty(side.width, np.intp)
    slots[~new] = live[columns[~new]]
    slots[new] = neurons.open(taken)
    return slots, -float((least + cost[np.arange(side.width), columns]).sum())


def solved(cost: Floats, existing: int, solver: Solver, *, last: bool) -> Indices:
    """The column of each row, at the lowest total cost.

    An existing neuron that costs every row at least as much as the last new column is of no use as long as a new column
    is left over: whoever sits there could move. Private neurons of other clients are mostly such, and without them
    the assignment problem is several times smaller. If all new columns are taken the argument fails: the caller then
    offers more, or if there are no more, the whole problem is solved.
    """
    width, columns = cost.shape
    if width < existing < columns:
        useful: Booleans = np.any(cost < cost[:, -1:], axis=0)
        useful[existing:] = True
        kept = np.flatnonzero(useful)
        if width <= len(kept) < 0.75 * columns:
            found = kept[solver(cost[:, kept])]
            if not last or np.count_nonzero(found >= existing) < columns - existing:
                return found
    return solver(cost)


def bbp_map(
    problem: Problem, hyper: Hyperparameters, terms: Terms, *, estimate: bool, sweeps: int, seed: int
) -> Matching:
    """Initialise, sweep until nothing moves, and say how it went."""
    state = State(GlobalNeurons(problem), [], hyper)
    gains = [initialise(problem, state, terms)]
    state.settle(problem, estimate)
    order = np.random.default_rng(seed)
    converged = len(problem.clients) == 1 and problem.anchor is None
    while len(gains) <= sweeps and not converged:
        gain, converged = sweep(problem, state, terms, order)
        state.settle(problem, estimate)
        gains.append(gain)
    return described(problem, state, terms, tuple(gains), converged)


def initialise(problem: Problem, state: State, terms: Terms) -> float:
    """Bring in the clients one by one; returns the total gain. A first client without an anchor is only copied."""
    total, expected = 0.0, 0
    for side in problem.clients:
        x = side.centred(problem.centre)
        if problem.anchor is None and not state.assignments:
            slots = state.neurons.open(side.width)
        else:
            slots, gain = assign(side, x, state, terms, expected=expected)
            expected = int(np.count_nonzero(state.neurons.counts(slots) == 0))
            total += gain + common_gain(side.squares(problem.dimensions), state.hyper)
        state.neurons.put(side, slots, x)
        state.assignments.append(slots)
    return total


def common_gain(squares: Floats, hyper: Hyperparameters) -> float:
    """The sum of s w^2, the same wherever the neurons go and so no part of the assignment problems."""
    return float((squares / hyper.sigma).sum())


def sweep(problem: Problem, state: State, terms: Terms, order: np.random.Generator) -> tuple[float, bool]:
    """Solve every client again, in random order; returns the total gain, and whether all stayed where they were."""
    neurons, total, unchanged = state.neurons, common_gain(problem.raw_squares, state.hyper), True
    for j in order.permutation(len(problem.clients)):
        side, before = problem.clients[j], state.assignments[j]
        x = side.centred(problem.centre)
        alone = neurons.take(side, before, x)
        after, gain = assign(side, x, state, terms, expected=int(np.count_nonzero(alone)))
        opened = neurons.counts(after) == 0
        neurons.put(side, after, x)
        # A neuron that was alone and is alone again has not moved, even if it sits in another slot.
        unchanged &= bool(np.array_equal(opened, alone) and np.array_equal(after[~alone], before[~alone]))
        state.assignments[j] = after
        total += gain
    return total, unchanged


def described(problem: Problem, state: State, terms: Terms, gains: tuple[float, ...], converged: bool) -> Matching:
    """The result: maximum a posteriori means and diagnostics added."""
    neurons, hyper = state.neurons, state.hyper
    live = neurons.live()
    counts, seen = neurons.counts(live), neurons.seen(live)
    s, p = 1 / hyper.sigma, 1 / hyper.sigma0
    assignments = {side.name: slots for side, slots in zip(problem.clients, state.assignments, strict=True)}
    diagnostics = Diagnostics(
        gains=gains,
        sweeps=len(gains) - 1,
        converged=converged,
        absorbing=absorbing_state(problem, len(live)),
        singletons={name: int(np.count_nonzero(counts[slots] == 1)) for name, slots in assignments.items()},
        mu0=problem.centre + hyper.mu0,
        sigma=float(hyper.sigma[0]) if hyper.isotropic else hyper.sigma,
        sigma0=float(hyper.sigma0[0]) if hyper.isotropic else hyper.sigma0,
        cap=terms.growth.cap,
    )
    return Matching(
        assignments=assignments,
        size=len(live),
        counts=counts,
        means=problem.centre + (hyper.mu0 * p + neurons.sums(live) * s) / (p + seen * s),
        gain=gains[-1],
        diagnostics=diagnostics,
    )


def absorbing_state(problem: Problem, size: int) -> Absorbing:
    """Whether as few or as many global neurons are left as there can be; neither for a client on its own."""
    if len(problem.clients) == 1 and not problem.anchored:
        return "neither"
    if size == problem.anchored + sum(side.width for side in problem.clients):
        return "all kept"
    return "all merged" if size == problem.widest else "neither"
