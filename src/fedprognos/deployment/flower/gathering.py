"""Who takes part: waiting for the sites, hearing who they are, turning away those whose data does not fit."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from fedprognos.deployment.flower.cohort import FlowerCohort
from fedprognos.deployment.flower.doorstep import DOOR_ANSWERS, HelloReply, HelloRequest, RefusalRequest
from fedprognos.errors import ConfigError, FederationError
from fedprognos.experiment.config import Experiment
from fedprognos.federation.messages import ANSWERS, Failure
from fedprognos.federation.strategies import strategies
from fedprognos.files import write_json
from fedprognos.fleet import Schema

SITES = "sites.json"
Say = Callable[[str], None]


def wait_for_sites(
    cohort: FlowerCohort, wanted: tuple[str, ...], least: int | None, grace_in_s: float, say: Say
) -> tuple[str, ...]:
    """Those who are there once all are, or enough of them for some time."""
    enough_since: float | None = None
    said: set[str] | None = None
    while True:
        here = set(cohort.online()) & set(wanted)
        if here != said:
            missing = ", ".join(sorted(set(wanted) - here))
            say(f"{len(here)} of {len(wanted)} sites are here" + (f"; waiting for {missing}" if missing else ""))
            said = here
        if len(here) == len(wanted):
            return tuple(sorted(here))
        enough = least is not None and len(here) >= least
        enough_since = (enough_since or time.monotonic()) if enough else None
        if enough_since is not None and time.monotonic() - enough_since >= grace_in_s:
            return tuple(sorted(here))
        time.sleep(1.0)


def welcome(
    cohort: FlowerCohort, here: tuple[str, ...], name: str, experiment: Experiment, folder: Path, say: Say
) -> tuple[str, ...]:
    """Names of the sites that fit the experiment; a run that goes on keeps the sites it began with."""
    began: dict[str, str] = {}
    if (folder / SITES).is_file():
        began = json.loads((folder / SITES).read_text("utf-8"))
        here = tuple(site for site in here if site in began)
    hello = HelloRequest(name, experiment.recipe)
    replies = cohort.converse(dict.fromkeys(here, hello), (*ANSWERS, *DOOR_ANSWERS))
    for site, reply in replies.items():
        if isinstance(reply, Failure):
            say(f"{site} cannot take part: {reply.text}")
    greeted = {site: reply for site, reply in replies.items() if isinstance(reply, HelloReply)}
    fitting = dict(greeted)
    for site, reason in _misfits(greeted, began).items():
        del fitting[site]
        say(f"{site} is turned away: {reason}")
        cohort.converse({site: RefusalRequest(name, reason)}, (*ANSWERS, *DOOR_ANSWERS), all_needed=False)
    least = experiment.federation.min_clients
    members = tuple(began or sorted(fitting))
    wanted = len(began or cohort.clients)
    if len(fitting) < (wanted if least is None else min(least, wanted)):
        raise FederationError(
            f"{len(fitting)} of {wanted} sites can take part",
            hint="mend the others, or let the federation go on without them: federation.min_clients",
        )
    if not began:
        write_json(folder / SITES, {site: reply.fingerprint for site, reply in sorted(fitting.items())})
    return members


def _misfits(greeted: Mapping[str, HelloReply], began: Mapping[str, str]) -> dict[str, str]:
    """Why a site cannot take part, in words its engineer can act on."""
    reasons = {}
    for site, reply in greeted.items():
        if reply.name != site:
            reasons[site] = f"it calls itself '{reply.name}', but its key is that of '{site}'"
        elif site in began and began[site] != reply.fingerprint:
            reasons[site] = "its data changed since the run began; start a new run with another --name"
    schemas = {site: reply.schema for site, reply in greeted.items() if site not in reasons}
    if schemas:
        common = Counter(_described(schema) for schema in schemas.values()).most_common(1)[0][0]
        for site, schema in schemas.items():
            if _described(schema) != common:
                reasons[site] = f"its columns are {_described(schema)}; the federation's are {common}"
    return reasons


def _described(schema: Schema) -> str:
    settings = f", settings {', '.join(schema.settings)}" if schema.settings else ""
    return f"{schema.task} from {', '.join(schema.sensors)}{settings} in {schema.time_unit} ({schema.target})"


def deployable(experiment: Experiment, say: Say) -> Experiment:
    """The experiment without what needs data in one place; refused where nothing would be left of it."""
    if len(experiment.partition) > 1:
        raise ConfigError(
            f"{len(experiment.partition)} settings: {', '.join(experiment.partition)}",
            where="partition",
            hint="sites hold the data they hold; deploy an experiment with one [partition]",
        )
    methods = tuple(m for m in experiment.federation.methods if not strategies[m].pooled)
    if not methods:
        raise ConfigError("central training needs all data in one place", hint="it cannot be deployed; choose a method")
    left_out = {
        "central training": methods != experiment.federation.methods,
        "baselines": bool(experiment.evaluation.baselines),
        "the round that is best on the test": experiment.evaluation.best_on_test,
    }
    if any(left_out.values()):
        say(f"needs data in one place and is left out: {', '.join(what for what, is_so in left_out.items() if is_so)}")
    federation = experiment.federation.model_copy(update={"methods": methods})
    evaluation = experiment.evaluation.model_copy(update={"baselines": (), "best_on_test": False})
    return experiment.model_copy(update={"federation": federation, "evaluation": evaluation})
