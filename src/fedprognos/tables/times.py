"""Times of rows: numbers as they stand, dates and epoch times as seconds since 1970, elapsed times as seconds.

Dates are parsed by pandas, not by DuckDB: its patterns, offsets and fractions of seconds are those of the date columns
of data frames, and one column costs little.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from fedprognos.arrays import FloatArray
from fedprognos.errors import ConfigError
from fedprognos.tables.table import Table

SECONDS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0, "weeks": 604800.0}
"""Measures of the time since a date."""
EPOCHS = {"epoch": 1.0, "epoch-ms": 1e-3, "epoch-us": 1e-6, "epoch-ns": 1e-9}
"""Seconds in one step of each."""
EXCEL, _EXCEL_1970 = "excel", 25569
"""Days as Excel counts them, and its number for the first day of 1970."""
COMPACT = "%Y%m%d"
"""Dates as numbers such as 20240501."""
ELAPSED, _ELAPSED = "elapsed", r"(\d+ days? )?\d+:[0-5]\d:[0-5]\d(\.\d+)?"
"""Hours, minutes and seconds that go on past 24 hours, such as 125:30:00."""
DATES_IN_S = 9.4e8
"""A number above this is a date of these decades, in seconds since 1970."""
_UNTIL = 4.1e9
_FIRST = 1000
"""So many cells are looked at first, and all of them only if these look like dates."""
_PATTERNS = tuple(
    day + time
    for day in (
        "%d.%m.%Y",
        "%d/%m/%Y",
        "%m/%d/%Y",
        "%d-%m-%Y",
        "%Y/%m/%d",
        "%Y.%m.%d",
        "%d.%m.%y",
        "%m/%d/%y",
        "%d/%m/%y",
        "%d-%b-%Y",
        "%d-%b-%y",
        "%d %b %Y",
    )
    for time in ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M:%S %p", " %I:%M %p")
)
_NAMES = {
    "seconds": "s sec secs second seconds",
    "minutes": "min mins minute minutes",
    "hours": "h hr hrs hour hours std stunde stunden betriebsstunden heure heures hora horas godzina godziny ora ore "
    "uur uren",
    "days": "d day days tag tage jour jours dia dias dzien dni giorno giorni dag dagen",
    "weeks": "week weeks woche wochen",
    "months": "month months monat monate",
    "years": "year years jahr jahre",
    "km": "km mileage odometer kilometer",
    "flights": "flight flights",
    "cycles": "cycle cycles zyklus zyklen ciclo ciclos cykl cykle cicli cyclus",
}
MEASURES = (*_NAMES, "steps", "miles", "rotations", "strokes", "starts", "landings", "operations", "pieces", "shots")
"""Measures of time that an experiment file may name; others come from a column's name, such as `age_in_furlongs`."""
_MEASURES = {word: measure for measure, words in _NAMES.items() for word in words.split()}


def time_format(series: pd.Series) -> str:
    """How a column writes times: `number`, `elapsed`, one of :data:`EPOCHS`, `iso`, or a pattern such as `%d.%m.%Y`.

    Raises
    ------
    ConfigError
        Where day and month cannot be distinguished.

    Examples
    --------
    >>> time_format(pd.Series([1, 2])), time_format(pd.Series(["2024-05-01", "2024-05-02T13:00"]))
    ('number', 'iso')
    >>> time_format(pd.Series([1714521600, 1714525200])), time_format(pd.Series(["31.12.2024 23:59"]))
    ('epoch', '%d.%m.%Y %H:%M')
    >>> time_format(pd.Series(["23:30:00", "125:30:00", "5 days 06:00:00"]))
    'elapsed'
    """
    if pd.api.types.is_datetime64_any_dtype(series):
        return "iso"
    numbers = pd.to_numeric(series, errors="coerce")
    if numbers.notna().mean() > 0.5:
        for kind, seconds in EPOCHS.items():
            if float(numbers.min()) * seconds > DATES_IN_S and float(numbers.max()) * seconds < _UNTIL:
                return kind
        return "number"
    texts = series.dropna().astype(str).str.strip()
    if not texts.empty and _parsed(texts, "iso").notna().mean() > 0.5:
        return "iso"
    if not texts.empty and texts.str.fullmatch(_ELAPSED).all():
        return ELAPSED
    fitting = [p for p in _PATTERNS if _parsed(texts.iloc[:1], p).notna().all() and _parsed(texts, p).notna().all()]
    if len(fitting) > 1:
        raise ConfigError(
            f"'{texts.iloc[0]}' can be {' or '.join(fitting)}", hint=f"say which: data.time_format = '{fitting[0]}'"
        )
    return fitting[0] if fitting else "number"


def find_time_format(table: Table, column: str, clock: str | None) -> str:
    """How a table writes its times. A text of every day counts: only days after the 12th tell 01/02 from 02/01."""
    if table.kind(column) == "date":
        return "iso"
    if clock is None and table.kind(column) == "number":
        lowest, highest = table.query([f"{f}({table.number(column)})" for f in ("min", "max")])[0]
        return "number" if lowest is None else time_format(pd.Series([lowest, highest]))
    text = time_expression(table, column, "iso", clock)
    number = table.number(column) if clock is None else "CAST('inf' AS DOUBLE)"
    finite = f"CASE WHEN isfinite({number}) THEN {number} END"
    wanted = [f"count({text})", f"count({finite})", f"min({finite})", f"max({finite})"]
    count, numbers, lowest, highest = table.query(wanted)[0]
    if numbers > count / 2:
        return time_format(pd.Series([lowest, highest]))
    if not count:
        return "number"
    days = table.query([f"min({text})"], f"GROUP BY regexp_extract({text}, '^[^ T]*') ORDER BY min(n)")
    return time_format(pd.Series([day for (day,) in days if day is not None], dtype=object))


def time_expression(table: Table, column: str, form: str, clock: str | None) -> str:
    """A column of times as SQL: numbers, nanoseconds since 1970, or texts with the time of day behind the date."""
    if clock is not None:
        return f"{table.day(column)} || ' ' || {table.text(clock)}"
    if form in ("number", EXCEL, *EPOCHS):
        return table.number(column)
    return table.nanoseconds(column) if table.kind(column) == "date" else table.text(column)


def seconds_since_1970(cells: pd.Series, form: str) -> FloatArray:
    """Dates and elapsed times as :func:`time_expression` gives them, (rows,); NaN where a text is none."""
    if form == EXCEL:
        return (cells.to_numpy(np.float64) - _EXCEL_1970) * SECONDS["days"]
    if form in EPOCHS:
        return cells.to_numpy(np.float64) * EPOCHS[form]
    if pd.api.types.is_numeric_dtype(cells):
        return cells.to_numpy(np.float64, na_value=np.nan) / 1e9
    if form == ELAPSED:
        texts = cells.astype(str).str.strip()
        elapsed = pd.to_timedelta(texts.where(texts.str.fullmatch(_ELAPSED)), errors="coerce")
        return np.asarray(elapsed.dt.total_seconds(), dtype=np.float64)
    dates = _parsed(cells, form)
    seconds = dates.dt.tz_localize(None).to_numpy("datetime64[ns]").astype(np.int64) / 1e9
    return np.where(dates.isna(), np.nan, seconds)


def date_format(series: pd.Series) -> str | None:
    """How a column writes dates; None for other columns."""
    if pd.api.types.is_numeric_dtype(series) or series.isna().any():
        return None
    if not pd.api.types.is_datetime64_any_dtype(series) and not any(c.isdigit() for c in str(series.iloc[0])):
        return None
    form = "number"
    for part in (series.iloc[:_FIRST], series):  # most columns of texts are no dates, which the first ones show
        try:
            form = time_format(part)
        except ConfigError:  # day and month cannot be distinguished, unless later days tell
            form = "unclear"
        if form == "number":
            return None
    return None if form == "unclear" else form


def is_excel_days(column: str, series: pd.Series) -> bool:
    """Whether a column of numbers that is called a date counts days as Excel does, in these decades.

    >>> is_excel_days("Datum", pd.Series([45413.5, 45414.0])), is_excel_days("hours", pd.Series([45413.5, 45414.0]))
    (True, False)
    """
    words = re.split(r"[^a-z]+", column.lower())
    called = any(word in ("date", "datum", "datetime", "timestamp", "zeitstempel", "fecha") for word in words)
    first, last = ((DATES_IN_S, _UNTIL)[k] / SECONDS["days"] + _EXCEL_1970 for k in (0, 1))
    return called and bool(series.between(first, last).all())


def is_compact_dates(series: pd.Series) -> bool:
    """Whether a column of numbers holds dates of these decades such as 20240501.

    >>> is_compact_dates(pd.Series([20240229, 20240301])), is_compact_dates(pd.Series([20240229, 20240230]))
    (True, False)
    """
    first, last = (int(pd.Timestamp(seconds, unit="s").strftime(COMPACT)) for seconds in (DATES_IN_S, _UNTIL))
    if not series.between(first, last).all() or not (series == series.round()).all():
        return False
    days = pd.Series(series.unique()).astype(np.int64).astype(str)
    return bool(_parsed(days, COMPACT).notna().all())


def is_clock(series: pd.Series) -> bool:
    """Whether a column holds times of day.

    >>> is_clock(pd.Series(["06:30", "18:00:05"])), is_clock(pd.Series(["2024-05-01 06:30"]))
    (True, False)
    """
    if pd.api.types.is_numeric_dtype(series) or series.isna().any():
        return False
    pattern = r"[0-2]?\d:[0-5]\d(:[0-5]\d(\.\d+)?)?"
    return all(part.astype(str).str.strip().str.fullmatch(pattern).all() for part in (series.iloc[:_FIRST], series))


def iso(seconds: float) -> str:
    """A date as text.

    >>> iso(1714521600.0)
    '2024-05-01T00:00:00'
    """
    return pd.Timestamp(seconds, unit="s").isoformat(timespec="seconds")


def date_of(time: float, measure: str) -> str | None:
    """The date of a time counted from 1970 in a measure, None for times counted from elsewhere.

    >>> date_of(476256.0, "hours"), date_of(120.0, "hours"), date_of(476256.0, "cycles")
    ('2024-05-01T00:00:00', None, None)
    """
    seconds = time * SECONDS.get(measure, 0.0)
    return iso(seconds) if DATES_IN_S < seconds < _UNTIL else None


def measure_of(column: str) -> str | None:
    """Measure that ends a column's name.

    >>> measure_of("capacity_in_Ah"), measure_of("Load [kN]"), measure_of("capacity_Ah"), measure_of("capacity")
    ('Ah', 'kN', 'Ah', None)
    """
    named = re.search(r"_in_(\w+)$|[\[(]([^\])]+)[\])]\s*$|[_ ](m?Ah|k?Wh|%)$", column)
    return str(named[1] or named[2] or named[3]) if named else None


def time_measure_of(column: str) -> str | None:
    """Measure that the name of a column of times states.

    >>> time_measure_of("operatingHours"), time_measure_of("age_in_d"), time_measure_of("t")
    ('hours', 'days', None)
    """
    measure = measure_of(column)
    if measure is not None:
        return _MEASURES.get(measure, measure)
    words = re.split(r"[^a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", column).lower())
    return next((_MEASURES[word] for word in words if word in _MEASURES), None)


def fitting_measure(step_in_s: float) -> str:
    """A measure for histories with a row every so many seconds.

    >>> fitting_measure(86400.0), fitting_measure(600.0), fitting_measure(1.0)
    ('days', 'hours', 'seconds')
    """
    return (
        "days" if step_in_s >= 36000 else "hours" if step_in_s >= 300 else "minutes" if step_in_s >= 10 else "seconds"
    )


def _parsed(series: pd.Series, form: str) -> pd.Series:
    return pd.to_datetime(series, format="ISO8601" if form == "iso" else form, errors="coerce", utc=True)
