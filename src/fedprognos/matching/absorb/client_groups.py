"""Grouping many clients, so that no sums grow with their number."""

from __future__ import annotations

from collections.abc import Mapping

from fedprognos.errors import ConfigError
from fedprognos.matching.arguments import check_whole


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
