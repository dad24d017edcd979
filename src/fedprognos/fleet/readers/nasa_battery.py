"""Discharge cycles of the NASA Ames (PCoE) batteries, in both layouts people have.

- `metadata.csv` + `data/NNNNN.csv`: one file a cycle. The list names more files than most copies hold.
- The official `.mat` files (`B0006.mat`: struct array `cycle` of type, ambient_temperature, time, data),
  also where they lie in sub-folders as unpacked.

References
----------
B. Saha and K. Goebel, "Battery Data Set", NASA Prognostics Data Repository, NASA Ames Research Center, 2007.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import PositiveFloat

from fedprognos.errors import DataError, DataNotFoundError
from fedprognos.fleet import catalog
from fedprognos.fleet.discharge import (
    BATTERY_SCHEMA,
    END_OF_LIFE_SHARE,
    RATED,
    cut_at_cutoff,
    cutoff_from_data,
    end_of_life,
)
from fedprognos.fleet.readers import (
    ReadContext,
    Reader,
    ReaderOptions,
    Source,
    readers,
)
from fedprognos.fleet.unit import Fleet, Unit
from fedprognos.options import Fraction
from fedprognos.tables import battery_files, broken_off

RATED_CAPACITY_IN_AH = 2.0
_FOURS = {first + k: v for first in (25, 29, 41, 45, 49, 53) for k, v in enumerate((2.0, 2.2, 2.5, 2.7))}
CUTOFF_IN_V = {
    f"B{number:04d}": volts
    for number, volts in (
        {5: 2.7, 6: 2.5, 7: 2.2, 18: 2.5, 33: 2.0, 34: 2.2, 36: 2.7, 38: 2.2, 39: 2.5, 40: 2.7} | _FOURS
    ).items()
}
"""Voltage at which each battery's discharge was stopped, from the notes that come with the data."""


class NasaBatteryOptions(ReaderOptions):
    """NASA Ames batteries up to their end of life; the last `test_fraction` of the cycles is the test."""

    kind: Literal["nasa-battery"] = "nasa-battery"
    batteries: tuple[str, ...] = ("B0006", "B0007", "B0018")
    """Names of the cells."""
    end_of_life: PositiveFloat = END_OF_LIFE_SHARE
    """Share of the rated capacity at which a battery's life ends."""
    test_fraction: Fraction = 0.3
    """Share of each cell's cycles, the last ones, that is the test."""


def read_nasa_batteries(folder: str | Path, batteries: Iterable[str] | None = None) -> Fleet:
    """Discharge cycles of the batteries found in a folder.

    Parameters
    ----------
    folder
        Holds `metadata.csv` and `data/`, or `.mat` files at any depth.
    batteries
        Ids such as `B0006`; None means every battery that has at least one readable cycle here.

    Returns
    -------
    Fleet
        One cyclic unit a battery: voltage, temperature and current over the seconds of each discharge, and the
        capacity in Ah. Attributes: `ambient_temperature_in_C`, `cutoff_in_V`, `rated_capacity_in_Ah`, and
        `cycles_skipped`, the number of listed discharges that were broken off or lack file, samples or capacity. Those
        are also warned about; cycle numbers keep their place, so a gap shows.
    """
    folder = Path(folder)
    wanted = None if batteries is None else list(dict.fromkeys(batteries))
    listed = {entry.battery: entry for entry in inventory(folder, wanted)}
    if wanted is not None:
        _check_wanted(wanted, listed, folder)
    chosen = [listed[b] for b in wanted or listed if listed[b].present]
    if not chosen:
        raise DataNotFoundError(
            "no discharge cycle of any battery", where=str(folder), hint="run: fedprognos data check nasa-battery"
        )
    units = tuple(_unit(entry, folder) for entry in chosen)
    return Fleet("nasa-battery", BATTERY_SCHEMA, units, str(folder))


def inventory(folder: str | Path, batteries: Sequence[str] | None = None) -> tuple[battery_files.Inventory, ...]:
    """Which batteries (of those asked for) are listed in a folder and how many of their discharge cycles are there."""
    folder = Path(folder)
    if not folder.is_dir():
        raise DataNotFoundError("no such folder", where=str(folder), hint="run: fedprognos data get nasa-battery")
    if (folder / battery_files.METADATA).is_file():
        entries = battery_files.csv_inventory(folder)
        return tuple(e for e in entries if batteries is None or e.battery in batteries)
    files = battery_files.find_mat_files(folder)
    if files:
        return battery_files.mat_inventory({b: p for b, p in files.items() if batteries is None or b in batteries})
    raise DataNotFoundError(
        "neither metadata.csv nor a B*.mat file",
        where=str(folder),
        hint="point --data-dir at the unpacked data, or run: fedprognos data get nasa-battery",
    )


def _check_wanted(wanted: Sequence[str], listed: Mapping[str, battery_files.Inventory], folder: Path) -> None:
    if not wanted:
        raise DataError("an empty list of batteries was asked for", where=str(folder))
    for battery in wanted:
        if battery in listed and listed[battery].present:
            continue
        what = f"battery {battery} is listed but has no samples here" if battery in listed else f"no battery {battery}"
        here = ", ".join(entry.battery for entry in inventory(folder) if entry.present) or "none"
        raise DataNotFoundError(what, where=str(folder), hint=f"batteries here: {here}")


def _unit(entry: battery_files.Inventory, folder: Path) -> Unit:
    cycles = entry.read()
    usable = _whole_cycles([c for c in cycles if len(c.time) and np.isfinite(c.capacity)], entry.battery)
    where = f"{folder}, battery {entry.battery}"
    if not usable:
        raise DataError("no discharge cycle with samples and a capacity", where=where)
    skipped = entry.listed - len(usable)
    if skipped:
        warnings.warn(
            f"{where}: {skipped} of {entry.listed} discharge cycles left out "
            f"({entry.listed - len(cycles)} without file, {len(cycles) - len(usable)} broken off, or without samples "
            "or capacity)",
            stacklevel=3,
        )
    return _assemble(entry.battery, usable, skipped)


def _whole_cycles(cycles: Sequence[battery_files.Discharge], battery: str) -> list[battery_files.Discharge]:
    """Cycles that were not broken off, and that begin above the voltage at which they end."""
    broken = broken_off(np.array([c.time[-1] - c.time[0] for c in cycles]))
    cutoff = CUTOFF_IN_V.get(battery, -np.inf)
    return [c for c, early in zip(cycles, broken, strict=True) if not early and not c.voltage[0] <= cutoff]


def _assemble(battery: str, cycles: Sequence[battery_files.Discharge], skipped: int) -> Unit:
    offsets = np.concatenate([[0], np.cumsum([len(c.time) for c in cycles])]).astype(np.int64)
    sensors = np.concatenate([np.column_stack([c.voltage, c.temperature, c.current]) for c in cycles])
    capacity = np.array([c.capacity for c in cycles])
    cutoff = CUTOFF_IN_V.get(battery)
    ambient, counts = np.unique([c.ambient_in_celsius for c in cycles], return_counts=True)
    return Unit(
        id=battery,
        time=np.concatenate([c.time for c in cycles]),
        sensors=sensors,
        settings=np.empty((len(sensors), 0)),
        target=capacity,
        failed=bool(capacity[-1] < END_OF_LIFE_SHARE * RATED_CAPACITY_IN_AH),
        cycles=offsets,
        cycle_numbers=np.array([c.number for c in cycles], dtype=np.int64),
        attributes={
            "ambient_temperature_in_C": float(ambient[np.argmax(counts)]),
            "cutoff_in_V": cutoff_from_data(sensors[:, 0], offsets) if cutoff is None else cutoff,
            RATED: RATED_CAPACITY_IN_AH,
            "cycles_skipped": float(skipped),
        },
    )


def _read(options: NasaBatteryOptions, context: ReadContext) -> Source:
    fleet = read_nasa_batteries(catalog.find("nasa-battery", context.data_dir), options.batteries)
    ended = [end_of_life(u, options.end_of_life * float(u.attributes[RATED])) for u in fleet]
    return Source(cut_at_cutoff(fleet.select(ended)), test_fraction=options.test_fraction)


readers.add(Reader("nasa-battery", "NASA's battery cells up to their end of life", NasaBatteryOptions, _read, order=40))
