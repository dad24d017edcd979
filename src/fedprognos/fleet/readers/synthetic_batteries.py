"""The embedded battery fleet as a source of data."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from fedprognos.fleet.readers import ReadContext, Reader, ReaderOptions, Source, readers
from fedprognos.fleet.synthetic import synthetic_batteries
from fedprognos.options import Fraction


class SyntheticBatteriesOptions(ReaderOptions):
    """The embedded battery fleet; the last `test_fraction` of each cell's cycles is the test."""

    kind: Literal["synthetic-batteries"] = "synthetic-batteries"
    sites: PositiveInt = 3
    units_per_site: PositiveInt | tuple[PositiveInt, ...] = 4
    test_fraction: Fraction = 0.3
    seed: int = 0


def _read(options: SyntheticBatteriesOptions, _: ReadContext) -> Source:
    fleet = synthetic_batteries(**options.model_dump(exclude={"kind", "test_fraction"}))
    return Source(fleet, test_fraction=options.test_fraction)


readers.add(Reader("synthetic-batteries", "the embedded battery cells", SyntheticBatteriesOptions, _read, order=20))
