"""Fleets of machines: what a unit is, how fleets are read, made, found and dealt out to clients."""

from fedprognos.fleet.catalog import CATALOG, data_set, find, places, public_data_in
from fedprognos.fleet.catalog_check import Check, check
from fedprognos.fleet.discharge import RATED
from fedprognos.fleet.download import get
from fedprognos.fleet.fleet_file import fleet_digest, load_fleet, save_fleet
from fedprognos.fleet.from_tables import fleet_from_tables, read_table
from fedprognos.fleet.partition import (
    ColumnOptions,
    Partition,
    PartitionOptions,
    PartitionRule,
    RandomOptions,
    deal,
    partitions,
)
from fedprognos.fleet.readers import in_memory
from fedprognos.fleet.readers.table_reader import TableOptions, layout_of
from fedprognos.fleet.unit import MACHINE, START, Fleet, Schema, Unit, pool
from fedprognos.tables import Task

__all__ = [
    "CATALOG",
    "MACHINE",
    "RATED",
    "START",
    "Check",
    "ColumnOptions",
    "Fleet",
    "Partition",
    "PartitionOptions",
    "PartitionRule",
    "RandomOptions",
    "Schema",
    "TableOptions",
    "Task",
    "Unit",
    "check",
    "data_set",
    "deal",
    "find",
    "fleet_digest",
    "fleet_from_tables",
    "get",
    "in_memory",
    "layout_of",
    "load_fleet",
    "partitions",
    "places",
    "pool",
    "public_data_in",
    "read_table",
    "save_fleet",
]
