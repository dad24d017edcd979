"""Pumps whose bearings warm up until they seize; made up here, read from anywhere in earnest."""

from typing import Literal

import numpy as np
import pandas as pd

import fedprognos as fp
from fedprognos.fleet.readers import ReadContext, ReaderOptions, Source


class PumpOptions(ReaderOptions):
    """Its keys in [data]."""

    kind: Literal["pumps"] = "pumps"
    pumps: int = 8


def read(options: PumpOptions, context: ReadContext) -> Source:
    """A quarter of each client's pumps is kept for the test."""
    rng = np.random.default_rng(0)
    rows = []
    for pump in range(options.pumps):
        hours = np.arange(1, 40 + rng.integers(30))
        warmth = 40 + 30 * (hours / hours[-1]) ** 2
        rows.append(
            pd.DataFrame(
                {
                    "pump": f"pump-{pump}",
                    "hour": hours,
                    "temperature": warmth + rng.normal(0, 1, len(hours)),
                    "vibration": rng.normal(1, 0.1, len(hours)) + warmth / 100,
                    "owner": "north" if pump % 2 else "south",
                }
            )
        )
    frame = pd.concat(rows, ignore_index=True)
    fleet = fp.Fleet.from_frame(frame, unit="pump", time="hour", site="owner")
    return Source(fleet, test_fraction=0.25)


PUMPS = fp.Reader("pumps", "pumps that seize", PumpOptions, read)
