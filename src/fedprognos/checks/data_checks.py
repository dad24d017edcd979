"""What readers and partitions promise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fedprognos.checks.requirement import check_named, require, same_bytes
from fedprognos.fleet import Fleet, PartitionRule
from fedprognos.fleet.readers import ReadContext, Reader
from fedprognos.fleet.synthetic import synthetic_engines


def check_reader(reader: Reader, context: ReadContext | None = None, **options: object) -> None:
    """Check a reader on data that it can read.

    - Two reads give the same units with the same bytes.
    - It gives test units or a test fraction, not both. No test unit is a training unit.
    - With `tested=False` the reader opens no test data.

    Parameters
    ----------
    context
        Where to look; the current folder and the usual places by default.
    options
        Its keys in `[data]`.

    Raises
    ------
    CheckError
        The first promise that the reader breaks.

    Examples
    --------
    >>> import fedprognos as fp
    >>> fp.checks.check_reader(fp.registry.readers["synthetic-engines"], units_per_site=2)
    """
    where, context = check_named("reader", reader), context or ReadContext()
    require(reader.options.__doc__, "its options have no docstring", where=where, hint="the documentation shows it")
    chosen = reader.options.model_validate(options)
    first, second = reader.read(chosen, context), reader.read(chosen, context)
    require(_same_fleet(first.fleet, second.fleet), "it reads other values the second time", where=where)
    require(len(first.fleet), "it reads no unit", where=where)
    require(
        first.test is None or first.test_fraction is None,
        "it gives a test fleet and a test fraction",
        where=where,
        hint="give one of them",
    )
    shared = set() if first.test is None else set(first.test.ids) & set(first.fleet.ids)
    require(not shared, f"units {sorted(shared)} are for training and for the test", where=where)
    untested = reader.read(chosen, replace(context, tested=False))
    require(untested.test is None, "it reads test units although `tested` is False", where=where)


def check_partition(rule: PartitionRule, fleet: Fleet | None = None, **options: object) -> None:
    """Check a partition.

    - Every unit goes to exactly one client, and no client is empty.
    - Two calls give the same clients.

    Parameters
    ----------
    fleet
        What it deals out; twelve made-up engines of three sites by default.
    options
        Its keys in `[partition]`.

    Raises
    ------
    CheckError
        The first promise that the partition breaks.

    Examples
    --------
    >>> import fedprognos as fp
    >>> fp.checks.check_partition(fp.registry.partitions["random"], clients=4)
    """
    where = check_named("partition", rule)
    if fleet is None:
        fleet = synthetic_engines(sites=3, units_per_site=4, seed=1)[0]
    chosen: Any = rule.options.model_validate({"by": rule.name, **options})
    clients = {name: [unit.id for unit in units] for name, units in rule.deal(fleet, chosen).items()}
    again = {name: [unit.id for unit in units] for name, units in rule.deal(fleet, chosen).items()}
    require(clients == again, "it deals units out differently the second time", where=where, hint="use `seed`")
    empty = [name for name, units in clients.items() if not units]
    require(not empty, f"clients {empty} have no unit", where=where)
    dealt = sorted(unit for units in clients.values() for unit in units)
    require(dealt == sorted(fleet.ids), "a unit has no client, or several", where=where)


def _same_fleet(first: Fleet, second: Fleet) -> bool:
    return first.ids == second.ids and all(
        same_bytes(unit.time, second[unit.id].time) and same_bytes(unit.sensors, second[unit.id].sensors)
        for unit in first
    )
