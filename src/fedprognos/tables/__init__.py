"""One way from a file, folder or data frame to typed rows of units, in pieces, for training and prediction alike."""

from fedprognos.tables.column_names import one_spelling, pick
from fedprognos.tables.columns import Columns, Policy, TableLayout, Task
from fedprognos.tables.csv_format import FileFormat, exact_csv_parts, read_exact_csv
from fedprognos.tables.cycle_rules import (
    END_OF_LIFE,
    LATEST,
    broken_off,
    end_of_life,
    fall_of_cycle,
    first_health,
    is_worn,
)
from fedprognos.tables.database import literal
from fedprognos.tables.experiment_file import TEST_FRACTION, default_path, experiment_toml, write_experiment
from fedprognos.tables.lives import coded, name_of_life
from fedprognos.tables.loaded_rows import LoadedRows, load_rows
from fedprognos.tables.proposal import WHY_LEFT_OUT, NoTimeError, Proposal, propose, propose_columns
from fedprognos.tables.rows import LARGEST_WHOLE, RowReader, Rows, join_rows
from fedprognos.tables.table import PIECE, Table
from fedprognos.tables.table_files import (
    ALL_SHEETS,
    SUFFIXES,
    open_tables,
    sheet_names,
    table_from_frame,
    table_paths,
    unit_files,
)
from fedprognos.tables.times import (
    DATES_IN_S,
    MEASURES,
    SECONDS,
    date_of,
    find_time_format,
    iso,
    measure_of,
    time_measure_of,
)
from fedprognos.tables.value_rules import at_level, decimals_of_levels, fill

__all__ = [
    "ALL_SHEETS",
    "DATES_IN_S",
    "END_OF_LIFE",
    "LARGEST_WHOLE",
    "LATEST",
    "MEASURES",
    "PIECE",
    "SECONDS",
    "SUFFIXES",
    "TEST_FRACTION",
    "WHY_LEFT_OUT",
    "Columns",
    "FileFormat",
    "LoadedRows",
    "NoTimeError",
    "Policy",
    "Proposal",
    "RowReader",
    "Rows",
    "Table",
    "TableLayout",
    "Task",
    "at_level",
    "broken_off",
    "coded",
    "date_of",
    "decimals_of_levels",
    "default_path",
    "end_of_life",
    "exact_csv_parts",
    "experiment_toml",
    "fall_of_cycle",
    "fill",
    "find_time_format",
    "first_health",
    "is_worn",
    "iso",
    "join_rows",
    "literal",
    "load_rows",
    "measure_of",
    "name_of_life",
    "one_spelling",
    "open_tables",
    "pick",
    "propose",
    "propose_columns",
    "read_exact_csv",
    "sheet_names",
    "table_from_frame",
    "table_paths",
    "time_measure_of",
    "unit_files",
    "write_experiment",
]
