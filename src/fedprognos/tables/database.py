"""The one DuckDB database that reads every table, and how names and texts are written in its SQL."""

from __future__ import annotations

import atexit
import os
import tempfile
from functools import lru_cache

import duckdb

MEMORY = "500MB"
"""DuckDB keeps to this and spills to the temporary folder beyond it."""


def connection() -> duckdb.DuckDBPyConnection:
    """A cursor of its own on the database of this process."""
    return _database(os.getpid()).cursor()


@lru_cache(maxsize=1)
def _database(process: int) -> duckdb.DuckDBPyConnection:
    # A forked child inherits the cache but not DuckDB's threads, so the database belongs to a process id.
    return duckdb.connect(
        config={
            "memory_limit": MEMORY,
            "temp_directory": os.path.join(tempfile.gettempdir(), f"fedprognos-{process}"),  # noqa: PTH118
            # Tables come from anywhere: nothing in them may make DuckDB fetch or load code.
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
        }
    )


# A database that outlives the interpreter makes DuckDB's binding print a page about leaked functions.
atexit.register(_database.cache_clear)


def quoted(name: str) -> str:
    """A column's name in SQL.

    >>> quoted('a "b" c')
    '"a ""b"" c"'
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text in SQL.

    >>> literal("o'clock")
    "'o''clock'"
    """
    return "'" + text.replace("'", "''") + "'"
