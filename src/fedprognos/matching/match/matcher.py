"""``match``: which neurons of which clients extract the same feature (Eq. 4 and 5 of the paper, solved by BBP-MAP)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from numpy.typing import ArrayLike

from fedprognos.errors import DataError
from fedprognos.matching.match.bbp_map import bbp_map
from fedprognos.matching.match.problem import (
    ClientNeurons,
    MatchOptions,
    anchor_neurons,
    canonical,
    checked,
    growth_limits,
    make_problem,
)
from fedprognos.matching.match.result import Anchor, Matching


def match(
    clients: Mapping[str, ArrayLike],
    *,
    cost: str = "spahm",
    sigma: ArrayLike | None = None,
    sigma0: ArrayLike | None = None,
    gamma: float = 1.0,
    estimate: bool | None = None,
    sweeps: int = 10,
    seed: int = 0,
    sizes: Mapping[str, float] | None = None,
    anchor: Anchor | Matching | ArrayLike | None = None,
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
        false, the variances stay as given and the prior mean is zero. By default true for ``"spahm"`` and false for
        ``"pfnm"``, as in their papers. Estimates are for each dimension if ``sigma`` or ``sigma0`` was given so.
    sweeps
        How many times each client is solved again, at most; it ends when a whole sweep moved nothing.
    seed
        For the order of the clients within sweeps.
    sizes
        Number of data each client trained on; decides between clients of equal width who comes first.
    anchor
        A previous global model: an :class:`Anchor`, a previous :class:`Matching`, or means alone.
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
    from two sides and no joint objective has to rise. A new solution is at least as good as the client's previous
    one in the same state (unless ``quota`` forbids that one). The last sweep is returned.

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
    if not clients:
        raise DataError("no clients to match", hint="pass a mapping from client id to neuron vectors (L_j, D)")
    options = MatchOptions(cost, sigma, sigma0, gamma, estimate, sweeps, seed, cap, quota, solver)
    in_order = canonical([ClientNeurons(name, checked(f"client '{name}'", w)) for name, w in clients.items()], sizes)
    dimensions = in_order[0].vectors.shape[1]
    return match_clients(in_order, anchor_neurons(anchor, dimensions), dimensions, options)


def match_clients(
    clients: Sequence[ClientNeurons], anchor: ClientNeurons | None, dimensions: int, options: MatchOptions
) -> Matching:
    """Match clients that are checked and in canonical order, and may lack dimensions."""
    problem = make_problem(clients, anchor, dimensions)
    return bbp_map(problem, options, growth_limits(problem, options.cap, options.quota))
