"""One way from a file, folder or data frame to typed rows of units, in pieces, for training and prediction alike."""

from fedprognos.tables.columns import Columns, Policy, TableLayout, Task
from fedprognos.tables.csv_format import FileFormat
from fedprognos.tables.rows import RowReader, Rows
from fedprognos.tables.table import Table, open_tables, table_from_frame

__all__ = [
    "Columns",
    "FileFormat",
    "Policy",
    "RowReader",
    "Rows",
    "Table",
    "TableLayout",
    "Task",
    "open_tables",
    "table_from_frame",
]
