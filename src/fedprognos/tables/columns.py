"""Which column of a table is what, in what it is measured, and what stands in for blank cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from fedprognos.errors import ConfigError, unknown_name
from fedprognos.options import Options
from fedprognos.tables.csv_format import FileFormat
from fedprognos.tables.cycle_rules import END_OF_LIFE
from fedprognos.tables.times import MEASURES, time_measure_of

Task = Literal["rul", "soh", "forecast"]
Policy = Literal["hold", "interpolate", "mean", "refuse"]
"""What stands in for a blank cell. `hold`: the unit's last value; before its first one, the mean of the operating
condition. `interpolate`: the line between the neighbours in time; beyond them, the nearest (in a prediction, where the
next value has not come yet, the last one). `mean`: the mean of the operating condition. `refuse`: it is an error."""


class Columns(Options):
    """Which column of a table is what.

    Parameters
    ----------
    task
        Remaining useful life (`rul`), the health of each cycle (`soh`), or a column some time ahead (`forecast`).
    time
        Time of each row, or time within a cycle (task `soh`): a number, a date or an epoch time.
    time_measure
        Measure of the time: one of :data:`MEASURES`. None takes it from the column's name. Dates become time since
        the unit's first row, in seconds, minutes, hours, days or weeks.
    time_format
        `number`, `iso`, `epoch`, `epoch-ms`, `excel` (days as Excel counts them), or a pattern such as
        `%d.%m.%Y %H:%M`; None finds out, but for `excel`.
    clock
        Time of day, where `time` holds the date alone.
    sort
        Put the rows of each unit in the order of time; otherwise rows out of order are refused.
    unit
        Machine; None where every file is one unit, named like the file.
    life, new_life
        A machine that was repaired and ran again is several units, one a life. `life` is the column that counts them;
        without it `new_life` says where one begins: where the `time` goes back, or after a row that says `failed`.
    cycle
        Number of the cycle a row belongs to; task `soh` only. Where every cycle is one row, it is the time as well.
    sensors
        None means every numeric column that has no other role.
    settings
        Operating settings, such as altitude.
    missing
        What stands in for blank cells of sensors and settings (:data:`Policy`): one for all
        sensors, or one for each named column; `hold` for the others.
    site
        Owner or plant. Where it is None and there are several files of units, the file's name is the site. Plants may
        number their machines alike: a name whose clock begins anew at a second site is another machine, `south/1`.
    target, target_measure
        Label and its measure: RUL of each row, or the health of each cycle (the same in all its rows). None derives RUL
        from the end of each unit's history.
    failed
        Whether the unit's history ends in failure (in every row or in the last one); None means all do. A unit that has
        not failed is used for scaling and is given no label.
    health, end_of_life
        A sensor that fades as a unit wears, such as the capacity of a cell; task `rul` only. A life then ends at the
        first row where it stays below the share `end_of_life` of its first value, not with the last row. Task
        `forecast`: the sensor that is predicted.
    ahead
        How far ahead it is predicted, in the measure of time; task `forecast` only.

    Examples
    --------
    >>> Columns(unit="machine", time="hour", sensors=("vibration",)).task
    'rul'
    """

    task: Task = "rul"
    unit: str | None = None
    time: str
    time_measure: str | None = None
    time_format: str | None = None
    clock: str | None = None
    sort: bool = False
    life: str | None = None
    new_life: Literal["time", "failed"] | None = None
    cycle: str | None = None
    sensors: tuple[str, ...] | None = None
    settings: tuple[str, ...] = ()
    missing: Policy | Mapping[str, Policy] = "hold"
    site: str | None = None
    target: str | None = None
    target_measure: str | None = None
    failed: str | None = None
    health: str | None = None
    end_of_life: Annotated[float, Field(gt=0.0, lt=1.0)] = END_OF_LIFE
    ahead: PositiveFloat | None = None

    @model_validator(mode="after")
    def _roles_agree(self) -> Self:
        if self.time_measure not in (None, *MEASURES, time_measure_of(self.time)):
            error = unknown_name("time measure", self.time_measure, MEASURES)
            raise ConfigError(error.what, hint=f"{error.hint}; a column's name may end in another: {self.time}_in_...")
        if self.task == "soh" and self.cycle is None:
            raise ConfigError("task 'soh' needs the column of the cycle number", hint="set cycle = '...'")
        if self.task != "soh" and self.cycle is not None:
            raise ConfigError(
                f"task '{self.task}' takes no 'cycle' column", hint="the cycle number is the time: time = '...'"
            )
        if (self.task == "forecast") != (self.ahead is not None) or (self.ahead is not None and self.health is None):
            hint = "give all three, such as task = 'forecast', health = 'capacity', ahead = 50"
            raise ConfigError("a forecast needs its task, the column and how far ahead it is predicted", hint=hint)
        if self.health is not None and (self.task == "soh" or self.target is not None or self.failed is not None):
            hint = "leave out health, or target and failed; task 'soh' names the health as its target"
            raise ConfigError("health says what is predicted; target, failed and task 'soh' say it, too", hint=hint)
        if self.health is not None and self.sensors is not None and self.health not in self.sensors:
            raise ConfigError(f"health = '{self.health}' is not among the sensors", hint="add it to sensors")
        if self.new_life == "failed" and self.failed is None:
            raise ConfigError("new_life = 'failed' needs the column of failures", hint="set failed = '...'")
        if self.new_life is not None and (self.life is not None or self.unit is None or self.task == "soh"):
            raise ConfigError("new_life is for task 'rul' with a unit column and without a life column")
        if self.sort and self.new_life == "time":
            hint = "leave out sort, or new_life"
            raise ConfigError("sorted rows never go back in time, so new_life = 'time' finds no life", hint=hint)
        used = [*self.roles, *(self.sensors or ())]
        twice = sorted({c for c in used if used.count(c) > 1})
        if twice:
            raise ConfigError(f"column '{twice[0]}' is given two roles", hint="a column can have one role only")
        if "mean" in self.policies(self.settings):
            raise ConfigError("an operating setting cannot be filled with a mean", hint="use 'hold' or 'refuse'")
        return self

    @property
    def roles(self) -> tuple[str, ...]:
        """Every column named except the sensors."""
        cycle = None if self.cycle == self.time else self.cycle  # a row a cycle
        single = (self.unit, self.time, self.clock, self.life, cycle, self.site, self.target, self.failed)
        return (*(c for c in single if c is not None), *self.settings)

    @property
    def text(self) -> tuple[str, ...]:
        """Columns of names, which keep their text."""
        return tuple(c for c in (self.unit, self.life, self.site) if c is not None)

    def policies(self, columns: Sequence[str]) -> tuple[Policy, ...]:
        """What stands in for blank cells of these sensors or settings."""
        if isinstance(self.missing, str):
            of_settings: Policy = "refuse" if self.missing == "refuse" else "hold"  # a level is held, never averaged
            return tuple(of_settings if c in self.settings else self.missing for c in columns)
        return tuple(self.missing.get(c, "hold") for c in columns)


class TableLayout(Columns, FileFormat):
    """What a model remembers of the tables it was trained on, so that new ones are read in the same way.

    Examples
    --------
    >>> layout = TableLayout(unit="pump", time="hour", missing={"heat": "mean"})
    >>> layout.policies(("heat", "flow"))
    ('mean', 'hold')
    """
