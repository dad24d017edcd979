"""What every reader promises, and that one from outside the package is used like the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from fedprognos.errors import ConfigError
from fedprognos.experiment import config
from fedprognos.experiment.scenario import scenarios, training_scenario
from fedprognos.fleet import Fleet, Schema, Unit
from fedprognos.fleet.readers import ReadContext, Reader, ReaderOptions, Source, read, readers
from refusals import refuses

SMALL: dict[str, dict[str, Any]] = {
    "synthetic-engines": {"units_per_site": 1, "test_units_per_site": 1},
    "synthetic-batteries": {"units_per_site": 1},
    "cmapss": {"subset": "FD001"},
    "nasa-battery": {"batteries": ["B0018"]},
    "table": {"path": "fleet.csv", "unit": "pump", "time": "hour"},
}


class PumpOptions(ReaderOptions):
    """Pumps that get louder until they fail."""

    kind: Literal["pumps"] = "pumps"
    pumps: int = 4
    hours: int = 30


def read_pumps(options: PumpOptions, context: ReadContext) -> Source:
    time = np.arange(1.0, options.hours + 1)
    units = [Unit(f"p{k}", time, time[:, None] + k, np.empty((len(time), 0)), rul_at_end=0.0) for k in range(9)]
    fleet = Fleet("pumps", Schema("rul", ("noise",), time_measure="hours"), tuple(units[: options.pumps]))
    return Source(fleet, fleet.select(["p0"], "test") if context.tested else None)


PUMPS = Reader("pumps", "pumps that get louder", PumpOptions, read_pumps)


@pytest.mark.needs_data
@pytest.mark.parametrize("name", list(readers))
def test_every_reader_reads_the_same_twice_and_leaves_test_files_alone(name: str, tmp_path: Path) -> None:
    lines = [f"{pump},{hour},{hour / 2}" for pump in "abc" for hour in range(1, 5)]
    (tmp_path / "fleet.csv").write_text("pump,hour,heat\n" + "\n".join(lines))
    options = readers[name].options.model_validate(SMALL[name])
    one, two = (read(options, ReadContext(folder=tmp_path)) for _ in range(2))
    assert one.fleet.ids == two.fleet.ids
    for unit in one.fleet:
        assert np.array_equal(unit.sensors, two.fleet[unit.id].sensors)
    assert (one.test is None) != (one.test_fraction is None)
    assert one.test is None or not set(one.test.ids) & set(one.fleet.ids)
    assert read(options, ReadContext(folder=tmp_path, tested=False)).test is None


@pytest.mark.parametrize("name", list(readers))
def test_every_reader_has_a_label_and_options_with_a_docstring(name: str) -> None:
    assert readers[name].label
    assert readers[name].options.__doc__
    assert readers[name].options.model_validate(SMALL[name]).kind == name


def test_a_reader_from_outside_is_used_like_the_others(tmp_path: Path) -> None:
    document = {"data": {"kind": "pumps", "pumps": 3}, "partition": {"by": "unit"}}
    with refuses(ConfigError, "'pumps'"):
        config.parse(document, "pumps.toml")
    with readers.including([PUMPS]):
        experiment = config.parse(document, "pumps.toml")
        assert experiment.data == PumpOptions(pumps=3)
        assert experiment.dump()["data"] == {"kind": "pumps", "pumps": 3, "hours": 30}
        found = scenarios(experiment, None, tmp_path)["all"]
        assert list(found.clients) == ["p0", "p1", "p2"]
        assert found.tests["all"].ids == ("p0",)
        assert training_scenario(experiment, "all", None, tmp_path).tests == {}
    assert "pumps" not in readers


@pytest.mark.parametrize(
    ("data", "values"),
    [
        ({"kind": "tabel"}, ("data.kind", "'tabel'", "'table'")),
        ({"path": "fleet.csv"}, ("data.kind",)),
        ({"kind": "table", "path": "f.csv"}, ("data.time",)),
        ({"kind": "cmapss", "subst": "FD001"}, ("data.subst", "'subset'", "kind, subset")),
        ({"kind": "cmapss", "subset": "FD009"}, ("data.subset", "'FD001'", "'FD009'")),
        ({"kind": "table", "path": "f", "time": "t", "cycle": "c"}, ("'cycle'",)),
        ("plants", ("data",)),
    ],
)
def test_wrong_data_sections_are_explained(data: object, values: tuple[str, ...]) -> None:
    with refuses(ConfigError, *values):
        config.parse({"data": data, "partition": {"by": "unit"}}, "x.toml")


@pytest.mark.parametrize(
    ("partition", "values"),
    [
        ({"by": "lifespam"}, ("partition.by", "'lifespam'", "'lifespan'")),
        ({"by": "unit", "clients": 3}, ("partition.clients",)),
        ({"by": "random"}, ("partition.clients",)),
        ({"one": {"by": "unit"}, "two": {"by": "random", "cliets": 2}}, ("partition.two.cliets",)),
    ],
)
def test_wrong_partitions_are_explained(partition: dict[str, Any], values: tuple[str, ...]) -> None:
    with refuses(ConfigError, *values):
        config.parse({"data": {"kind": "cmapss"}, "partition": partition}, "x.toml")


def test_options_of_a_reader_must_carry_its_name() -> None:
    with refuses(ConfigError, "'mine'", "PumpOptions"):
        Reader("mine", "not pumps", PumpOptions, read_pumps)
