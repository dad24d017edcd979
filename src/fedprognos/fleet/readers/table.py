"""One's own fleet: CSV, Excel or Parquet files, and which column is what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat

from fedprognos.fleet.columns import Columns
from fedprognos.fleet.discharge import RATED
from fedprognos.fleet.file_format import FileFormat
from fedprognos.fleet.frame import fleet_of_tables
from fedprognos.fleet.readers import ReadContext, Reader, ReaderOptions, Source, readers
from fedprognos.fleet.table_files import read_tables, table_paths
from fedprognos.fleet.table_layout import TableLayout
from fedprognos.fleet.unit import Fleet


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


def read_table(
    source: str | Path | Sequence[str | Path],
    columns: Columns,
    known: FileFormat | None = None,
    *,
    name: str = "table",
    require_labels: bool = True,
) -> Fleet:
    """A fleet from CSV, Excel or Parquet files.

    Parameters
    ----------
    source
        A file, several, a folder, or a pattern such as `plants/*.csv`.
    known
        What is said about the format of the files; the rest is found out.
    require_labels
        Refuse data nothing can be learnt from; False reads a fleet to be predicted.

    Raises
    ------
    DataError
        For the first thing wrong, naming file, line, column and unit.
    """
    tables = [table for path in table_paths(source) for table in read_tables(path, columns.text, known)]
    return fleet_of_tables(tables, columns, name=name, require_labels=require_labels)


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
