"""What a turbofan's sensors read: a base value per flight condition, moved by wear, weather and noise.

Bases follow from the standard atmosphere: total inlet temperature and pressure scale the engine's
corrected speeds, flows and stage ratios, so that sensors are related as on a real gas path.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedprognos.arrays import FloatArray, IntArray

SETTINGS = ("altitude_in_kft", "mach", "throttle_in_percent")
CONDITIONS: FloatArray = np.array(
    [
        [0.0, 0.00, 100.0],  # take-off
        [10.0, 0.26, 100.0],  # initial climb
        [20.0, 0.70, 100.0],  # climb
        [25.0, 0.62, 60.0],  # descent
        [35.0, 0.84, 100.0],  # cruise
        [42.0, 0.84, 100.0],  # high cruise
    ]
)
SETTING_JITTER = 0.004
"""Settings scatter by less than half a unit in the second decimal: rounding finds the condition."""

FAULT_MODES = ("compressor", "fan", "turbine")


@dataclass(frozen=True)
class Sensor:
    """Answers of one sensor, in percent of its base value.

    `wear` is the change at failure by each fault mode, at full power; `thrust` and `weather` the change by
    one standard deviation of the two common disturbances; `noise` the sensor's own.
    """

    name: str
    wear: tuple[float, float, float]
    thrust: float
    weather: float
    noise: float


SENSORS = (
    Sensor("inlet_temperature_in_K", (0.0, 0.0, 0.0), 0.0, 0.20, 0.05),
    Sensor("lpc_outlet_temperature_in_K", (0.18, 0.30, 0.04), 0.03, 0.05, 0.06),
    Sensor("hpc_outlet_temperature_in_K", (0.90, 0.15, 0.30), 0.08, 0.10, 0.24),
    Sensor("lpt_outlet_temperature_in_K", (1.50, 0.25, 2.00), 0.15, 0.15, 0.38),
    Sensor("bypass_duct_pressure_in_kPa", (0.0, -0.65, 0.05), 0.06, 0.0, 0.13),
    Sensor("lpc_outlet_pressure_in_kPa", (0.45, -0.55, 0.05), 0.08, 0.0, 0.15),
    Sensor("hpc_outlet_pressure_in_kPa", (-0.90, -0.10, -0.60), 0.12, 0.0, 0.26),
    Sensor("fan_speed_in_rpm", (0.02, 0.13, 0.01), 0.02, 0.02, 0.03),
    Sensor("core_speed_in_rpm", (0.40, 0.25, -0.45), 0.05, 0.04, 0.11),
    Sensor("fuel_flow_in_kg_per_s", (0.80, 0.25, 1.20), 0.15, 0.05, 0.32),
    Sensor("bypass_ratio", (0.90, -0.80, 0.45), -0.08, 0.0, 0.26),
    Sensor("bleed_enthalpy_in_kJ_per_kg", (0.90, 0.05, 0.50), 0.08, 0.10, 0.28),
    Sensor("coolant_flow_in_kg_per_s", (-0.40, 0.05, -1.10), 0.10, -0.03, 0.24),
    Sensor("oil_pressure_in_kPa", (0.0, 0.0, 0.0), 0.10, 0.0, 0.60),
)
WEAR: FloatArray = np.array([s.wear for s in SENSORS]).T
COMMON: FloatArray = np.array([[s.thrust, s.weather] for s in SENSORS]).T
NOISE: FloatArray = np.array([s.noise for s in SENSORS])


def inlet(altitude_in_kft: FloatArray, mach: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Total temperature (K) and pressure (kPa) in front of the fan, standard atmosphere.

    >>> temperature, pressure = inlet(np.array([0.0, 35.0]), np.array([0.0, 0.84]))
    >>> temperature.round(1).tolist(), pressure.round(1).tolist()
    ([288.2, 249.7], [101.3, 37.8])
    """
    tropopause_in_kft, lapse = 36.089, 1.9812
    temperature = 288.15 - lapse * np.minimum(altitude_in_kft, tropopause_in_kft)
    pressure = 101.325 * (temperature / 288.15) ** 5.2559
    pressure = pressure * np.exp(-np.maximum(altitude_in_kft - tropopause_in_kft, 0.0) / 20.806)
    ram = 1.0 + 0.2 * mach**2
    return temperature * ram, pressure * ram**3.5


def bases() -> FloatArray:
    """Reading of every sensor of a new engine at every condition: (conditions, sensors)."""
    altitude, mach, throttle = CONDITIONS.T
    t2, p2 = inlet(altitude, mach)
    theta, delta, idle = t2 / 288.15, p2 / 101.325, 1.0 - throttle / 100.0
    t30 = t2 * (3.05 - 0.83 * idle)
    core_speed = 9050.0 * theta**0.55 * (1.0 - 0.145 * idle)
    columns = (
        t2,
        t2 * (1.238 - 0.195 * idle),
        t30,
        t2 * (2.66 - 0.80 * idle - 0.14 * mach),
        p2 * (1.47 - 0.48 * idle),
        p2 * (2.65 - 1.20 * idle),
        p2 * (37.0 - 30.0 * idle),
        2388.0 * np.sqrt(theta) * (1.0 - 0.375 * idle),
        core_speed,
        3.5 * delta * theta**0.6 * (1.0 - 0.75 * idle),
        8.4 + 1.05 * mach + 4.6 * idle,
        1.03 * t30,
        17.7 * delta / np.sqrt(theta) * (1.0 - 0.70 * idle),
        310.0 * core_speed / 9050.0,
    )
    return np.stack(columns, axis=1)


def gains() -> FloatArray:
    """How strongly wear shows at each condition: less at part power and at speed."""
    _, mach, throttle = CONDITIONS.T
    gain: FloatArray = 1.0 - 0.75 * (1.0 - throttle / 100.0) - 0.18 * mach
    return gain


def autoregressive(white: FloatArray, memory: float) -> FloatArray:
    """Turn unit white noise (T, n) into first-order autoregressive noise of unit variance."""
    noise: FloatArray = white * np.sqrt(1.0 - memory**2)
    noise[0] = white[0]
    for t in range(1, len(noise)):
        noise[t] += memory * noise[t - 1]
    return noise


def readings(
    rng: np.random.Generator, wear: FloatArray, condition: IntArray, climate: float
) -> tuple[FloatArray, FloatArray]:
    """Settings (T, 3) and sensors (T, 14) of an engine with this wear (T, fault modes).

    Disturbances are correlated in time and across sensors: a thrust error and the weather move all
    sensors together, each sensor has a slow part of its own, and a build offset stays for life.
    """
    rows, width = len(condition), len(SENSORS)
    settings = CONDITIONS[condition] + rng.uniform(0.0, SETTING_JITTER, (rows, len(SETTINGS)))
    common = autoregressive(rng.standard_normal((rows, 2)), 0.7)
    common[:, 1] += climate
    slow = autoregressive(rng.standard_normal((rows, width)), 0.5)
    white = rng.standard_normal((rows, width))
    build = rng.standard_normal(width)
    percent = gains()[condition, None] * (wear @ WEAR) + common @ COMMON
    percent += NOISE * (0.5 * slow + np.sqrt(0.75) * white + 0.35 * build)
    return settings, bases()[condition] * (1.0 + percent / 100.0)
