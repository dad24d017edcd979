"""Who takes part: waiting for the sites, asking who they are, refusing those whose data does not fit."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fedprognos.deployment.engine import EngineError, Tell
from fedprognos.deployment.messages import HelloReply, HelloRequest, RefusalReply, RefusalRequest
from fedprognos.deployment.site_data import data_terms
from fedprognos.deployment.site_transport import SiteTransport
from fedprognos.errors import FederationError, OutputError
from fedprognos.experiment.config import Experiment
from fedprognos.federation.cohort import MessageCohort
from fedprognos.federation.messages import Failure
from fedprognos.files import read_json, write_json
from fedprognos.fleet import Schema

MEMBERS = "sites.json"


def members_so_far(folder: Path) -> dict[str, str]:
    """The sites a run began with and the fingerprints of their data; empty for a new run."""
    path = folder / MEMBERS
    try:
        found = read_json(path) if path.is_file() else {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise OutputError("cannot be read", where=str(path), hint="remove the run's folder to begin anew")
    return found


def wait_for_sites(
    transport: SiteTransport, wanted: tuple[str, ...], min_clients: int | None, grace_in_s: float, tell: Tell
) -> tuple[str, ...]:
    """The sites that are there once all are, or once enough of them have been for some time."""
    here: set[str] = set()
    shown: set[str] | None = None
    enough_since: float | None = None
    while True:
        with contextlib.suppress(EngineError):
            here = set(transport.online()) & set(wanted)
        missing = tuple(sorted(set(wanted) - here))
        if here != shown:
            shown = here
            more = f"; waiting for {', '.join(missing)}" if missing else ""
            tell(f"{len(here)} of {len(wanted)} sites are here{more}")
        enough = min_clients is not None and len(here) >= min_clients
        enough_since = (enough_since or time.monotonic()) if enough else None
        if not missing or (enough_since is not None and time.monotonic() - enough_since >= grace_in_s):
            return tuple(sorted(here))
        transport.waiting("waiting for sites", missing)
        time.sleep(1.0)


def admit(
    transport: SiteTransport, here: tuple[str, ...], name: str, experiment: Experiment, folder: Path, tell: Tell
) -> tuple[str, ...]:
    """Names of the sites that fit the experiment; a run that continues keeps the sites it began with."""
    began = members_so_far(folder)
    asked = [site for site in here if site in began or not began]
    hello = HelloRequest(name, data_terms(experiment.recipe))
    replies = MessageCohort(transport).ask(dict.fromkeys(asked, hello), (HelloReply, Failure))
    fitting = {site: reply for site, reply in replies.items() if isinstance(reply, HelloReply)}
    for site in asked:
        if site not in fitting:
            tell(f"{site} cannot take part: {replies[site].text}")
    refused = {site: RefusalRequest(name, reason) for site, reason in misfits(fitting, began).items()}
    for site, request in refused.items():
        tell(f"{site} is refused: {request.reason}")
        del fitting[site]
    MessageCohort(replace(transport, wait_for_all=False)).ask(refused, (RefusalReply, Failure))
    wanted, least = len(began or transport.clients), experiment.federation.min_clients
    if len(fitting) < (wanted if least is None else min(least, wanted)):
        raise FederationError(
            f"{len(fitting)} of {wanted} sites can take part",
            hint="Fix the other sites, or set federation.min_clients to continue without them.",
        )
    if not began:
        write_json(folder / MEMBERS, {site: reply.fingerprint for site, reply in sorted(fitting.items())})
    return tuple(sorted(set(began or fitting) - set(refused)))  # those who began and are away may come back


def misfits(replies: Mapping[str, HelloReply], began: Mapping[str, str]) -> dict[str, str]:
    """Why sites cannot take part, in words their engineers can act on; `began` holds the fingerprints at the start."""
    reasons = {}
    for site, reply in replies.items():
        if reply.name != site:
            reasons[site] = f"it calls itself '{reply.name}', but its key belongs to '{site}'"
        elif began.get(site, reply.fingerprint) != reply.fingerprint:
            reasons[site] = "its data changed after the run began; start a new run with another --name"
    columns = {site: _described(reply.schema) for site, reply in replies.items() if site not in reasons}
    common = Counter(columns.values()).most_common(1)
    for site, own in columns.items():
        if own != common[0][0]:
            reasons[site] = f"its columns are {own}; the federation's are {common[0][0]}"
    return reasons


def _described(schema: Schema) -> str:
    settings = f", operating settings {', '.join(schema.settings)}" if schema.settings else ""
    return f"{schema.task} from {', '.join(schema.sensors)}{settings} in {schema.time_measure} ({schema.target})"
