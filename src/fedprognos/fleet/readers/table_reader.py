"""One's own fleet: CSV, Excel or Parquet files, and which column is what."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat

from fedprognos.fleet.discharge import RATED
from fedprognos.fleet.from_tables import read_table
from fedprognos.fleet.readers import ReadContext, Reader, ReaderOptions, Source, readers
from fedprognos.fleet.unit import Fleet
from fedprognos.tables import Columns, FileFormat, TableLayout


class TableOptions(Columns, FileFormat, ReaderOptions):
    """One's own CSV, Excel or Parquet files; see `fedprognos init`."""

    kind: Literal["table"] = "table"
    path: str
    """A file, a folder or a pattern such as `plants/*.csv`, relative to the experiment file."""
    rated_capacity_in_Ah: PositiveFloat | None = None
    """Rated capacity of every unit, for labels relative to it."""
    test_path: str | None = None
    """Units kept for the test in a file of their own, instead of `test_fraction`."""
    test_fraction: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.25
    """Share of the units (rul), or of each unit's last cycles (soh), held out for the test."""


def layout_of(options: object) -> TableLayout | None:
    """What a model remembers of an experiment's tables; None where its data is no table."""
    if not isinstance(options, TableOptions):
        return None
    return TableLayout(**{name: getattr(options, name) for name in TableLayout.model_fields})


def _read(options: TableOptions, context: ReadContext) -> Source:
    fleet = _rated(read_table(context.folder / options.path, options, options), options.rated_capacity_in_Ah)
    if options.test_path is None:
        return Source(fleet, test_fraction=options.test_fraction)
    if not context.tested:
        return Source(fleet)
    test = read_table(context.folder / options.test_path, options, options)
    return Source(fleet, _rated(test, options.rated_capacity_in_Ah))


def _rated(fleet: Fleet, capacity_in_Ah: float | None) -> Fleet:
    """The fleet with the rated capacity noted on every unit, where one is given."""
    if capacity_in_Ah is None:
        return fleet
    return fleet.select([replace(u, attributes={**u.attributes, RATED: capacity_in_Ah}) for u in fleet])


readers.add(Reader("table", "your own CSV, Excel or Parquet files", TableOptions, _read, order=50))
