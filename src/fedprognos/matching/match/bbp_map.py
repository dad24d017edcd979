"""BBP-MAP: partition the neurons of all clients by one assignment problem (Eq. 5) after the other.

1. The neurons of the anchor, or of the widest client, are the first global ones.
2. Every other client is assigned to [existing | new] neurons in turn.
3. In seeded sweeps each client is taken out, solved again and put back, until a whole sweep moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TypeAlias

import numpy as np

from fedprognos.errors import MissingExtraError, unknown_name
from fedprognos.matching.arguments import Booleans, Floats, Indices
from fedprognos.matching.match.fast import Buffer, costs, popularity
from fedprognos.matching.match.hyperparameters import Hyperparameters, estimated, start
from fedprognos.matching.match.problem import ClientNeurons, Growth, MatchOptions, MatchProblem
from fedprognos.matching.match.result import Absorbing, Diagnostics, Matching

Solver: TypeAlias = Callable[[Floats], Indices]
"""Linear sum assignment: from costs, one column for every row at the lowest total."""
FIRST_OFFER = 8
"""New columns offered first, beyond the expected ones; at least one, or they could not be doubled."""


@dataclass
class MatchState:
    """What is matched, how, and where it stands: ``assignments`` are the slots of each client's neurons."""

    problem: MatchProblem
    options: MatchOptions
    growth: Growth
    solve: Solver
    hyper: Hyperparameters
    neurons: GlobalNeurons
    assignments: list[Indices] = field(default_factory=list)
    buffer: Buffer = field(default_factory=Buffer)


def empty_state(problem: MatchProblem, options: MatchOptions, growth: Growth) -> MatchState:
    """Nobody is matched yet."""
    hyper = start(problem, options.sigma, options.sigma0, options.estimates)
    return MatchState(problem, options, growth, solver_named(options.solver), hyper, GlobalNeurons(problem))


def bbp_map(problem: MatchProblem, options: MatchOptions, growth: Growth) -> Matching:
    """Initialise, sweep until nothing moves, and describe the result."""
    state = empty_state(problem, options, growth)
    gains = [initialise(state)]
    renumber_and_estimate(state)
    order = np.random.default_rng(options.seed)
    converged = len(problem.clients) == 1 and problem.anchor is None
    while len(gains) <= options.sweeps and not converged:
        gain, converged = sweep(state, order)
        renumber_and_estimate(state)
        gains.append(gain)
    return described(state, tuple(gains), converged)


def initialise(state: MatchState) -> float:
    """Add the clients one by one; returns the total gain. A first client without an anchor is only copied."""
    problem, total, expected = state.problem, 0.0, 0
    for client in problem.clients:
        x = client.centred(problem.centre)
        if problem.anchor is None and not state.assignments:
            slots = state.neurons.open(client.width)
        else:
            slots, gain = assign(state, client, x, expected=expected)
            expected = int(np.count_nonzero(state.neurons.counts[slots] == 0))
            total += gain + common_gain(client.squares(problem.dimensions), state.hyper)
        state.neurons.put(client, slots, x)
        state.assignments.append(slots)
    return total


def sweep(state: MatchState, order: np.random.Generator) -> tuple[float, bool]:
    """Solve every client again, in random order; returns the total gain, and whether all stayed where they were."""
    problem, neurons = state.problem, state.neurons
    total, unchanged = common_gain(problem.raw_squares, state.hyper), True
    for j in order.permutation(len(problem.clients)):
        client, before = problem.clients[j], state.assignments[j]
        x = client.centred(problem.centre)
        alone = neurons.take(client, before, x)
        after, gain = assign(state, client, x, expected=int(np.count_nonzero(alone)))
        opened = neurons.counts[after] == 0
        neurons.put(client, after, x)
        # A neuron that was alone and is alone again has not moved, even if it sits in another slot.
        unchanged &= bool(np.array_equal(opened, alone) and np.array_equal(after[~alone], before[~alone]))
        state.assignments[j] = after
        total += gain
    return total, unchanged


def renumber_and_estimate(state: MatchState) -> None:
    """After a pass over all clients: number the neurons anew, and estimate the hyper-parameters from them."""
    neurons = state.neurons
    neurons.renumber(state.assignments)
    if state.options.estimates:
        live = neurons.live()
        state.hyper = estimated(state.hyper, state.problem, neurons.seen[live], neurons.sums[live])


def common_gain(squares: Floats, hyper: Hyperparameters) -> float:
    """The sum of s w^2, the same wherever the neurons go and so no part of the assignment problems."""
    return float((squares / hyper.sigma).sum())


def assign(state: MatchState, client: ClientNeurons, x: Floats, *, expected: int = 0) -> tuple[Indices, float]:
    """Solve Eq. 5 for one client that is not among the global neurons: its slots, and the gain less all s w^2.

    Few new columns are offered first (``expected`` and some more), and twice as many only when all were taken. That
    is exact: their gains differ by constants that fall with k, so one left over makes all the later ones useless.
    """
    neurons, options, hyper = state.neurons, state.options, state.hyper.over(client.where)
    live = neurons.live()
    at, population = client.index(live), state.problem.population
    room = state.growth.room(client.width, len(live))
    offer = min(room, max(client.width - len(live), expected + FIRST_OFFER))
    while True:
        prior = popularity(neurons.counts[live], offer, population=population, gamma=options.gamma, cost=options.cost)
        cost = costs(x, neurons.seen[at], neurons.sums[at], prior, hyper=hyper, cost=options.cost, buffer=state.buffer)
        # Row minima of exactly zero: with other row constants rounding can send the row reduction of lapx in circles
        # where many columns differ by constants, as those of new neurons do.
        least = cost.min(axis=1)
        cost -= least[:, None]
        columns = solved(cost, len(live), state.solve, last=offer == room)
        new = columns >= len(live)
        taken = int(np.count_nonzero(new))
        if offer == room or taken < offer:
            break
        offer = min(room, 2 * offer)
    slots = np.empty(client.width, np.intp)
    slots[~new] = live[columns[~new]]
    slots[new] = neurons.open(taken)
    return slots, -float((least + cost[np.arange(client.width), columns]).sum())


def solved(cost: Floats, existing: int, solve: Solver, *, last: bool) -> Indices:
    """The column of each row, at the lowest total cost.

    An existing neuron that costs every row at least as much as the last new column is useless while a new column is
    free: a row assigned to it could move there. Most private neurons of other clients are of this kind, and without
    them the assignment problem is several times smaller. If all new columns are taken the argument fails. The caller
    then offers more; if there are no more, the whole problem is solved.
    """
    width, columns = cost.shape
    if width < existing < columns:
        useful: Booleans = np.any(cost < cost[:, -1:], axis=0)
        useful[existing:] = True
        kept = np.flatnonzero(useful)
        if width <= len(kept) < 0.75 * columns:
            columns_of_rows = kept[solve(cost[:, kept])]
            if not last or np.count_nonzero(columns_of_rows >= existing) < columns - existing:
                return columns_of_rows
    return solve(cost)


def solve_with_scipy(cost: Floats) -> Indices:
    """SciPy's shortest augmenting paths."""
    from scipy.optimize import linear_sum_assignment  # loading it takes half a second, and prediction never needs it

    return np.asarray(linear_sum_assignment(cost)[1], np.intp)


def solve_with_lapx(cost: Floats) -> Indices:
    """Jonker-Volgenant from lapx: the same total, several times faster for wide layers."""
    from lap import lapjvr

    return np.asarray(lapjvr(cost, extend_cost=True, return_cost=False)[1], np.intp)


SOLVERS: dict[str, Solver] = {"scipy": solve_with_scipy, "lapx": solve_with_lapx}


def solver_named(name: str) -> Solver:
    """The solver of that name; raises where its package is not installed.

    Examples
    --------
    >>> solver_named("scipy")(np.array([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0]])).tolist()
    [1, 0]
    """
    if name not in SOLVERS:
        raise unknown_name("solver", name, SOLVERS)
    if name == "lapx" and find_spec("lap") is None:
        raise MissingExtraError("lapx", "fast", "solver='lapx'")
    return SOLVERS[name]


def described(state: MatchState, gains: tuple[float, ...], converged: bool) -> Matching:
    """The result: maximum a posteriori means and diagnostics added."""
    problem, neurons, hyper = state.problem, state.neurons, state.hyper
    live = neurons.live()
    counts, s, p = neurons.counts[live], 1 / hyper.sigma, 1 / hyper.sigma0
    assignments = {client.name: slots for client, slots in zip(problem.clients, state.assignments, strict=True)}
    diagnostics = Diagnostics(
        gains=gains,
        sweeps=len(gains) - 1,
        converged=converged,
        absorbing=absorbing_state(problem, len(live)),
        singletons={name: int(np.count_nonzero(counts[slots] == 1)) for name, slots in assignments.items()},
        mu0=problem.centre + hyper.mu0,
        sigma=float(hyper.sigma[0]) if hyper.isotropic else hyper.sigma,
        sigma0=float(hyper.sigma0[0]) if hyper.isotropic else hyper.sigma0,
        cap=state.growth.cap,
    )
    means = problem.centre + (hyper.mu0 * p + neurons.sums[live] * s) / (p + neurons.seen[live] * s)
    return Matching(assignments, len(live), counts, means, gains[-1], diagnostics)


def absorbing_state(problem: MatchProblem, size: int) -> Absorbing:
    """Whether as few or as many global neurons are left as there can be; neither for a client on its own."""
    if len(problem.clients) == 1 and not problem.anchored:
        return "neither"
    if size == problem.everything:
        return "all kept"
    return "all merged" if size == problem.widest else "neither"


class GlobalNeurons:
    """Slots with a count and a sum; a slot whose count is zero is free and is given out again.

    ``counts`` is ``(slots,)``, ``sums`` ``(slots, D)``. ``seen`` holds the counts once more as floats: ``(slots, 1)``,
    or ``(slots, D)`` where clients lack dimensions. Slots never move during a sweep, so taking a client out touches
    its own slots only. After each sweep :meth:`renumber` closes the gaps and adds everything up afresh, which also
    removes the rounding that many additions and subtractions leave behind.
    """

    def __init__(self, problem: MatchProblem) -> None:
        self._problem = problem
        self._rebuild([], 0)

    def _rebuild(self, assignments: list[Indices], size: int) -> None:
        """Start over from the anchor and add the clients up."""
        problem = self._problem
        size = max(size, problem.anchored)
        self.counts = np.zeros(size, np.intp)
        self.sums = np.zeros((size, problem.dimensions))
        self.seen = np.zeros((size, problem.dimensions if problem.masked else 1))
        if problem.anchor is not None and problem.anchor.counts is not None:
            counts = problem.anchor.counts
            at = problem.anchor.index(np.arange(len(counts)))
            self.counts[: len(counts)] = counts
            self.sums[at] = counts[:, None] * problem.anchor.centred(problem.centre)
            self.seen[at] = counts[:, None]
        for client, slots in zip(problem.clients, assignments, strict=False):
            self.put(client, slots, client.centred(problem.centre))

    def put(self, client: ClientNeurons, slots: Indices, x: Floats) -> None:
        """Assign a client's neurons ``x`` to slots, no two to the same."""
        at = client.index(slots)
        self.counts[slots] += 1
        self.sums[at] += x
        self.seen[at] += 1

    def take(self, client: ClientNeurons, slots: Indices, x: Floats) -> Booleans:
        """Undo :meth:`put`; returns ``(L_j,)`` which of the slots are free now."""
        at = client.index(slots)
        self.counts[slots] -= 1
        self.sums[at] -= x
        self.seen[at] -= 1
        free: Booleans = self.counts[slots] == 0
        self.sums[slots[free]] = 0.0
        return free

    def live(self) -> Indices:
        """The slots in use."""
        return np.flatnonzero(self.counts)

    def open(self, number: int) -> Indices:
        """Free slots for `number` new neurons: gaps first, then beyond the end."""
        gaps = np.flatnonzero(self.counts == 0)[:number]
        lacking = number - len(gaps)
        if lacking == 0:
            return gaps
        end = len(self.counts)
        # Doubling keeps the copying proportional to the final size.
        room = max(lacking, end)
        self.counts, self.sums, self.seen = (
            np.concatenate([a, np.zeros((room, *a.shape[1:]), a.dtype)]) for a in (self.counts, self.sums, self.seen)
        )
        return np.concatenate([gaps, np.arange(end, end + lacking)])

    def renumber(self, assignments: list[Indices]) -> None:
        """Number the neurons by first use in client order, after the anchor's, leaving no gaps."""
        label = np.full(len(self.counts), -1, np.intp)
        size = self._problem.anchored
        label[:size] = np.arange(size)
        for j, slots in enumerate(assignments):
            fresh = slots[label[slots] < 0]
            label[fresh] = np.arange(size, size + len(fresh))
            size += len(fresh)
            assignments[j] = label[slots]
        self._rebuild(assignments, size)
