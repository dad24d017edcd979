"""``match``: which neurons of which clients extract the same feature (Eq. 4 and 5 of the paper, solved by BBP-MAP)."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

from fedprognos.errors import ConfigError
from fedprognos.matching.arrays import Indices
from fedprognos.matching.bbp_map import Growth, Terms, bbp_map
from fedprognos.matching.gains import Pricing
from fedprognos.matching.hyperparameters import start
from fedprognos.matching.problem import Problem, Side, anchor_side, pose, sides
from fedprognos.matching.result import Anchor, Matching
from fedprognos.matching.solvers import solver_named


@dataclass(frozen=True)
class Options:
    """What was asked of a matching; see :func:`match`."""

    cost: str
    sigma: ArrayLike | None
    sigma0: ArrayLike | None
    gamma: float
    estimate: bool
    sweeps: int
    seed: int
    cap: int | None
    quota: int | None
    solver: str


def match(
    clients: Mapping[str, ArrayLike],
    *,
    cost: str = "spahm",
    sigma: ArrayLike | None = None,
    sigma0: ArrayLike | None = None,
    gamma: float = 1.0,
    estimate: bool = True,
    sweeps: int = 10,
    seed: int = 0,
    sizes: Mapping[str, float] | None = None,
    anchor: Anchor | Matching | tuple[ArrayLike, ArrayLike] | ArrayLike | None = None,
    cap: int | None = None,
    quota: int | None = None,
    solver: str = "scipy",
) -> Matching:
    """Match the neurons of several clients.

    Parameters
    ----------
    clients
        For each client id its neurons as rows: ``(L_j, D)``, float32 or float64. Widths may differ, D may not.
        The order of the mapping changes nothing: clients are put in canonical order (width, data size, id).
    cost
        ``"spahm"``: the full marginal likelihood [2]_. ``"pfnm"``: as PFNM [1]_ and FedMA [3]_ do, without its
        normalising constants.
    sigma, sigma0
        Variances (not standard deviations): of a client's neuron around its global neuron, and of the global
        neurons. A number, or one for each dimension. By default 0.5x and 1x the pooled variance of all client
        neurons, so that scaling all the weights changes nothing.
    gamma
        Mass of the Indian buffet prior: how readily new global neurons are opened.
    estimate
        Estimate prior mean and variances from the partition after the initialisation and after every sweep. If
        false the variances stay as given and the prior mean is zero. Estimates are for each dimension if ``sigma``
        or ``sigma0`` was given so.
    sweeps
        How many times each client is solved again, at most; it ends when a whole sweep moved nothing.
    seed
        For the order of the clients within sweeps.
    sizes
        Number of data each client trained on; decides between clients of equal width who comes first.
    anchor
        A previous global model (see :class:`Anchor` for what its counts mean), a previous :class:`Matching`, a
        pair ``(means, counts)``, or means alone.
    cap
        Most global neurons allowed. Raised, with a warning, to the width of the widest client (or the anchor).
    quota
        Most new neurons one client may open when it is assigned. Over all sweeps the model then grows by no more
        than ``quota`` for each client beyond the widest.
    solver
        ``"scipy"``, or ``"lapx"`` (``pip install 'fedprognos[fast]'``): the same total gain, faster.

    Returns
    -------
    Matching

    Notes
    -----
    Because the k-th new neuron of a client costs 2 log k more than the first, the same move is priced differently
    from two sides and there is no joint objective that must rise: a new solution is at least as good as the client's
    previous one in the same state, no more than that (and ``quota`` may forbid the previous one). The last sweep is
    what is returned.

    Everything is computed in float64. Time is linear in the number of clients; beyond inputs and result, memory is
    proportional to L' (D + L_j) for the widest client j.

    References
    ----------
    .. [1] Yurochkin et al., Bayesian Nonparametric Federated Learning of Neural Networks, ICML 2019.
    .. [2] Yurochkin et al., Statistical Model Aggregation via Parameter Matching, NeurIPS 2019.
    .. [3] Wang et al., Federated Learning with Matched Averaging, ICLR 2020.

    Examples
    --------
    Two clients learnt the same three features in another order, and ``b`` one more:

    >>> import numpy as np
    >>> a = np.random.default_rng(0).normal(size=(3, 40))
    >>> private = np.random.default_rng(1).normal(size=(1, 40))
    >>> m = match({"a": a, "b": np.vstack([a[[2, 0, 1]] + 0.01, private])})
    >>> m.size, m.counts.tolist()
    (4, [2, 2, 2, 1])
    >>> m.assignments["b"].tolist(), m.assignments["a"].tolist()
    ([0, 1, 2, 3], [1, 2, 0])
    """
    found = sides(clients, sizes)
    dimensions = found[0].vectors.shape[1]
    previous, counts = anchor_side(anchor, dimensions)
    options = Options(cost, sigma, sigma0, gamma, estimate, sweeps, seed, cap, quota, solver)
    return match_sides(found, dimensions, previous, counts, options)


def match_sides(
    clients: Sequence[Side], dimensions: int, anchor: Side | None, anchor_counts: Indices, options: Options
) -> Matching:
    """Match clients that are checked and in canonical order, and may lack dimensions."""
    problem = pose(clients, dimensions, anchor, anchor_counts)
    growth = limits(problem, options.cap, options.quota)
    terms = Terms(Pricing(options.cost, problem.population, options.gamma), growth, solver_named(options.solver))
    hyper = start(problem, options.sigma, options.sigma0, options.estimate)
    sweeps = whole("sweeps", options.sweeps, 0)
    return bbp_map(problem, hyper, terms, estimate=options.estimate, sweeps=sweeps, seed=options.seed)


def limits(problem: Problem, cap: int | None, quota: int | None) -> Growth:
    """The limits on growth, with the cap no lower than the widest client and no higher than quotas can lead to."""
    everything = problem.anchored + sum(side.width for side in problem.clients)
    if cap is None:
        cap = everything
    elif whole("cap", cap, 1) < problem.widest:
        warnings.warn(f"cap {cap} raised to {problem.widest}, the width of the widest client", stacklevel=4)
        cap = problem.widest
    if quota is None:
        return Growth(cap, everything)
    growing = len(problem.clients) - (0 if problem.anchored else 1)
    # A client may leave a neuron it opened to others and open one more; without this the quota would leak.
    return Growth(min(cap, problem.widest + growing * whole("quota", quota, 0)), quota)


def whole(name: str, value: int, least: int) -> int:
    """A whole number of at least ``least``."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ConfigError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return number
