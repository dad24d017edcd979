"""Dealing the units of a fleet out to clients, by a fact about them or at random."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from fedprognos.errors import ConfigError, DataError, unknown_name
from fedprognos.fleet.unit import Fleet, Unit

Groups = dict[str, list[Unit]]


def partition(fleet: Fleet, by: str, **options: object) -> dict[str, Fleet]:
    """Clients and their fleets; every unit goes to exactly one client and no client is empty.

    Parameters
    ----------
    by
        - `lifespan`: `edges`, increasing cycle numbers;
        - `random`: `clients`, `seed`; equal sizes (to one unit);
        - `column`: `column`, an attribute of the units such as `site`;
        - `unit`: one unit a client;
        - `condition`: `decimals` by which the settings are rounded (a number, or one for each setting);
          a unit belongs to the operating condition it spends most rows in;
        - `dirichlet`: `clients`, `alpha`, `seed`, `skew` (`label`: clients differ in lifespans; `size`: in number
          of units). The smaller alpha, the more they differ.
    options
        Of that way of dealing out.

    Examples
    --------
    >>> from fedprognos.fleet.unit import Schema
    >>> def engine(i, n): return Unit(i, np.arange(1., n + 1), np.ones((n, 1)), np.empty((n, 0)), rul_at_end=0.)
    >>> fleet = Fleet("plant", Schema("rul", ("t",)), (engine("a", 150), engine("b", 260), engine("c", 400)))
    >>> {name: part.ids for name, part in partition(fleet, "lifespan", edges=[200, 350]).items()}
    {'life-under-200': ('a',), 'life-200-350': ('b',), 'life-over-350': ('c',)}
    """
    if by not in PARTITIONS:
        raise unknown_name("partition", by, PARTITIONS)
    deal = PARTITIONS[by]
    known = list(inspect.signature(deal).parameters.values())[1:]
    if "seed" not in [p.name for p in known]:
        options.pop("seed", None)  # nothing random here, so a seed changes nothing
    for name in options:
        if name not in [p.name for p in known]:
            valid = ", ".join(p.name for p in known) or "none"
            raise ConfigError(f"partition '{by}' has no option '{name}'", hint=f"options: {valid}")
    missing = [p.name for p in known if p.default is p.empty and p.name not in options]
    if missing:
        raise ConfigError(f"partition '{by}' needs the option '{missing[0]}'")
    return {name: fleet.select(units, name) for name, units in deal(fleet, **options).items()}


def by_lifespan(fleet: Fleet, edges: Sequence[float]) -> Groups:
    """Below the first edge, between edges (both outer edges included), above the last.

    The lifespan of a unit that was stopped early includes its known remaining life.
    """
    if not edges or any(b <= a for a, b in pairwise(edges)):
        raise ConfigError(f"lifespan edges {list(edges)} do not increase", hint="for example edges = [200, 350]")
    if len(edges) == 1:
        names = [f"life-under-{edges[0]:g}", f"life-from-{edges[0]:g}"]
    else:
        middle = [f"life-{a:g}-{b:g}" for a, b in pairwise(edges)]
        names = [f"life-under-{edges[0]:g}", *middle, f"life-over-{edges[-1]:g}"]
    groups: Groups = {name: [] for name in names}
    for unit in fleet:
        life = _lifespan(unit)
        at_top = len(edges) > 1 and life == edges[-1]
        groups[names[len(edges) - 1 if at_top else int(np.searchsorted(edges, life, side="right"))]].append(unit)
    for name, units in groups.items():
        if not units:
            lives = [_lifespan(u) for u in fleet]
            raise ConfigError(
                f"no unit for client '{name}'",
                where=f"fleet {fleet.name}",
                hint=f"lifespans range from {min(lives):g} to {max(lives):g}: choose other edges",
            )
    return groups


def by_random(fleet: Fleet, clients: int = 3, seed: int = 0) -> Groups:
    """Equal shares at random."""
    _check_clients(fleet, clients)
    order = np.random.default_rng(seed).permutation(len(fleet))
    return _named(fleet, [sorted(part.tolist()) for part in np.array_split(order, clients)])


def by_column(fleet: Fleet, column: str = "site") -> Groups:
    """One client for each value of an attribute, in order of name."""
    groups: Groups = {}
    for unit in fleet:
        if column not in unit.attributes:
            known = ", ".join(sorted({k for u in fleet for k in u.attributes})) or "none"
            raise DataError(f"no attribute '{column}'", where=f"unit {unit.id}", hint=f"attributes: {known}")
        value = unit.attributes[column]
        groups.setdefault(value if isinstance(value, str) else f"{column}-{value:g}", []).append(unit)
    return dict(sorted(groups.items()))


def by_unit(fleet: Fleet) -> Groups:
    """Every unit is a client of its own."""
    return {unit.id: [unit] for unit in fleet}


def by_condition(fleet: Fleet, decimals: int | Sequence[int] | Mapping[str, int] = 0) -> Groups:
    """Units that spend most rows in the same operating condition (settings, rounded)."""
    names = fleet.schema.settings
    if not names:
        raise DataError(
            "no settings, so no operating conditions", where=f"fleet {fleet.name}", hint="use by = 'column'"
        )
    places = _places(names, decimals)
    used = [k for k, d in enumerate(places) if d is not None]
    groups: dict[tuple[float, ...], list[Unit]] = {}
    for unit in fleet:
        columns = [np.round(unit.settings[:, k], places[k] or 0) + 0.0 for k in used]  # + 0.0 turns -0 into 0
        rows, counts = np.unique(np.column_stack(columns), axis=0, return_counts=True)
        groups.setdefault(tuple(float(v) for v in rows[np.argmax(counts)]), []).append(unit)
    return {"condition-" + "_".join(f"{v:g}" for v in key): units for key, units in sorted(groups.items())}


def by_dirichlet(fleet: Fleet, clients: int = 3, alpha: float = 0.5, seed: int = 0, skew: str = "label") -> Groups:
    """Unequal shares drawn from a Dirichlet distribution, every client with at least one unit."""
    _check_clients(fleet, clients)
    if not alpha > 0:
        raise ConfigError(f"alpha is {alpha}", hint="give a number above 0, such as 0.5")
    if skew not in ("label", "size"):
        raise unknown_name("skew", skew, ("label", "size"))
    rng = np.random.default_rng(seed)
    order = np.argsort([_lifespan(u) for u in fleet], kind="stable")
    classes = np.array_split(order, clients) if skew == "label" else [order]
    parts: list[list[int]] = [[] for _ in range(clients)]
    for members in classes:
        shares = rng.dirichlet(np.full(clients, alpha))
        stops = np.round(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
        for part, chosen in zip(parts, np.split(rng.permutation(members), stops), strict=True):
            part.extend(chosen.tolist())
    for part in parts:
        if not part:
            part.append(max(parts, key=len).pop())
    return _named(fleet, [sorted(part) for part in parts])


PARTITIONS: dict[str, Callable[..., Groups]] = {
    "lifespan": by_lifespan,
    "random": by_random,
    "column": by_column,
    "unit": by_unit,
    "condition": by_condition,
    "dirichlet": by_dirichlet,
}


def _lifespan(unit: Unit) -> float:
    return unit.lifespan + (unit.rul_at_end or 0.0)


def _named(fleet: Fleet, parts: Sequence[Sequence[int]]) -> Groups:
    return {f"client-{k}": [fleet.units[i] for i in part] for k, part in enumerate(parts, start=1)}


def _places(names: Sequence[str], decimals: int | Sequence[int] | Mapping[str, int]) -> list[int | None]:
    """Decimals of each setting; None for settings that a mapping leaves out."""
    if isinstance(decimals, int):
        return [decimals] * len(names)
    if isinstance(decimals, Mapping):
        for name in decimals:
            if name not in names:
                raise unknown_name("setting", name, names)
        return [decimals.get(name) for name in names]
    if len(decimals) != len(names):
        raise ConfigError(f"{len(decimals)} decimals for {len(names)} settings", hint=f"settings: {', '.join(names)}")
    return list(decimals)


def _check_clients(fleet: Fleet, clients: int) -> None:
    if not 1 <= clients <= len(fleet):
        raise ConfigError(
            f"{clients} clients for {len(fleet)} units",
            where=f"fleet {fleet.name}",
            hint="every client needs at least one unit",
        )
