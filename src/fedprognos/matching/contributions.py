"""What the sums of outputs tell besides: what every client's neurons contribute, and whose features repeat.

Also how to group many clients, so that no sums grow with their number.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedprognos.errors import ConfigError
from fedprognos.matching.arrays import Floats, Indices
from fedprognos.matching.options import check_whole
from fedprognos.matching.outputs import ridge_of, solved
from fedprognos.matching.shrinking import checked_head, regression
from fedprognos.matching.sums import LabelledSums, OutputSums


def contributions(
    sums: LabelledSums, groups: Mapping[str, Indices], *, ridge: float = 10.0**-3.5
) -> tuple[float, dict[str, float]]:
    """The head's penalised loss with all neurons, and that without each group of them.

    Parameters
    ----------
    groups
        For each client the indices of its neurons. The other features stay.
    ridge
        As in :func:`~fedprognos.matching.absorb`.

    Examples
    --------
    >>> h = np.random.default_rng(0).normal(size=(1, 500, 3))
    >>> sums = OutputSums.of(h, labels=h[:, :, 0] + 0.1 * h[:, :, 2])
    >>> whole, without = contributions(sums, {"a": np.array([0, 1]), "b": np.array([2])})
    >>> without["a"] > without["b"] > whole
    True
    """
    head = regression(checked_head(sums), sums.width, ridge)
    P = solved(head.C, np.eye(sums.width))
    v = P @ head.c
    return head.loss, {
        name: head.loss + float(v[own] @ solved(P[np.ix_(own, own)], v[own])) for name, own in groups.items()
    }


def repeats(sums: OutputSums, groups: Mapping[str, Indices]) -> Floats:
    """``(groups, groups)``: at [a, b] the R2 with which the features of group a predict those of group b.

    Examples
    --------
    >>> h = np.random.default_rng(0).normal(size=(1, 500, 2))
    >>> sums = OutputSums.of(np.concatenate([h, h[:, :, :1]], axis=2))
    >>> repeats(sums, {"a": np.array([0, 1]), "b": np.array([2])}).round(2).tolist()
    [[1.0, 1.0], [0.51, 1.0]]
    """
    sums.check(bounded=False)
    C = sums.moments(starts=False)[1]
    delta = ridge_of(C, sums)
    found = np.ones((len(groups), len(groups)))
    for i, a in enumerate(groups.values()):
        for j, b in enumerate(groups.values()):
            across, whole = C[np.ix_(a, b)], float(C[b, b].sum())
            if i != j and whole > 0:
                explained = np.einsum("ab,ab->", across, solved(C[np.ix_(a, a)] + delta * np.eye(len(a)), across))
                found[i, j] = min(max(float(explained) / whole, 0.0), 1.0)
    return found


def groups(sizes: Mapping[str, int], limit: int = 512) -> tuple[tuple[str, ...], ...]:
    """Clients in groups of at most ``limit`` neurons, as few and as equal as possible.

    A client with more neurons than that is a group of its own. The order of arrival changes nothing.

    Examples
    --------
    >>> groups({"a": 64, "b": 64, "c": 64, "d": 32}, limit=128)
    (('a', 'c'), ('b', 'd'))
    """
    check_whole("limit", limit, 1)
    for name, size in sizes.items():
        if size < 1:
            raise ConfigError(f"client '{name}' has {size} neurons")
    order = sorted(sizes, key=lambda name: (-sizes[name], name))
    count = max(1, -(-sum(sizes.values()) // limit))
    while order:
        members: list[list[str]] = [[] for _ in range(count)]
        loads = [0] * count
        for name in order:
            place = loads.index(min(loads))
            members[place].append(name)
            loads[place] += sizes[name]
        if all(load <= limit or len(one) == 1 for load, one in zip(loads, members, strict=True)):
            return tuple(tuple(sorted(one)) for one in members if one)
        count += 1
    return ()
