"""What both layouts of the NASA battery data come down to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fedprognos.arrays import FloatArray


@dataclass(frozen=True, eq=False)
class Discharge:
    """One discharge cycle; `capacity` is NaN where the data does not give it."""

    number: int
    ambient_in_celsius: float
    capacity: float
    time: FloatArray
    voltage: FloatArray
    temperature: FloatArray
    current: FloatArray


@dataclass(frozen=True, eq=False)
class Inventory:
    """One battery as listed and as found.

    Parameters
    ----------
    battery
        Id such as B0006.
    listed
        Discharge cycles the data set names.
    present
        Of those, how many have their samples here.
    without_capacity
        Of those, how many give no capacity.
    read
        Reads the present ones.
    """

    battery: str
    listed: int
    present: int
    without_capacity: int
    read: Callable[[], list[Discharge]]
