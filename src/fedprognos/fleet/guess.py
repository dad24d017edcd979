"""What a table nobody has described yet seems to hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fedprognos.fleet.columns import Columns
from fedprognos.fleet.file_format import FileFormat


@dataclass(frozen=True)
class Guess:
    """What a table seems to hold.

    Parameters
    ----------
    columns
        Roles of the columns, ready for :func:`fedprognos.fleet.readers.table.read_table`.
    conditions
        Decimals by which each operating setting is rounded into operating conditions.
    constant, text, counters
        Columns left out because they never change (within an operating condition), are not numbers, or number the rows.
    sparse, gaps
        Columns with blanks, and how many: those left out because most values are missing, and those that are filled.
    owners, sites
        Columns that may say who owns a unit, the likeliest first, and who owns units, as far as known.
    owners_are_numbers, separator
        Whether owners are whole numbers in a column that is not called so, and what ends the owner at the beginning of
        units' names where nothing else tells owners.
    units, rows
        Counts.
    median_rows, median_life, short_life, from_new
        Rows and lifespan of the median unit, the lifespan that nine units in ten exceed, and whether records begin when
        units are new.
    shortest_cycle, cycle_samples
        Duration of the shortest cycle and samples of the median one (task soh).
    note
        How the file is written, where it is not plain CSV.
    known
        What has to be said about the file's format so that it is read in the same way again.
    """

    path: Path
    columns: Columns
    conditions: dict[str, int]
    constant: tuple[str, ...]
    text: tuple[str, ...]
    sparse: dict[str, str]
    gaps: dict[str, str]
    owners: tuple[str, ...]
    sites: tuple[str, ...]
    units: int
    rows: int
    median_rows: int
    median_life: float
    short_life: float
    from_new: bool = False
    shortest_cycle: float | None = None
    cycle_samples: int | None = None
    note: str = ""
    known: FileFormat = field(default_factory=FileFormat)
    counters: tuple[str, ...] = ()
    owners_are_numbers: bool = False
    separator: str | None = None
