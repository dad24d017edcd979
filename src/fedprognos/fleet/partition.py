"""Dealing the units of a fleet out to clients, by a fact about them or at random.

A rule owns its name, its options and its function; it is on the shelf `partitions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    BeforeValidator,
    Field,
    PositiveFloat,
    PositiveInt,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from fedprognos.errors import ConfigError, DataError, unknown_name
from fedprognos.fleet.split import machines
from fedprognos.fleet.unit import Fleet, Unit
from fedprognos.options import Options, chosen_options, validated
from fedprognos.shelf import Shelf
from fedprognos.tables import at_level

Groups = dict[str, list[Unit]]
_ALWAYS_WRITTEN = ("edges", "clients", "column", "alpha", "decimals")
"""Keys in every record of a partition, null where a rule has no such option: run folders are known by their records."""


class PartitionOptions(Options):
    """How the training units are dealt out to clients; every rule adds its own keys and fixes `by` to its name."""

    by: str
    seed: int = 0
    """Of rules that draw at random."""
    units: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Only these units train; all by default."""

    @model_serializer(mode="wrap")
    def _record(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        record: dict[str, Any] = dict.fromkeys(_ALWAYS_WRITTEN) | plain(self)
        return record


@dataclass(frozen=True)
class PartitionRule:
    """One way to deal units out to clients; `deal` gets the fleet and an instance of `options`."""

    name: str
    label: str
    options: type[PartitionOptions]
    deal: Callable[[Fleet, Any], Groups]
    order: int = 100


partitions: Shelf[PartitionRule] = Shelf("partition", __name__, "fedprognos.partitions")
Partition = Annotated[SerializeAsAny[PartitionOptions], BeforeValidator(chosen_options(partitions, "by"))]
"""Options of whichever rule `by` names."""


def partition(fleet: Fleet, by: str, **options: object) -> dict[str, Fleet]:
    """Clients and their fleets; every unit goes to exactly one client and no client is empty.

    Parameters
    ----------
    by
        - `lifespan`: `edges`, increasing cycle numbers;
        - `random`: `clients`, `seed`; equal sizes (to one unit);
        - `column`: `column`, an attribute of the units such as `site`;
        - `name`: `separator`, which ends the client's name at the beginning of a unit's: `A` of `A-017`;
        - `unit`: one unit a client;
        - `condition`: `decimals` to which the operating settings are rounded; a unit belongs to the operating
          condition it spends most rows in;
        - `dirichlet`: `clients`, `alpha`, `seed`, `skew` (`label`: clients differ in lifespans; `size`: in number
          of units). The smaller alpha, the more they differ.
    options
        Of that rule.

    Examples
    --------
    >>> from fedprognos.fleet.unit import Schema
    >>> def engine(i, n): return Unit(i, np.arange(1., n + 1), np.ones((n, 1)), np.empty((n, 0)), rul_at_end=0.)
    >>> fleet = Fleet("plant", Schema("rul", ("t",)), (engine("a", 150), engine("b", 260), engine("c", 400)))
    >>> {name: part.ids for name, part in partition(fleet, "lifespan", edges=[200, 350]).items()}
    {'life-under-200': ('a',), 'life-200-350': ('b',), 'life-over-350': ('c',)}
    """
    return deal(fleet, validated(partitions[by].options, options, f"partition by {by}"))


def deal(fleet: Fleet, options: PartitionOptions) -> dict[str, Fleet]:
    """Clients and their fleets, as options of a partition say."""
    for unit in options.units or ():
        if unit not in fleet.ids:
            raise unknown_name("unit", unit, fleet.ids)
    chosen = fleet if options.units is None else fleet.select([u for u in fleet if u.id in options.units])
    groups = partitions[options.by].deal(chosen, options)
    return {name: fleet.select(units, name) for name, units in groups.items()}


class LifespanOptions(PartitionOptions):
    """Clients whose units live about equally long."""

    by: Literal["lifespan"] = "lifespan"
    edges: tuple[PositiveFloat, ...]
    """Lifespans at which one client ends and the next begins."""


def _by_lifespan(fleet: Fleet, options: LifespanOptions) -> Groups:
    """Below the first edge, between edges (both outer edges included), above the last.

    The lifespan of a unit that was stopped early includes its known remaining life.
    """
    edges = options.edges
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
            lifespans = [_lifespan(u) for u in fleet]
            raise ConfigError(
                f"no unit for client '{name}'",
                where=f"fleet {fleet.name}",
                hint=f"lifespans range from {min(lifespans):g} to {max(lifespans):g}: choose other edges",
            )
    return groups


class RandomOptions(PartitionOptions):
    """Equal shares at random."""

    by: Literal["random"] = "random"
    clients: PositiveInt
    """How many clients."""


def _by_random(fleet: Fleet, options: RandomOptions) -> Groups:
    _check_clients(fleet, options.clients)
    owned = list(machines(fleet).values())
    order = np.random.default_rng(options.seed).permutation(len(owned))
    labelled = np.array([any(unit.labels() is not None for unit in owned[i]) for i in order])
    if labelled.all():
        shares = [sorted(part.tolist()) for part in np.array_split(order, options.clients)]
    else:  # machines that failed are dealt first, in turn: without one a client could not learn
        dealt = np.concatenate([order[labelled], order[~labelled]])
        shares = [sorted(dealt[k :: options.clients].tolist()) for k in range(options.clients)]
    return {f"client-{k}": [u for i in share for u in owned[i]] for k, share in enumerate(shares, start=1)}


class ColumnOptions(PartitionOptions):
    """One client for each value of an attribute, in order of name."""

    by: Literal["column"] = "column"
    column: str
    """Attribute that names the client; in a table `site`."""


def _by_column(fleet: Fleet, options: ColumnOptions) -> Groups:
    column, groups = options.column, Groups()
    for unit in fleet:
        if column not in unit.attributes:
            present = ", ".join(sorted({k for u in fleet for k in u.attributes})) or "none"
            hint = f"attributes: {present}. In a table, write [data] site = '{column}' and [partition] column = 'site'"
            raise DataError(f"no attribute '{column}'", where=f"unit {unit.id}", hint=hint)
        value = unit.attributes[column]
        groups.setdefault(value if isinstance(value, str) else f"{column}-{value:g}", []).append(unit)
    return dict(sorted(groups.items()))


class NameOptions(PartitionOptions):
    """One client for each beginning of units' names, such as `A` of `A-017`."""

    by: Literal["name"] = "name"
    separator: Annotated[str, Field(min_length=1)] = "-"
    """What ends the client's name in a unit's."""


def _by_name(fleet: Fleet, options: NameOptions) -> Groups:
    groups = Groups()
    for unit in fleet:
        owner, mark, _ = unit.id.partition(options.separator)
        if not (owner and mark):
            hint = "set partition.separator to what ends the owner in every unit's name, or use another partition"
            raise DataError(f"no owner before '{options.separator}' in the unit's name", where=unit.id, hint=hint)
        groups.setdefault(owner, []).append(unit)
    return dict(sorted(groups.items()))


class UnitOptions(PartitionOptions):
    """Every machine is a client of its own."""

    by: Literal["unit"] = "unit"


def _by_unit(fleet: Fleet, _: UnitOptions) -> Groups:
    return machines(fleet)


class ConditionOptions(PartitionOptions):
    """Units that spend most rows in the same operating condition; settings left out of `decimals` do not count."""

    by: Literal["condition"] = "condition"
    decimals: Annotated[Mapping[str, int], Field(min_length=1)]
    """Decimals to which each operating setting is rounded."""


def _by_condition(fleet: Fleet, options: ConditionOptions) -> Groups:
    names = fleet.schema.settings
    if not names:
        hint = "use by = 'column'"
        raise DataError("no operating settings, so no operating conditions", where=f"fleet {fleet.name}", hint=hint)
    for name in options.decimals:
        if name not in names:
            raise unknown_name("operating setting", name, names)
    used = [(k, options.decimals[name]) for k, name in enumerate(names) if name in options.decimals]
    groups: dict[tuple[float, ...], list[Unit]] = {}
    for unit in fleet:
        columns = [at_level(unit.settings[:, k], decimals) for k, decimals in used]
        rows, counts = np.unique(np.column_stack(columns), axis=0, return_counts=True)
        groups.setdefault(tuple(float(v) for v in rows[np.argmax(counts)]), []).append(unit)
    return {"condition-" + "_".join(f"{v:g}" for v in key): units for key, units in sorted(groups.items())}


class DirichletOptions(PartitionOptions):
    """Unequal shares drawn from a Dirichlet distribution, every client with at least one unit."""

    by: Literal["dirichlet"] = "dirichlet"
    clients: PositiveInt
    """How many clients."""
    alpha: PositiveFloat
    """Small: very unequal shares; large: nearly equal ones."""
    skew: Literal["label", "size"] = "label"
    """Clients differ in lifespans, or in number of units."""


def _by_dirichlet(fleet: Fleet, options: DirichletOptions) -> Groups:
    clients = options.clients
    _check_clients(fleet, clients)
    rng = np.random.default_rng(options.seed)
    order = np.argsort([_lifespan(u) for u in fleet], kind="stable")
    classes = np.array_split(order, clients) if options.skew == "label" else [order]
    parts: list[list[int]] = [[] for _ in range(clients)]
    for members in classes:
        shares = rng.dirichlet(np.full(clients, options.alpha))
        stops = np.round(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
        for part, chosen in zip(parts, np.split(rng.permutation(members), stops), strict=True):
            part.extend(chosen.tolist())
    for part in parts:
        if not part:
            part.append(max(parts, key=len).pop())
    return _named(fleet, [sorted(part) for part in parts])


partitions.add(PartitionRule("lifespan", "units that live about equally long", LifespanOptions, _by_lifespan, 10))
partitions.add(PartitionRule("random", "equal shares at random", RandomOptions, _by_random, 20))
partitions.add(PartitionRule("column", "one client for each value of an attribute", ColumnOptions, _by_column, 30))
partitions.add(PartitionRule("name", "one client for each beginning of units' names", NameOptions, _by_name, 35))
partitions.add(PartitionRule("unit", "every unit is a client", UnitOptions, _by_unit, 40))
partitions.add(
    PartitionRule("condition", "units mostly in the same operating condition", ConditionOptions, _by_condition, 50)
)
partitions.add(PartitionRule("dirichlet", "unequal shares at random", DirichletOptions, _by_dirichlet, 60))


def _lifespan(unit: Unit) -> float:
    return unit.lifespan + (unit.rul_at_end or 0.0)


def _named(fleet: Fleet, parts: Sequence[Sequence[int]]) -> Groups:
    return {f"client-{k}": [fleet.units[i] for i in part] for k, part in enumerate(parts, start=1)}


def _check_clients(fleet: Fleet, clients: int) -> None:
    if clients > (units := len(machines(fleet))):
        raise ConfigError(
            f"{clients} clients for {units} units",
            where=f"fleet {fleet.name}",
            hint="every client needs at least one unit",
        )
