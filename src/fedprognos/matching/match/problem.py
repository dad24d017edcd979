"""The clients' neurons and the options of a matching: checked, in canonical order, in float64 on demand."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedprognos.errors import ConfigError, DataError, unknown_name
from fedprognos.matching.arguments import AnyArray, Floats, Indices, check_whole
from fedprognos.matching.match.gain import COSTS
from fedprognos.matching.match.result import Anchor, Matching


@dataclass(frozen=True, eq=False)
class ClientNeurons:
    """The neurons of one client: ``vectors`` is ``(L_j, len(dims))``.

    ``dims`` says which of the D dimensions they have; ``None`` means all. The anchor is one more of these, with the
    ``counts`` of client neurons that its rows stand for.
    """

    name: str
    vectors: AnyArray
    dims: Indices | None = None
    counts: Indices | None = None

    @property
    def width(self) -> int:
        return len(self.vectors)

    @property
    def where(self) -> Indices | slice:
        """The dimensions as an index."""
        return slice(None) if self.dims is None else self.dims

    def index(self, slots: Indices) -> tuple[Indices, ...]:
        """These rows, in the dimensions the client has, as an index into ``(L, D)``."""
        return (slots,) if self.dims is None else np.ix_(slots, self.dims)

    def centred(self, centre: Floats) -> Floats:
        """``(L_j, len(dims))`` in float64, made anew each time: J copies of the inputs are never held."""
        return np.subtract(self.vectors, centre[self.where], dtype=np.float64)

    def squares(self, dimensions: int) -> Floats:
        """``(D,)`` the sum of squares in each dimension."""
        total = np.zeros(dimensions)
        total[self.where] = np.einsum("ld,ld->d", self.vectors, self.vectors, dtype=np.float64, casting="same_kind")
        return total


@dataclass(frozen=True, eq=False)
class MatchProblem:
    """Clients in canonical order, the anchor if there is one, and the moments of all neurons.

    ``centre``, ``variance`` and ``scale`` are the clients' pooled mean and variance, for each dimension and overall.
    ``squares`` and ``observed`` are ``(D,)``: the sum of squares about the centre and the number N of neurons, where
    an anchor's neuron is one observation however large its count (its mean is known, the scatter behind it is not).
    ``raw_squares`` are the clients' alone, about zero.
    """

    clients: tuple[ClientNeurons, ...]
    anchor: ClientNeurons | None
    centre: Floats
    variance: Floats
    scale: float
    squares: Floats
    observed: Floats
    raw_squares: Floats

    @property
    def dimensions(self) -> int:
        return len(self.centre)

    @property
    def masked(self) -> bool:
        return any(client.dims is not None for client in self.clients)

    @property
    def anchored(self) -> int:
        """How many global neurons the anchor holds in place."""
        return 0 if self.anchor is None else self.anchor.width

    @property
    def population(self) -> int:
        """J: the clients, and as many more as the anchor stands for."""
        held = None if self.anchor is None else self.anchor.counts
        return len(self.clients) + (0 if held is None else int(held.max()))

    @property
    def widest(self) -> int:
        return max(self.anchored, *(client.width for client in self.clients))

    @property
    def everything(self) -> int:
        """All neurons, of the clients and the anchor."""
        return self.anchored + sum(client.width for client in self.clients)


def checked(name: str, vectors: ArrayLike) -> AnyArray:
    """The vectors as a two-dimensional array of finite real numbers, or an error naming whose they are."""
    try:
        array = np.asarray(vectors)
    except ValueError as error:
        raise DataError(f"neuron vectors are not an array: {error}", where=name) from error
    if array.dtype.kind not in "fiu":
        hint = "pass an array of floats"
        raise DataError(f"neuron vectors have dtype {array.dtype}, not a real number type", where=name, hint=hint)
    if array.ndim != 2 or 0 in array.shape:
        hint = "pass (neurons, dimensions), at least one of each"
        raise DataError(f"neuron vectors have shape {array.shape}", where=name, hint=hint)
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise DataError(f"neuron {row} has the value {array[row, column]} in dimension {column}", where=name)
    return array


def canonical(clients: Iterable[ClientNeurons], sizes: Mapping[str, float] | None) -> list[ClientNeurons]:
    """Sort by width, data size and id, so that the order of arrival changes nothing; all need the same dimensions."""
    clients = list(clients)
    missing = [client.name for client in clients if sizes is not None and client.name not in sizes]
    if missing:
        raise ConfigError(f"no data size for client '{missing[0]}'", hint="give sizes for every client, or none")
    data = dict.fromkeys((client.name for client in clients), 0.0) if sizes is None else sizes
    clients.sort(key=lambda client: (-client.width, -data[client.name], str(client.name)))
    for client in clients:
        same_dimensions(client.vectors, clients[0].vectors.shape[1], f"client '{client.name}'")
    return clients


def same_dimensions(vectors: AnyArray, dimensions: int, where: str) -> None:
    """Refuse vectors of another dimension than the first client's."""
    if vectors.shape[1] != dimensions:
        raise DataError(
            f"neurons have {vectors.shape[1]} dimensions, the first client's {dimensions}",
            where=where,
            hint="every client needs the same number of inputs",
        )


def anchor_neurons(anchor: Anchor | Matching | ArrayLike | None, dimensions: int) -> ClientNeurons | None:
    """Check the anchor: means of the clients' dimension, whole counts of at least one."""
    if anchor is None:
        return None
    if not isinstance(anchor, Anchor | Matching):
        anchor = Anchor(anchor)
    means = checked("anchor", anchor.means)
    same_dimensions(means, dimensions, "anchor")
    return ClientNeurons("anchor", means, counts=checked_counts(anchor.counts, len(means)))


def checked_counts(counts: ArrayLike | None, width: int) -> Indices:
    """``(width,)`` whole numbers >= 1; ones when not given."""
    given = np.ones(width) if counts is None else np.asarray(counts)
    if given.shape != (width,) or given.dtype.kind not in "fiu" or not (given >= 1).all() or (given % 1).any():
        raise DataError(f"counts must be {width} whole numbers of at least 1", where="anchor")
    return given.astype(np.intp)


def make_problem(clients: Sequence[ClientNeurons], anchor: ClientNeurons | None, dimensions: int) -> MatchProblem:
    """Add the moments."""
    total, observed, squares = np.zeros(dimensions), np.zeros(dimensions), np.zeros(dimensions)
    for client in clients:
        total[client.where] += client.vectors.sum(axis=0, dtype=np.float64)
        observed[client.where] += client.width
    centre = total / np.maximum(observed, 1)
    for client in clients:
        squares[client.where] += np.square(client.centred(centre)).sum(axis=0)
    scale, size = float(squares.sum() / observed.sum()), float(np.mean(np.square(centre)))
    if not np.isfinite(scale + size):
        raise DataError("the neuron vectors are too large to square in float64", hint="scale the weights down")
    if scale <= 1e-28 * size or scale == 0:
        # Nothing varies but the last digit: the weights' own size is the only scale there is.
        scale = size or 1.0
    variance = np.maximum(squares / np.maximum(observed, 1), 1e-12 * scale)
    raw = squares + observed * np.square(centre)
    if anchor is not None and anchor.counts is not None:
        squares[anchor.where] += (anchor.counts[:, None] * np.square(anchor.centred(centre))).sum(axis=0)
        observed[anchor.where] += anchor.width
    return MatchProblem(tuple(clients), anchor, centre, variance, scale, squares, observed, raw)


@dataclass(frozen=True)
class MatchOptions:
    """The options of :func:`~fedprognos.matching.match`, described there."""

    cost: str
    sigma: ArrayLike | None
    sigma0: ArrayLike | None
    gamma: float
    estimate: bool | None
    sweeps: int
    seed: int
    cap: int | None
    quota: int | None
    solver: str

    def __post_init__(self) -> None:
        if self.cost not in COSTS:
            raise unknown_name("cost", self.cost, COSTS)
        if not (math.isfinite(self.gamma) and self.gamma > 0):
            raise ConfigError(f"gamma must be a positive number, got {self.gamma!r}")
        for name, value, least in (("sweeps", self.sweeps, 0), ("cap", self.cap, 1), ("quota", self.quota, 0)):
            if value is not None:
                check_whole(name, value, least)

    @property
    def estimates(self) -> bool:
        """Whether the variances are re-estimated: SPAHM does, PFNM does not."""
        return self.cost == "spahm" if self.estimate is None else self.estimate


@dataclass(frozen=True)
class Growth:
    """How far the global model may grow: to ``cap`` neurons in all, by ``quota`` new ones for each client."""

    cap: int
    quota: int

    def room(self, width: int, existing: int) -> int:
        """New neurons a client of this width may open: every one of its neurons has a place in any case."""
        return max(width - existing, min(self.cap - existing, self.quota))


def growth_limits(problem: MatchProblem, cap: int | None, quota: int | None) -> Growth:
    """The limits on growth, with the cap no lower than the widest client and no higher than quotas can lead to."""
    if cap is None:
        cap = problem.everything
    elif cap < problem.widest:
        warnings.warn(f"cap {cap} raised to {problem.widest}, the width of the widest client", stacklevel=4)
        cap = problem.widest
    if quota is None:
        return Growth(cap, problem.everything)
    growing = len(problem.clients) - (0 if problem.anchored else 1)
    # A client may leave a neuron it opened to others and open one more; without this the quota would leak.
    return Growth(min(cap, problem.widest + growing * quota), quota)
