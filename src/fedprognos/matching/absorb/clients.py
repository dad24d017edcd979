"""Clients in absorption: groups of them, so that no sums grow with their number, and what the sums say of each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedprognos.errors import ConfigError
from fedprognos.matching.absorb.absorption import RIDGE, checked_head
from fedprognos.matching.absorb.elimination import head_regression, smallest_ridge, solve_covariance
from fedprognos.matching.absorb.output_sums import LabelledSums, OutputSums
from fedprognos.matching.arguments import Floats, Indices, check_whole


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
        if all(load <= limit or len(names) == 1 for load, names in zip(loads, members, strict=True)):
            return tuple(tuple(sorted(names)) for names in members if names)
        count += 1
    return ()


def contributions(
    sums: LabelledSums, groups: Mapping[str, Indices], *, ridge: float = RIDGE
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
    >>> sums = OutputSums.from_outputs(h, labels=h[:, :, 0] + 0.1 * h[:, :, 2])
    >>> whole, without = contributions(sums, {"a": np.array([0, 1]), "b": np.array([2])})
    >>> without["a"] > without["b"] > whole
    True
    """
    C, c, _, loss, _ = head_regression(checked_head(sums), sums.width, ridge)
    P = solve_covariance(C, np.eye(sums.width))
    v = P @ c
    return loss, {
        name: loss + float(v[neurons] @ solve_covariance(P[np.ix_(neurons, neurons)], v[neurons]))
        for name, neurons in groups.items()
    }


def repeats(sums: OutputSums, groups: Mapping[str, Indices]) -> Floats:
    """``(groups, groups)``: at [a, b] the R2 with which the features of group a predict those of group b.

    Examples
    --------
    >>> h = np.random.default_rng(0).normal(size=(1, 500, 2))
    >>> sums = OutputSums.from_outputs(np.concatenate([h, h[:, :, :1]], axis=2))
    >>> repeats(sums, {"a": np.array([0, 1]), "b": np.array([2])}).round(2).tolist()
    [[1.0, 1.0], [0.51, 1.0]]
    """
    sums.check(bounded=False)
    C = sums.moments(starts=False)[1]
    delta = smallest_ridge(C, sums)
    r2 = np.ones((len(groups), len(groups)))
    for i, a in enumerate(groups.values()):
        for j, b in enumerate(groups.values()):
            across, variance = C[np.ix_(a, b)], float(C[b, b].sum())
            if i != j and variance > 0:
                slopes = solve_covariance(C[np.ix_(a, a)] + delta * np.eye(len(a)), across)
                r2[i, j] = min(max(float(np.einsum("ab,ab->", across, slopes)) / variance, 0.0), 1.0)
    return r2
