"""What a site holds: its own units to learn from and to be examined on, checked before it joins."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from pathlib import Path

from fedprognos.errors import ConfigError, DataError, RecipeError, unknown_name
from fedprognos.experiment.config import Experiment
from fedprognos.experiment.scenario import scenarios
from fedprognos.features import survey, survey_terms
from fedprognos.features.options import RecipeOptions
from fedprognos.fleet import Fleet, Schema
from fedprognos.fleet.digest import fleet_digest
from fedprognos.fleet.partition import PartitionOptions, RandomOptions
from fedprognos.fleet.readers.table import TableOptions

EVERYTHING: dict[str, PartitionOptions] = {"own": RandomOptions(clients=1)}
"""All units of the file belong to the site."""


@dataclass(frozen=True, eq=False)
class Holdings:
    """A site's data; `test` is None where the only unit trains."""

    train: Fleet
    test: Fleet | None

    def fingerprint(self, secret: bytes) -> str:
        """Changes with the data, and tells nothing without the secret."""
        seal = hmac.new(secret, digestmod=hashlib.sha256)
        for fleet in (self.train, self.test):
            seal.update(b"none" if fleet is None else fleet_digest(fleet, secret).encode())
        return seal.hexdigest()[:32]


def read_holdings(
    name: str, experiment: Experiment, base: Path, data: Path | None = None, data_dir: Path | None = None
) -> Holdings:
    """Read a site's data as the experiment describes it.

    Parameters
    ----------
    base
        What relative paths in the experiment refer to.
    data
        The site's own table. Without it, the part of the experiment's own data that belongs to a client of this
        name: for benchmarks, and to try a deployment out.
    """
    if data is None:
        setting = next(iter(scenarios(experiment, data_dir, base).values()))
        if name not in setting.clients:
            raise unknown_name("client of the experiment", name, setting.clients)
        return Holdings(setting.clients[name], setting.tests.get(name))
    section = experiment.data
    if not isinstance(section, TableOptions):
        raise ConfigError(
            f"the experiment's data is '{section.kind}', which names no columns",
            where=str(data),
            hint="give --columns FILE.toml with a [data] section of kind table; `fedprognos init` writes one",
        )
    test_path = None if section.test_path is None else str(Path(section.test_path).name)
    if test_path is not None and not (data.parent / test_path).is_file():
        raise DataError("the test units are not beside it", where=str(data), hint=f"expected {data.parent / test_path}")
    own = section.model_copy(update={"path": data.name, "test_path": test_path})
    part = experiment.model_copy(update={"data": own, "partition": EVERYTHING})
    setting = next(iter(scenarios(part, data_dir, data.parent).values()))
    (train,) = setting.clients.values()
    _check_owner(name, train, data)
    return Holdings(train, next(iter(setting.tests.values()), None))


def check_holdings(holdings: Holdings, section: RecipeOptions) -> Schema:
    """Refuse data that cannot be used with an experiment; the columns it will be used with."""
    schema = survey(holdings.train, survey_terms(section)).schema
    if schema.task == "rul" and section.window is not None and section.short == "exclude":
        longest = max(unit.rows for unit in holdings.train)
        if longest < section.window:
            raise RecipeError(
                f"the window of {section.window} is longer than every unit (longest: {longest} rows)",
                where=holdings.train.source or holdings.train.name,
                hint=f"ask the coordinator for recipe.window of at most {longest}, or recipe.short = 'pad'",
            )
    return schema


def _check_owner(name: str, fleet: Fleet, data: Path) -> None:
    """A file that names its owner must name this site."""
    owners = {str(unit.attributes["site"]) for unit in fleet if "site" in unit.attributes}
    if owners - {name}:
        raise DataError(
            f"holds units of {', '.join(sorted(owners - {name}))}, this site is '{name}'",
            where=str(data),
            hint="give the file of this site only",
        )
