"""From an experiment to fleets: who trains on which units, and what each is tested on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fedprognos.errors import ConfigError, DataError, unknown_name
from fedprognos.experiment import config
from fedprognos.features.labels import RATED
from fedprognos.fleet import Fleet, catalog, cmapss, discharge, nasa_battery, options, split, synthetic, table
from fedprognos.fleet.partition import partition

EVERYONE = "all"


@dataclass(frozen=True, eq=False)
class Scenario:
    """One scenario of an experiment: units dealt out to clients, and their tests.

    Parameters
    ----------
    clients
        Training fleet of each client.
    tests
        Test fleets: one a client where the test units are theirs, else a common one named "all".
    """

    name: str
    clients: Mapping[str, Fleet]
    tests: Mapping[str, Fleet]

    @property
    def shared_test(self) -> bool:
        """Whether every model is tested on the same fleet."""
        return set(self.tests) == {EVERYONE}


@dataclass(frozen=True, eq=False)
class _Source:
    """A fleet as read: with a test fleet of its own, still to be split within each client, or all for training."""

    fleet: Fleet
    test: Fleet | None = None
    test_fraction: float | None = None


def scenarios(experiment: config.Experiment, data_dir: Path | None, folder: Path) -> dict[str, Scenario]:
    """Read the data once and deal it out for every scenario.

    Parameters
    ----------
    data_dir
        Where the NASA data lies; None looks in the usual places.
    folder
        What relative paths in the experiment refer to.
    """
    source = _read(experiment.data, data_dir, folder)
    return {name: _deal(name, source, rule) for name, rule in experiment.partition.items()}


def training_scenario(experiment: config.Experiment, name: str, data_dir: Path | None, folder: Path) -> Scenario:
    """One scenario without its tests: test files are not opened, what would be held out for the test is dropped."""
    dealt = _deal(name, _read(experiment.data, data_dir, folder, tested=False), experiment.partition[name])
    return Scenario(name, dealt.clients, {})


def _read(data: options.DataOptions, data_dir: Path | None, folder: Path, *, tested: bool = True) -> _Source:
    match data:
        case options.SyntheticEngines():
            train, other = synthetic.synthetic_engines(
                sites=data.sites,
                units_per_site=data.units_per_site,
                test_units_per_site=data.test_units_per_site,
                seed=data.seed,
            )
            return _Source(train, other if tested else None)
        case options.SyntheticBatteries():
            fleet = synthetic.synthetic_batteries(sites=data.sites, units_per_site=data.units_per_site, seed=data.seed)
            return _Source(fleet, test_fraction=data.test_fraction)
        case options.Cmapss() if not tested:
            file = cmapss.locate(catalog.find("cmapss", data_dir), f"train_{data.subset}.txt")
            return _Source(cmapss.read_cmapss_train(file, data.subset, cmapss.ALL_SENSORS))
        case options.Cmapss():
            return _Source(*cmapss.read_cmapss(catalog.find("cmapss", data_dir), data.subset, cmapss.ALL_SENSORS))
        case options.NasaBatteries():
            fleet = nasa_battery.read_nasa_batteries(catalog.find("nasa-battery", data_dir), data.batteries)
            ended = [
                discharge.end_of_life(u, data.end_of_life * float(u.attributes["rated_capacity_in_Ah"])) for u in fleet
            ]
            return _Source(discharge.cut_at_cutoff(fleet.select(ended)), test_fraction=data.test_fraction)
        case options.Table():
            columns = table.TableColumns(
                task=data.task,
                unit=data.unit,
                time=data.time,
                cycle=data.cycle,
                sensors=data.sensors,
                settings=data.settings,
                site=data.site,
                target=data.target,
                failed=data.failed,
            )
            fleet = _rated(table.read_table(folder / data.path, columns), data.rated_capacity_in_Ah)
            if data.test_path is not None and not tested:
                return _Source(fleet)
            if data.test_path is not None:
                other = table.read_table(folder / data.test_path, columns)
                return _Source(fleet, _rated(other, data.rated_capacity_in_Ah))
            return _Source(fleet, test_fraction=data.test_fraction)


def _rated(fleet: Fleet, capacity_in_Ah: float | None) -> Fleet:
    """The fleet with the rated capacity noted on every unit, where one is given."""
    if capacity_in_Ah is None:
        return fleet
    return fleet.select([replace(u, attributes={**u.attributes, RATED: capacity_in_Ah}) for u in fleet])


def _deal(name: str, source: _Source, rule: options.Partition) -> Scenario:
    clients = partition(_chosen(source.fleet, rule.units), by=rule.by, **rule.options())
    if source.test is not None:
        return Scenario(name, clients, _own_tests(source.test, rule, clients))
    if source.test_fraction is None:
        return Scenario(name, clients, {})
    trains, tests = {}, {}
    for client, fleet in clients.items():
        if source.fleet.schema.task == "soh":
            trains[client], tests[client] = split.split_cycles(fleet, 1 - source.test_fraction)
        elif len(fleet) > 1:
            trains[client], tests[client] = split.split_units(fleet, source.test_fraction, by_site=False)
        else:  # a client's only unit trains: a model needs an end of life to learn from
            trains[client] = fleet
    if not tests:
        raise DataError(
            "every client has a single unit, so none is left for the test",
            where=source.fleet.source or source.fleet.name,
            hint="give test units in a file of their own (data.test_path), or fewer clients",
        )
    return Scenario(name, trains, tests)


def _chosen(fleet: Fleet, units: tuple[str, ...] | None) -> Fleet:
    """Only the units a scenario names."""
    if units is None:
        return fleet
    for unit in units:
        if unit not in fleet.ids:
            raise unknown_name("unit", unit, fleet.ids)
    return fleet.select(sorted(set(units), key=fleet.ids.index))


def _own_tests(test: Fleet, rule: options.Partition, clients: Mapping[str, Fleet]) -> dict[str, Fleet]:
    """Test units go to the clients they belong to where a column says so, to everybody otherwise."""
    if rule.by != "column" or not all(rule.column in unit.attributes for unit in test):
        return {EVERYONE: test}
    owners = partition(test, by="column", column=rule.column)
    strangers = sorted(set(owners) - set(clients))
    if strangers:
        raise ConfigError(
            f"test units of '{strangers[0]}', which has no training units", hint=f"clients: {', '.join(clients)}"
        )
    return owners
