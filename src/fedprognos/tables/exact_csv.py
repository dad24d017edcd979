"""Reading CSV so that every float comes back as it was written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

_VERSION = tuple(int(n) for n in re.findall(r"\d+", pd.__version__)[:2])
_EXACT: dict[str, Any] = {} if _VERSION >= (3, 1) else {"float_precision": "round_trip"}  # 3.1 reads exactly by itself


def read_exact_csv(path: Path, **options: Any) -> pd.DataFrame:
    """:func:`pandas.read_csv` with floats that round-trip, whatever the version of pandas."""
    frame: pd.DataFrame = pd.read_csv(path, **options, **_EXACT)
    return frame


def exact_csv_parts(path: Path, rows: int, **options: Any) -> Iterator[pd.DataFrame]:
    """:func:`read_exact_csv`, so many rows at a time."""
    with pd.read_csv(path, chunksize=rows, **options, **_EXACT) as parts:
        yield from parts
