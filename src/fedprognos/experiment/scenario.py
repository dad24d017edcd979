"""From an experiment to fleets: who trains on which units, and what each is tested on."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedprognos.errors import ConfigError, DataError
from fedprognos.evaluation import EVERYONE
from fedprognos.experiment import config
from fedprognos.fleet import ColumnOptions, Fleet, PartitionOptions, deal, split
from fedprognos.fleet.readers import ReadContext, Source, read


@dataclass(frozen=True, eq=False)
class Scenario:
    """One scenario of an experiment: units dealt out to clients, and their tests.

    Parameters
    ----------
    clients
        Training fleet of each client.
    tests
        Test fleets: one a client where the test units are theirs, else a common one named "all".
    whole
        All that each client has, the units or cycles of its test as well; empty where the test came as data of its own.
    """

    name: str
    clients: Mapping[str, Fleet]
    tests: Mapping[str, Fleet]
    whole: Mapping[str, Fleet] = field(default_factory=dict)

    @property
    def shared_test(self) -> bool:
        """Whether every model is tested on the same fleet."""
        return set(self.tests) == {EVERYONE}


def scenarios(experiment: config.Experiment, data_dir: Path | None, folder: Path) -> dict[str, Scenario]:
    """Read the data once and deal it out for every scenario.

    Parameters
    ----------
    data_dir
        Where the NASA data lies; None looks in the usual places.
    folder
        What relative paths in the experiment refer to.
    """
    return deal_scenarios(experiment, read(experiment.data, ReadContext(data_dir, folder)))


def deal_scenarios(experiment: config.Experiment, source: Source) -> dict[str, Scenario]:
    """Deal out data that is read already for every scenario."""
    return {name: _deal(name, source, rule) for name, rule in experiment.partition.items()}


def training_scenario(experiment: config.Experiment, name: str, data_dir: Path | None, folder: Path) -> Scenario:
    """One scenario without its tests: test files are not opened, what would be held out for the test is dropped."""
    source = read(experiment.data, ReadContext(data_dir, folder, tested=False))
    return Scenario(name, _deal(name, source, experiment.partition[name]).clients, {})


def _deal(name: str, source: Source, rule: PartitionOptions) -> Scenario:
    owners = deal(source.fleet, rule)
    clients = _able_to_learn(owners)
    if source.test is not None:
        tests = _own_tests(source.test, rule, owners)
        return Scenario(name, clients, {owner: test for owner, test in tests.items() if owner in {EVERYONE, *clients}})
    if source.test_fraction is None:
        return Scenario(name, clients, {})
    trains, tests = {}, {}
    for client, fleet in clients.items():
        if source.fleet.schema.task == "soh":
            trains[client], tests[client] = split.split_cycles(fleet, 1 - source.test_fraction)
        elif split.can_split(fleet):
            trains[client], tests[client] = split.split_units(fleet, source.test_fraction)
        else:  # a client's only labelled unit trains: a model needs an end of life to learn from
            trains[client] = fleet
    if not tests:
        where = source.fleet.source or source.fleet.name
        if not split.can_split(source.fleet):
            hint = "add units whose end of life is known: a model learns from some and is tested on others"
            raise DataError("there is a single labelled unit, so none is left for the test", where=where, hint=hint)
        raise DataError(
            "every client has a single labelled unit, so none is left for the test",
            where=where,
            hint="name no owner, so that units are dealt out by lot (init --site -), or give test units in a file of "
            "their own (data.test_path)",
        )
    return Scenario(name, trains, tests, clients)


def _able_to_learn(owners: Mapping[str, Fleet]) -> dict[str, Fleet]:
    """Owners with a unit whose health is known; a warning names the others. All owners if nobody has such a unit."""
    able = {name: fleet for name, fleet in owners.items() if any(unit.labels() is not None for unit in fleet)}
    for name in sorted(owners.keys() - able.keys()) if able else ():
        warnings.warn(
            f"client {name}: none of its {len(owners[name])} units has failed, so it is left out of training and test; "
            "the shared model can be used for its units",
            UserWarning,
            stacklevel=2,
        )
    return able or dict(owners)


def _own_tests(test: Fleet, rule: PartitionOptions, clients: Mapping[str, Fleet]) -> dict[str, Fleet]:
    """Test units go to the clients they belong to where a column says so, to everybody otherwise."""
    if not isinstance(rule, ColumnOptions) or not all(rule.column in unit.attributes for unit in test):
        return {EVERYONE: test}
    owners = deal(test, ColumnOptions(column=rule.column))
    strangers = sorted(set(owners) - set(clients))
    if strangers:
        raise ConfigError(
            f"test units of '{strangers[0]}', which has no training units",
            where="partition",
            hint=f"leave them out of the test, or name their owner as in training: {', '.join(clients)}",
        )
    return owners
