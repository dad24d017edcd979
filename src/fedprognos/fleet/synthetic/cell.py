"""Discharge of a battery cell: open-circuit voltage, ohmic drop, one RC pair, self-heating.

    U(t) = OCV(s) - I R0(s, T) - I R1(T) (1 - exp(-t / tau))
    C dT/dt = I^2 (R0 + R1 (1 - exp(-t / tau))) - (T - T_ambient) C / tau_cooling

with state of charge s = 1 - I t / Q. All cycles of a cell are computed at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedprognos.arrays import FloatArray, IntArray

GRID = 512
"""Points per full discharge; the steep end between two of them is below 0.1 V."""
ZERO_CELSIUS_IN_K = 273.15


@dataclass(frozen=True)
class Chemistry:
    """A cell type: shape of its open-circuit voltage, and what a new cell of it is rated at.

    The voltage is a polynomial in the state of charge, less an exponential (height in V, rate) at the empty
    end, plus one at the full end, plus a phase step (height in V, place). `cutoff` is in V, `rated` in Ah,
    `ohmic` and `polarisation` are resistances in Ohm at 25 C.
    """

    name: str
    polynomial: tuple[float, float, float, float]
    empty_end: tuple[float, float]
    full_end: tuple[float, float]
    step: tuple[float, float]
    cutoff: float
    rated: float
    ohmic: float
    polarisation: float

    def open_circuit(self, charge: FloatArray) -> FloatArray:
        """Open-circuit voltage at a state of charge between 0 and 1.

        >>> CHEMISTRIES["NMC"].open_circuit(np.array([1.0, 0.5, 0.0])).round(2).tolist()
        [4.18, 3.67, 2.45]
        """
        smooth = np.polynomial.polynomial.polyval(charge, self.polynomial)
        empty = self.empty_end[0] * np.exp(-self.empty_end[1] * charge)
        full = self.full_end[0] * np.exp(-self.full_end[1] * (1.0 - charge))
        voltage: FloatArray = smooth - empty + full + self.step[0] * np.tanh((charge - self.step[1]) / 0.04)
        return voltage


CHEMISTRIES = {
    "NMC": Chemistry("NMC", (3.45, 0.30, 0.10, 0.33), (1.0, 28.0), (0.0, 1.0), (0.0, 0.5), 2.7, 2.0, 0.062, 0.034),
    "LFP": Chemistry("LFP", (3.25, 0.06, 0.0, 0.0), (1.4, 30.0), (0.13, 45.0), (0.016, 0.70), 2.0, 1.5, 0.045, 0.030),
    "NCA": Chemistry("NCA", (3.30, 0.62, -0.14, 0.38), (0.95, 24.0), (0.0, 1.0), (0.0, 0.5), 2.5, 3.0, 0.040, 0.026),
}

RELAXATION_IN_S = 90.0
COOLING_IN_S = 900.0
HEAT_CAPACITY_IN_J_PER_K = 42.0
ACTIVATION_IN_K = 1800.0
"""Arrhenius temperature: a cold cell's resistance is higher."""


@dataclass(frozen=True, eq=False)
class Discharges:
    """Discharges of K cycles on a grid: cycle k has `voltage[k, i]` at time `i * step_in_s[k]`."""

    step_in_s: FloatArray
    end_in_s: FloatArray
    voltage: FloatArray
    temperature: FloatArray

    def at(self, cycle: IntArray, time_in_s: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Voltage and temperature of these cycles at these times, linear between grid points."""
        place = time_in_s / self.step_in_s[cycle]
        left = np.minimum(place.astype(np.int64), GRID - 2)
        weight = place - left
        voltage, temperature = (
            curve[cycle, left] * (1.0 - weight) + curve[cycle, left + 1] * weight
            for curve in (self.voltage, self.temperature)
        )
        return voltage, temperature


def discharge(
    chemistry: Chemistry,
    current_in_A: float,
    *,
    charge_in_Ah: FloatArray,
    resistance: FloatArray,
    ambient_in_C: FloatArray,
    start_in_C: FloatArray,
) -> Discharges:
    """Discharge at constant current from full to the cut-off voltage, one row per cycle.

    Parameters
    ----------
    charge_in_Ah, ambient_in_C, start_in_C : (K,)
    resistance : (K,)
        Growth of the resistances, 1 for a new cell.
    """
    used = np.linspace(0.0, 1.0, GRID)
    full_in_s = 3600.0 * charge_in_Ah / current_in_A
    time = full_in_s[:, None] * used
    step = full_in_s / (GRID - 1)
    ambient = ambient_in_C[:, None]
    ohmic = chemistry.ohmic * (1.0 + 1.2 * np.exp(-(1.0 - used) / 0.12))
    polarisation = chemistry.polarisation * -np.expm1(-time / RELAXATION_IN_S)
    at_25_C = resistance[:, None] * (ohmic + polarisation)

    temperature = np.broadcast_to(start_in_C[:, None], time.shape)
    for _ in range(2):  # resistance heats, heat lowers resistance: settled after two passes
        kelvin = temperature + ZERO_CELSIUS_IN_K
        total = at_25_C * np.exp(ACTIVATION_IN_K * (1.0 / kelvin - 1.0 / (25.0 + ZERO_CELSIUS_IN_K)))
        heating = current_in_A**2 * total / HEAT_CAPACITY_IN_J_PER_K
        grown = np.exp(time / COOLING_IN_S)
        warmed = np.cumsum(heating * grown, axis=1) * step[:, None] / grown
        temperature = ambient + (start_in_C[:, None] - ambient) / grown + warmed

    voltage = chemistry.open_circuit(1.0 - used) - current_in_A * total
    after = np.argmax(voltage <= chemistry.cutoff, axis=1)
    rows = np.arange(len(after))
    before_V, after_V = voltage[rows, after - 1], voltage[rows, after]
    part = (before_V - chemistry.cutoff) / (before_V - after_V)
    return Discharges(step, (after - 1 + part) * step, voltage, temperature)
