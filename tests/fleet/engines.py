"""Small fleets and files with a known truth, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedprognos.fleet.unit import Fleet, Schema, Unit


def engine(name: str, rows: int, **attributes: str | float) -> Unit:
    time = np.arange(1.0, rows + 1)
    return Unit(name, time, np.column_stack([time, -time]), np.zeros((rows, 1)), rul_at_end=0.0, attributes=attributes)


def engines(lives: Sequence[int], sites: Sequence[str] | None = None) -> Fleet:
    names = sites or ["a"] * len(lives)
    units = tuple(engine(f"e{k}", n, site=s) for k, (n, s) in enumerate(zip(lives, names, strict=True)))
    return Fleet("plant", Schema("rul", ("t", "minus_t"), ("load",)), units)


def battery(name: str, capacity: Sequence[float], samples: int = 3) -> Unit:
    k = len(capacity)
    return Unit(
        name,
        np.tile(np.arange(float(samples)), k),
        np.tile(np.linspace(4.0, 2.4, samples), k)[:, None],
        np.empty((k * samples, 0)),
        target=np.array(capacity),
        cycles=np.arange(0, k * samples + 1, samples),
        cycle_numbers=np.arange(1, k + 1),
        attributes={"cutoff_in_V": 2.5, "rated_capacity_in_Ah": 2.0},
    )


def batteries(*units: Unit) -> Fleet:
    schema = Schema("soh", ("voltage_in_V",), time="time_in_s", target="capacity", target_measure="Ah")
    return Fleet("cells", schema, units)


def cmapss_lines(lives: Sequence[int], seed: int = 0) -> str:
    """Text in NASA's format, with the blanks at the end of the lines that the real files have."""
    rng = np.random.default_rng(seed)
    lines = []
    for unit, life in enumerate(lives, start=1):
        for cycle in range(1, life + 1):
            values = " ".join(f"{v:.4f}" for v in rng.normal(size=24))
            lines.append(f"{unit} {cycle} {values}  \n")
    return "".join(lines)


def write_cmapss(
    folder: Path, subset: str = "FD001", train: Sequence[int] = (5, 7), test: Sequence[int] = (3, 4)
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"train_{subset}.txt").write_text(cmapss_lines(train))
    (folder / f"test_{subset}.txt").write_text(cmapss_lines(test, seed=1))
    (folder / f"RUL_{subset}.txt").write_text("".join(f"{10 + k} \n" for k in range(len(test))))
