"""Fleets of machines: what a unit is, how fleets are read, made, found and dealt out to clients."""

from fedprognos.fleet.unit import Fleet, Schema, Unit, pool
from fedprognos.tables.columns import Task

__all__ = ["Fleet", "Schema", "Task", "Unit", "pool"]
