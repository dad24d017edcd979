"""What a model remembers of the tables it was trained on, so that new ones are read the same way without a word."""

from __future__ import annotations

from fedprognos.fleet.columns import Columns
from fedprognos.fleet.file_format import FileFormat


class TableLayout(Columns, FileFormat):
    """Which column is what, how files are written, and what stands in for blank cells.

    Examples
    --------
    >>> layout = TableLayout(unit="pump", time="hour", missing={"heat": "mean"})
    >>> layout.policies(("heat", "flow"))
    ('mean', 'hold')
    """
