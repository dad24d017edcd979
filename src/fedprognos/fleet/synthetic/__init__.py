"""The embedded fleets: engines and battery cells made from simple physics, with a known truth.

Each unit depends on the seed, its site and its number only, so a larger fleet contains the smaller one.
"""

from fedprognos.fleet.synthetic.battery import BatteryTruth, battery_truth, synthetic_batteries, synthetic_battery_loads
from fedprognos.fleet.synthetic.engine import EngineTruth, engine_truth, synthetic_engines

__all__ = [
    "BatteryTruth",
    "EngineTruth",
    "battery_truth",
    "engine_truth",
    "synthetic_batteries",
    "synthetic_battery_loads",
    "synthetic_engines",
]
