"""A unit is one machine's history; a fleet is several of them that share columns.

Two kinds of history exist. A *series* unit (engine) is one run of rows, one per operating cycle, and its
health is the remaining useful life (RUL). A *cyclic* unit (battery) is a list of cycles, each a
short series of its own, and its health is one value per cycle (capacity).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprognos.arrays import BoolArray, FloatArray, IntArray
from fedprognos.errors import DataError
from fedprognos.tables import Task

if TYPE_CHECKING:
    import pandas as pd

    from fedprognos.tables import Policy

MACHINE, START = "machine", "start"
"""Attributes of some units: the machine whose life it is, and the date of its first row."""


@dataclass(frozen=True)
class Schema:
    """What the columns of every unit in a fleet are called and measured in.

    Examples
    --------
    >>> Schema(task="soh", sensors=("voltage", "temperature"), target="capacity", target_measure="Ah").sensors
    ('voltage', 'temperature')
    """

    task: Task
    sensors: tuple[str, ...]
    settings: tuple[str, ...] = ()
    time: str = "cycle"
    time_measure: str = "cycles"
    target: str = "rul"
    target_measure: str = "cycles"
    health: str | None = None
    """Task forecast: the sensor whose later value is the label, and how much later in `time_measure`."""
    ahead: float | None = None

    def __post_init__(self) -> None:
        names = [*self.sensors, *self.settings]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise DataError(
                f"column used twice: {', '.join(twice)}", hint="each column is a sensor or an operating setting"
            )
        if not self.sensors:
            raise DataError("no sensor columns", hint="name at least one sensor")


@dataclass(frozen=True, eq=False)
class Unit:
    """One machine's history.

    Parameters
    ----------
    id
        Name, unique in its fleet.
    time : (T,)
        Cycle number of each row (series) or seconds since the cycle began (cyclic).
    sensors : (T, C)
    settings : (T, S)
        Operating settings; S may be 0.
    target
        Known health values: (T,) for a series unit with its own label column, (K,) one per cycle
        for a cyclic unit, None where RUL follows from the end of life.
    failed
        Whether the history ends with the end of life; False means censored.
    rul_at_end
        RUL at the last row where known: 0 for failed units, a positive number for benchmark test units.
    cycles : (K + 1,) or None
        Row offsets of the cycles of a cyclic unit: cycle k is rows cycles[k]:cycles[k + 1].
    cycle_numbers : (K,) or None
        Number of each cycle in the unit's life, from 1.
    attributes
        Facts about the whole unit: site, ambient temperature, cut-off voltage.
    """

    id: str
    time: FloatArray
    sensors: FloatArray
    settings: FloatArray
    target: FloatArray | None = None
    failed: bool = True
    rul_at_end: float | None = None
    cycles: IntArray | None = None
    cycle_numbers: IntArray | None = None
    attributes: Mapping[str, str | float] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return len(self.time)

    @property
    def is_cyclic(self) -> bool:
        return self.cycles is not None

    @property
    def lifespan(self) -> float:
        """Length of the recorded history in cycles."""
        if self.cycle_numbers is not None:
            return float(self.cycle_numbers[-1])
        return float(self.time[-1])

    @property
    def positions(self) -> FloatArray:
        """Cycle number of every labelled point: rows of a series unit, cycles of a cyclic one."""
        if self.cycle_numbers is not None:
            return self.cycle_numbers.astype(np.float64)
        return self.time

    def labels(self) -> FloatArray | None:
        """Uncapped health of every labelled point (see :attr:`positions`), None where unknown.

        Examples
        --------
        >>> u = Unit("e1", np.array([1., 2., 3.]), np.ones((3, 1)), np.empty((3, 0)), rul_at_end=0.0)
        >>> u.labels()
        array([2., 1., 0.])
        """
        if self.target is not None:
            return self.target
        if self.is_cyclic or self.rul_at_end is None:
            return None
        labels: FloatArray = self.rul_at_end + (self.time[-1] - self.time)
        return labels

    def cycle(self, k: int) -> slice:
        """Rows of the k-th stored cycle of a cyclic unit."""
        if self.cycles is None:
            raise DataError("not a cyclic unit", where=f"unit {self.id}")
        return slice(int(self.cycles[k]), int(self.cycles[k + 1]))

    def select_cycles(self, start: int, stop: int) -> Unit:
        """The same cyclic unit with stored cycles start:stop only."""
        if self.cycles is None or self.cycle_numbers is None:
            raise DataError("not a cyclic unit", where=f"unit {self.id}")
        rows = slice(int(self.cycles[start]), int(self.cycles[stop]))
        return replace(
            self,
            time=self.time[rows],
            sensors=self.sensors[rows],
            settings=self.settings[rows],
            target=None if self.target is None else self.target[start:stop],
            cycles=self.cycles[start : stop + 1] - self.cycles[start],
            cycle_numbers=self.cycle_numbers[start:stop],
        )

    def keep_cycles(self, kept: BoolArray) -> Unit:
        """The same cyclic unit with some of its stored cycles only, (K,); the others leave a gap in the numbers."""
        if self.cycles is None or self.cycle_numbers is None:
            raise DataError("not a cyclic unit", where=f"unit {self.id}")
        lengths = np.diff(self.cycles)
        rows = np.repeat(kept, lengths)
        return replace(
            self,
            time=self.time[rows],
            sensors=self.sensors[rows],
            settings=self.settings[rows],
            target=None if self.target is None else self.target[kept],
            cycles=np.concatenate([[0], np.cumsum(lengths[kept])]).astype(np.int64),
            cycle_numbers=self.cycle_numbers[kept],
        )

    def select_rows(self, stop: int) -> Unit:
        """The same series unit as it was after its first `stop` rows (its RUL then becomes `rul_at_end`)."""
        if self.is_cyclic:
            raise DataError("a cyclic unit is cut by cycles, not rows", where=f"unit {self.id}")
        labels = self.labels()
        return replace(
            self,
            time=self.time[:stop],
            sensors=self.sensors[:stop],
            settings=self.settings[:stop],
            target=None if self.target is None else self.target[:stop],
            rul_at_end=None if labels is None else float(labels[stop - 1]),
            failed=self.failed and stop >= self.rows,
        )


@dataclass(frozen=True, eq=False)
class Fleet:
    """Several units with the same columns.

    Examples
    --------
    >>> unit = Unit("e1", np.array([1., 2.]), np.ones((2, 1)), np.empty((2, 0)), rul_at_end=0.0)
    >>> fleet = Fleet("plant", Schema("rul", ("vibration",)), (unit,))
    >>> len(fleet), fleet["e1"].rows
    (1, 2)
    """

    name: str
    schema: Schema
    units: tuple[Unit, ...]
    source: str = ""
    notes: tuple[str, ...] = ()
    """What people should know about how the data was read, such as filled blanks."""

    def __post_init__(self) -> None:
        from fedprognos.fleet.checks import check_fleet

        check_fleet(self)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        time: str,
        unit: str | None = None,
        task: Task = "rul",
        time_measure: str | None = None,
        cycle: str | None = None,
        sensors: Sequence[str] | None = None,
        settings: Sequence[str] = (),
        site: str | None = None,
        target: str | None = None,
        failed: str | None = None,
        missing: Policy | Mapping[str, Policy] = "hold",
        name: str = "frame",
        require_labels: bool = True,
        **more: Any,
    ) -> Fleet:
        """A fleet from the rows of a data frame, checked as files are.

        Parameters
        ----------
        time, unit, task, time_measure, cycle, sensors, settings, site, target, failed, missing
            Which column is what; see :class:`fedprognos.tables.columns.Columns`. Without `unit` all rows are one
            unit called `name`.
        more
            Other options of that class: `time_format`, `life`, `new_life`, `target_measure`.
        require_labels
            Refuse data nothing can be learnt from; False reads a fleet to be predicted.

        Raises
        ------
        DataError
            For the first thing wrong with the rows, naming row (counted from 0), column and unit.
        ConfigError
            For columns that contradict each other.

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"pump": ["a", "a", "b", "b"], "hour": [1, 2, 1, 2], "heat": [20.0, 25, 21, 26]})
        >>> fleet = Fleet.from_frame(frame, unit="pump", time="hour")
        >>> fleet.ids, fleet.schema.sensors, fleet["b"].labels()
        (('a', 'b'), ('heat',), array([1., 0.]))
        """
        from fedprognos.fleet.from_tables import fleet_from_tables
        from fedprognos.options import validated
        from fedprognos.tables import Columns, table_from_frame

        if not (hasattr(frame, "columns") and len(frame)):
            what = "no rows" if hasattr(frame, "columns") else f"a {type(frame).__name__} is no data frame"
            raise DataError(what, where=name, hint="give a pandas.DataFrame, a row for each machine and moment")
        more |= {"time": time, "time_measure": time_measure, "unit": unit, "task": task, "cycle": cycle, "site": site}
        more |= {"sensors": sensors, "settings": settings, "target": target, "failed": failed, "missing": missing}
        columns = validated(Columns, more, "Fleet.from_frame")
        return fleet_from_tables([table_from_frame(frame, name)], columns, name=name, require_labels=require_labels)

    def __repr__(self) -> str:
        """The same as :meth:`__str__`: a notebook shows this."""
        return str(self)

    def __str__(self) -> str:
        """What the fleet holds, a line a fact.

        >>> unit = Unit("e1", np.array([1., 2.]), np.ones((2, 1)), np.empty((2, 0)), rul_at_end=0.0)
        >>> print(Fleet("plant", Schema("rul", ("vibration",)), (unit,)))
        fleet    plant
        units    1 (e1)
        rows     2, 2 a unit
        sensors  vibration
        labels   rul in cycles, 1 of 1 units
        """
        shown = ", ".join(self.ids[:3]) + (", ..." if len(self) > 3 else "")
        lengths = sorted(unit.rows for unit in self.units)
        spread = f"{lengths[0]}" if lengths[0] == lengths[-1] else f"{lengths[0]} to {lengths[-1]}"
        labelled = sum(unit.labels() is not None for unit in self.units)
        sites = sorted({str(unit.attributes["site"]) for unit in self.units if "site" in unit.attributes})
        facts = {
            "fleet": self.name,
            "units": f"{len(self)} ({shown})",
            "sites": ", ".join(sites[:5]) + (", ..." if len(sites) > 5 else ""),
            "rows": f"{self.rows}, {spread} a unit",
            "sensors": ", ".join(self.schema.sensors),
            "settings": ", ".join(self.schema.settings),
            "labels": f"{self.schema.target} in {self.schema.target_measure}, {labelled} of {len(self)} units",
        }
        return "\n".join(f"{name:<8} {fact}" for name, fact in facts.items() if fact)

    def to_frame(self) -> pd.DataFrame:
        """All rows as a data frame, which :meth:`from_frame` reads: unit, time, sensors, settings and label.

        >>> import pandas as pd
        >>> frame = pd.DataFrame({"pump": ["a", "a"], "hour": [1, 2], "heat": [20.0, 25.0]})
        >>> Fleet.from_frame(frame, unit="pump", time="hour").to_frame()
          unit  hour  heat  rul
        0    a   1.0  20.0  1.0
        1    a   2.0  25.0  0.0
        """
        import pandas as pd

        parts = []
        for unit in self.units:
            labels = unit.labels()
            columns: dict[str, Any] = {"unit": unit.id}
            if unit.cycles is not None and unit.cycle_numbers is not None:
                lengths = np.diff(unit.cycles)
                columns["cycle"] = np.repeat(unit.cycle_numbers, lengths)
                labels = None if labels is None else np.repeat(labels, lengths)
            columns[self.schema.time] = unit.time
            columns |= dict(zip(self.schema.sensors, unit.sensors.T, strict=True))
            columns |= dict(zip(self.schema.settings, unit.settings.T, strict=True))
            columns[self.schema.target] = np.nan if labels is None else labels
            if "site" in unit.attributes:
                columns["site"] = unit.attributes["site"]
            parts.append(pd.DataFrame(columns, index=range(unit.rows)))
        return pd.concat(parts, ignore_index=True)

    def __len__(self) -> int:
        return len(self.units)

    def __iter__(self) -> Iterator[Unit]:
        return iter(self.units)

    def __getitem__(self, unit_id: str) -> Unit:
        for unit in self.units:
            if unit.id == unit_id:
                return unit
        shown = ", ".join(self.ids[:5]) + (", ..." if len(self.ids) > 5 else "")
        raise DataError(f"no unit '{unit_id}'", where=f"fleet {self.name}", hint=f"units here: {shown}")

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(unit.id for unit in self.units)

    @property
    def rows(self) -> int:
        return sum(unit.rows for unit in self.units)

    def select(self, units: Iterable[Unit | str], name: str | None = None) -> Fleet:
        """A fleet of some of the units, given as units or ids."""
        by_id = {unit.id: unit for unit in self.units}
        chosen = tuple(by_id[u] if isinstance(u, str) else u for u in units)
        return replace(self, units=chosen, name=name or self.name)

    def with_sensors(self, sensors: Sequence[str]) -> Fleet:
        """The same fleet with these sensor columns only, in this order."""
        missing = [s for s in sensors if s not in self.schema.sensors]
        if missing:
            raise DataError(
                f"no sensor {', '.join(map(repr, missing))}",
                where=f"fleet {self.name}",
                hint=f"sensors here: {', '.join(self.schema.sensors)}",
            )
        order = [self.schema.sensors.index(s) for s in sensors]
        units = tuple(replace(u, sensors=np.ascontiguousarray(u.sensors[:, order])) for u in self.units)
        return replace(self, schema=replace(self.schema, sensors=tuple(sensors)), units=units)


def pool(fleets: Iterable[Fleet], name: str = "pooled") -> Fleet:
    """One fleet of all units of several (what central training is given)."""
    many = list(fleets)
    if not many:
        raise DataError("no fleets to pool")
    return Fleet(name, many[0].schema, tuple(u for f in many for u in f.units), many[0].source)
