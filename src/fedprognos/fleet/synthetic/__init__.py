"""The embedded fleets: engines and battery cells made from simple physics, with a known truth.

Each unit depends on the seed, its site and its number only, so a larger fleet contains the smaller one.
"""

from fedprognos.fleet.synthetic.battery import synthetic_batteries, synthetic_battery_loads
from fedprognos.fleet.synthetic.engine import synthetic_engines

__all__ = [
    "synthetic_batteries",
    "synthetic_battery_loads",
    "synthetic_engines",
]
