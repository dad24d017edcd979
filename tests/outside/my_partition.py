"""Every other unit: two clients whose fleets are alike."""

from typing import Literal

from fedprognos.fleet.partition import PartitionOptions, PartitionRule


class AlternatingOptions(PartitionOptions):
    """Its keys in [partition]."""

    by: Literal["alternating"] = "alternating"


def deal(fleet, options: AlternatingOptions):
    """Units by the name of their client; every unit goes to exactly one."""
    return {"even": fleet.units[::2], "odd": fleet.units[1::2]}


ALTERNATING = PartitionRule("alternating", "every other unit", AlternatingOptions, deal)
