"""A site's data: its units to train on and to test on, checked before the site joins."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from pathlib import Path

from fedprognos.errors import ConfigError, DataError, RecipeError, unknown_name
from fedprognos.experiment import Experiment, scenarios
from fedprognos.features import survey
from fedprognos.federation import DataTerms
from fedprognos.fleet import Fleet, PartitionOptions, RandomOptions, Schema, TableOptions, fleet_digest, layout_of
from fedprognos.tables import TableLayout

EVERYTHING: dict[str, PartitionOptions] = {"own": RandomOptions(clients=1)}
"""A partition with one client: all units of the file belong to the site."""


@dataclass(frozen=True, eq=False)
class SiteData:
    """A site's units.

    Parameters
    ----------
    test
        None where the only unit is trained on.
    table
        None where the units come from no table.
    whole
        All units, those of the test as well; None where the test came as data of its own.
    """

    train: Fleet
    test: Fleet | None
    table: TableLayout | None = None
    whole: Fleet | None = None

    def fingerprint(self, secret: bytes) -> str:
        """A digest that changes with the data and reveals nothing without the secret."""
        seal = hmac.new(secret, digestmod=hashlib.sha256)
        for fleet in (self.train, self.test):
            seal.update(b"none" if fleet is None else fleet_digest(fleet, secret).encode())
        return seal.hexdigest()[:32]


def read_site_data(
    name: str, experiment: Experiment, base: Path, data: Path | None = None, data_dir: Path | None = None
) -> SiteData:
    """Read a site's data as the experiment describes it.

    Parameters
    ----------
    base
        What relative paths in the experiment refer to.
    data
        The site's table. Without it, the part of the experiment's data that belongs to the client of this name: for
        benchmarks, and to try out a deployment.
    """
    if data is None:
        scenario = next(iter(scenarios(experiment, data_dir, base).values()))
        if name not in scenario.clients:
            raise unknown_name("client of the experiment", name, scenario.clients)
        test, whole = scenario.tests.get(name), scenario.whole.get(name)
        return SiteData(scenario.clients[name], test, layout_of(experiment.data), whole)
    options = experiment.data
    if not isinstance(options, TableOptions):
        raise ConfigError(
            f"the experiment's data is of kind '{options.kind}', which names no columns",
            where=str(data),
            hint="Give --columns FILE.toml with a [data] section of kind table; `fedprognos init` writes one.",
        )
    test_path = None if options.test_path is None else Path(options.test_path).name
    if test_path is not None and not (data.parent / test_path).is_file():
        raise DataError(
            "the file with the test units is missing", where=str(data), hint=f"expected {data.parent / test_path}"
        )
    site_options = options.model_copy(update={"path": data.name, "test_path": test_path})
    site_experiment = experiment.model_copy(update={"data": site_options, "partition": EVERYTHING})
    scenario = next(iter(scenarios(site_experiment, data_dir, data.parent).values()))
    (train,) = scenario.clients.values()
    _check_owner(name, train, data)
    test, whole = (next(iter(fleets.values()), None) for fleets in (scenario.tests, scenario.whole))
    return SiteData(train, test, layout_of(site_options), whole)


def check_site_data(data: SiteData, terms: DataTerms) -> Schema:
    """The columns that an experiment will use; raise where it cannot use the data."""
    schema = survey(data.train, terms.survey).schema
    if schema.task != "soh" and terms.window is not None and terms.short == "exclude":
        longest = max(unit.rows for unit in data.train)
        if longest < terms.window:
            raise RecipeError(
                f"the window of {terms.window} rows is longer than every unit (longest: {longest} rows)",
                where=data.train.source or data.train.name,
                hint=f"ask the coordinator for recipe.window of at most {longest}, or recipe.short = 'pad'",
            )
    return schema


def _check_owner(name: str, fleet: Fleet, data: Path) -> None:
    """Raise where the file's site column names another site."""
    others = sorted({str(unit.attributes["site"]) for unit in fleet if "site" in unit.attributes} - {name})
    if others:
        raise DataError(
            f"it holds units of {', '.join(others)}, but this site is '{name}'",
            where=str(data),
            hint="Give a file with the units of this site only.",
        )
