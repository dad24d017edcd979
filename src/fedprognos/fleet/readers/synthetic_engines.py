"""The embedded engine fleet as a source of data."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from fedprognos.fleet.readers import ReadContext, Reader, ReaderOptions, Source, readers
from fedprognos.fleet.synthetic import synthetic_engines
from fedprognos.fleet.synthetic.sites import Experience


class SyntheticEnginesOptions(ReaderOptions):
    """The embedded engine fleet; its test units are stopped before they fail."""

    kind: Literal["synthetic-engines"] = "synthetic-engines"
    sites: PositiveInt = 3
    """Number of owners."""
    units_per_site: PositiveInt | tuple[PositiveInt, ...] = 16
    """Training engines of each owner: one number, or one for each."""
    test_units_per_site: PositiveInt = 8
    """Test engines of each owner, stopped before they fail."""
    experience: Experience = "mixed"
    """Whether a site's test engines are like its training engines, or have faults and routes new to it (narrow)."""
    seed: int = 0
    """Same seed, same fleet."""


def _read(options: SyntheticEnginesOptions, context: ReadContext) -> Source:
    train, test = synthetic_engines(**options.model_dump(exclude={"kind"}))
    return Source(train, test if context.tested else None)


readers.add(Reader("synthetic-engines", "the embedded engines", SyntheticEnginesOptions, _read, order=10))
