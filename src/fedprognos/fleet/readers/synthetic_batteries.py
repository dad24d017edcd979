"""The embedded battery fleet as a source of data."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from fedprognos.fleet.readers import ReadContext, Reader, ReaderOptions, Source, readers
from fedprognos.fleet.synthetic import synthetic_batteries, synthetic_battery_loads
from fedprognos.fleet.synthetic.sites import Experience
from fedprognos.options import Fraction


class SyntheticBatteriesOptions(ReaderOptions):
    """The embedded battery fleet."""

    kind: Literal["synthetic-batteries"] = "synthetic-batteries"
    sites: PositiveInt = 3
    """Number of owners."""
    units_per_site: PositiveInt | tuple[PositiveInt, ...] = 4
    """Training cells of each owner: one number, or one for each."""
    cycles: Annotated[int, Field(ge=20)] = 160
    """Length of the ageing campaign."""
    experience: Experience = "mixed"
    """`mixed`: the last cycles of every cell are the test. `narrow`: cells of one make, and test cells of their own,
    used in ways that are new to their owner."""
    test_fraction: Fraction = 0.3
    """Share of each cell's cycles, the last ones, that is the test."""
    test_units_per_site: PositiveInt = 6
    """With `narrow`: test cells."""
    seed: int = 0
    """Same seed, same fleet."""


def _read(options: SyntheticBatteriesOptions, context: ReadContext) -> Source:
    both = options.model_dump(include={"sites", "units_per_site", "cycles", "seed"})
    if options.experience == "mixed":
        return Source(synthetic_batteries(**both), test_fraction=options.test_fraction)
    train, test = synthetic_battery_loads(**both, test_units_per_site=options.test_units_per_site)
    return Source(train, test if context.tested else None)


readers.add(Reader("synthetic-batteries", "the embedded battery cells", SyntheticBatteriesOptions, _read, order=20))
