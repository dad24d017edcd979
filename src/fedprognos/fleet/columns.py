"""Which column of a table is what."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from fedprognos.errors import ConfigError
from fedprognos.fleet.unit import Task
from fedprognos.options import Options


class Columns(Options):
    """Which column of a table is what.

    Parameters
    ----------
    time
        Cycle number of each row (task `rul`), or time within a cycle (task `soh`).
    unit
        Machine; None where every file is one unit, named like the file.
    cycle
        Number of the cycle a row belongs to; task `soh` only.
    sensors
        None means every numeric column that has no other role.
    settings
        Operating settings, such as altitude.
    site
        Owner or plant. Where it is None and there are several files of units, the file's name is the site.
    target
        Label: RUL of each row, or the health of each cycle (the same in all its rows). None derives RUL
        from the end of each unit's history.
    failed
        Whether the unit's history ends in failure (in every row or in the last one); None means all do.

    Examples
    --------
    >>> Columns(unit="machine", time="hour", sensors=("vibration",)).task
    'rul'
    """

    task: Task = "rul"
    unit: str | None = None
    time: str
    cycle: str | None = None
    sensors: tuple[str, ...] | None = None
    settings: tuple[str, ...] = ()
    site: str | None = None
    target: str | None = None
    failed: str | None = None

    @model_validator(mode="after")
    def _roles_agree(self) -> Self:
        if self.task == "soh" and self.cycle is None:
            raise ConfigError("task 'soh' needs the column of the cycle number", hint="set cycle = '...'")
        if self.task == "rul" and self.cycle is not None:
            raise ConfigError(
                "task 'rul' takes no 'cycle' column", hint="for RUL the cycle number is the time: time = '...'"
            )
        used = [*self.roles, *(self.sensors or ())]
        twice = sorted({c for c in used if used.count(c) > 1})
        if twice:
            raise ConfigError(f"column '{twice[0]}' is given two roles", hint="a column can have one role only")
        return self

    @property
    def roles(self) -> tuple[str, ...]:
        """Every column named except the sensors."""
        single = (self.unit, self.time, self.cycle, self.site, self.target, self.failed)
        return (*(c for c in single if c is not None), *self.settings)
