"""Things to damage and what reads them: messages, tables, settings, models, a site's folder, requests over HTTP."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from deployments import EXPERIMENT, table
from every_message import KINDS, Replying, client_here, every_request
from mutations import bounded, damaged, damaged_message
from run_folders import write_run
from services import rows_of, small_bundle
from sites_here import site_here
from small_models import rows_of as stream_rows

from fedprognos.deployment import keys
from fedprognos.deployment.contract import Contract, in_words
from fedprognos.deployment.coordinator.coordinator_service import deployable
from fedprognos.deployment.folders import CoordinatorOptions, make_deployment, read_options
from fedprognos.deployment.site.site_ledger import ledger_in_words
from fedprognos.deployment.steps.fingerprint import fingerprint_of
from fedprognos.deployment.steps.signed_steps import REPLY, STEP, Note, read_reply, seal_step, sha256
from fedprognos.errors import FedprognosError, MessageError
from fedprognos.experiment import config
from fedprognos.federation.codec import decode, encode, ledger_line
from fedprognos.federation.cohort import MessageCohort, gather
from fedprognos.federation.exchanges import Failure
from fedprognos.federation.exchanges.site_messages import (
    ContractRequest,
    DataTerms,
    HelloRequest,
    JoinReply,
    JoinRequest,
    StepsMissing,
)
from fedprognos.fleet import synthetic
from fedprognos.fleet.from_tables import read_table
from fedprognos.identity import Identity
from fedprognos.networks import Bundle
from fedprognos.prognosis import Predictor, Stream
from fedprognos.report.run_data import read_run
from fedprognos.tables.columns import Columns
from fedprognos.tables.proposal import propose
from small_fleets import series_fleet

Feed = Callable[[random.Random], None]
"""Feeds one damaged thing to what reads it; may raise a :class:`FedprognosError` and nothing else."""


def messages(place: Path) -> dict[str, Feed]:
    """Requests to a client and to a site, and replies to the coordinator."""
    client, site = client_here(place / "client"), site_here(place / "site")
    asked = every_request()
    encoded = [encode(request) for request in asked]
    answered = [client.respond(data) for data in encoded]
    assert not [one for one in (decode(reply, KINDS) for reply in answered) if isinstance(one, Failure)]
    _, experiment, _ = config.load("demo")
    contract = Contract.from_experiment("demo", "1", experiment, {"a": site.identity.public}, site.identity.public)
    opening = [encode(HelloRequest("demo")), encode(ContractRequest(contract.text))]
    step = STEP + (9).to_bytes(8, "little") + b'{"step":1' + encoded[0]

    def request(rng: random.Random) -> None:
        assert decode(client.respond(damaged_message(rng.choice(encoded), rng)), KINDS) is not None

    def to_a_site(rng: random.Random) -> None:
        data = damaged(step, rng) if rng.random() < 0.3 else damaged_message(rng.choice(opening), rng)
        assert decode(site.respond(data), KINDS) is not None

    def reply(rng: random.Random) -> None:
        k = rng.randrange(len(asked))
        replying = Replying({"a": answered[k], "b": damaged_message(answered[k], rng)})
        kind: Any = type(decode(answered[k], KINDS))
        good = gather(MessageCohort(replying), dict.fromkeys("ab", asked[k]), kind, 1, lambda failure: None)
        assert "a" in good

    return {"requests": request, "requests to a site": to_a_site, "replies": reply}


def tables(place: Path) -> dict[str, Feed]:
    """A CSV that is read, and one whose columns are guessed."""
    fleet, _ = synthetic.synthetic_engines(sites=1, units_per_site=2, test_units_per_site=1, seed=0)
    whole, path = table(fleet).iloc[:150].to_csv(index=False).encode(), place / "fleet.csv"
    columns = Columns(unit="unit", time="cycle", settings=fleet.schema.settings)

    def read(rng: random.Random) -> None:
        path.write_bytes(damaged(whole, rng))
        read_table(path, columns)

    def guess(rng: random.Random) -> None:
        path.write_bytes(damaged(whole, rng))
        propose(path)

    return {"tables": read, "tables to be guessed": guess}


def settings(place: Path) -> dict[str, Feed]:
    """Experiments, and what a deployment keeps in its folders."""
    experiment, path = EXPERIMENT.encode(), place / "experiment.toml"
    coordinator, _ = make_deployment(place / "deployment", ["a", "b"], "localhost", 9092, None, None)
    kept = {name: (coordinator / name).read_bytes() for name in ("settings.toml", "server.crt", "sites/a.pub")}

    def toml(rng: random.Random) -> None:
        path.write_bytes(damaged(experiment, rng))
        config.load(path)

    def override(rng: random.Random) -> None:
        text = damaged(b"federation.fedma={rounds=2, width_limit=1.5}", rng).decode("utf-8", "replace")
        config.load("demo", (text,))

    def deployment(rng: random.Random) -> None:
        name = rng.choice(sorted(kept))
        (coordinator / name).write_bytes(damaged(kept[name], rng))
        try:
            read_options(coordinator, CoordinatorOptions)
            keys.read_certificate(coordinator / "server.crt")
            keys.read_public_key(coordinator / "sites" / "a.pub")
        finally:
            (coordinator / name).write_bytes(kept[name])

    return {"experiments": toml, "overrides": override, "deployments": deployment}


def models(place: Path) -> dict[str, Feed]:
    """A bundle, and the state of a stream."""
    fleet = series_fleet([28, 14])
    bundle, folder = small_bundle(fleet), place / "bundle"
    bundle.save(folder)
    parts = {path: path.read_bytes() for path in folder.iterdir()}
    predictor, snapshot = Predictor.from_bundle(bundle), place / "stream.snapshot"
    stream = Stream(predictor)
    stream.feed_many([row for unit in fleet for row in stream_rows(unit, fleet, predictor.recipe)])
    stream.snapshot(snapshot)
    state = snapshot.read_bytes()

    def load(rng: random.Random) -> None:
        path = rng.choice(sorted(parts))
        path.write_bytes(damaged(parts[path], rng))
        try:
            found = Bundle.load(folder)
            assert all(np.isfinite(values).all() for values in found.predict(fleet).values())
        finally:
            path.write_bytes(parts[path])

    def restore(rng: random.Random) -> None:
        snapshot.write_bytes(damaged(state, rng))
        Stream(predictor).restore(snapshot)

    return {"bundles": load, "snapshots": restore}


def run_folders(place: Path) -> dict[str, Feed]:
    """What a run leaves behind: results, predictions, trajectories, details."""
    folder = place / "run"
    write_run(folder)
    parts = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def report(rng: random.Random) -> None:
        path = folder / "results.json" if rng.random() < 0.5 else rng.choice(sorted(parts))
        path.write_bytes(damaged(parts[path], rng))
        try:
            read_run(folder)
        finally:
            path.write_bytes(parts[path])

    return {"run folders": report}


def site_folders(place: Path) -> dict[str, Feed]:
    """Contracts, signed steps, and what a site keeps in its folder."""
    site, coordinator = site_here(place / "site"), Identity(Ed25519PrivateKey.generate())
    experiment = deployable(config.load("demo", ("recipe.conditions={}",))[1], lambda text: None)
    contract = Contract.from_experiment("demo", "1", experiment, {"a": site.identity.public}, coordinator.public)
    site.respond(encode(ContractRequest(contract.text)))
    site.approvals.approve(contract.digest)
    join = encode(JoinRequest("demo", DataTerms.from_recipe(experiment.recipe)))
    first = seal_step(coordinator, contract.digest, 1, fingerprint_of(join), [])
    assert ledger_line(read_reply(site.respond(first))[1]).kind == JoinReply.__name__
    site.respond(encode(HelloRequest("demo")))
    kept = {path: path.read_bytes() for path in (place / "site").rglob("*") if path.is_file()}

    def document(rng: random.Random) -> None:
        text = damaged(contract.text.encode(), rng).decode("utf-8", "replace")
        for line in in_words(Contract.parse(text), "a"):
            assert len(line.splitlines()) <= 1

    def step(rng: random.Random) -> None:
        number = rng.choice((1, 2, 2**62))
        outcome = damaged_message(encode(HelloRequest("demo")), rng)
        note = Note(step=1, site=rng.choice(("a", "b", "..")), reply=sha256(outcome), size=len(outcome))
        notes = [(note, outcome)] * rng.choice((0, 1, 3))
        frame = seal_step(coordinator, contract.digest, number, fingerprint_of(join), notes)
        frame = frame if rng.random() < 0.7 else damaged(frame, rng)
        answer = site.respond(frame)
        if answer.startswith(REPLY):  # the damage left the step as it was
            assert answer == site.respond(first)
        else:
            assert isinstance(decode(answer, (*KINDS, StepsMissing)), Failure | StepsMissing)

    def folder(rng: random.Random) -> None:
        path = rng.choice(sorted(kept))
        path.write_bytes(damaged(kept[path], rng))
        try:
            again = site_here(place / "site")
            answer = again.respond(first)
            list(again.approvals.entries())
            list(ledger_in_words(again.ledger.lines(), {}))
            if not answer.startswith(REPLY):
                found = decode(answer, KINDS)
                assert isinstance(found, Failure)
                raise MessageError(found.text)  # refused in words, which counts as such
        finally:
            path.write_bytes(kept[path])
            (place / "site" / "ledger.jsonl").write_bytes(kept[place / "site" / "ledger.jsonl"])

    return {"contracts": document, "signed steps": step, "a site's folder": folder}


def requests_over_http(place: Path, client: httpx.Client) -> Feed:
    fleet = series_fleet([28, 14])
    body = httpx.Request("POST", "http://x", json=rows_of(fleet.units[0], fleet)[:5]).content

    def post(rng: random.Random) -> None:
        kind = rng.choice(("application/json", "text/csv", "application/x-ndjson", "\x7f"))
        path = rng.choice(("/v1/rows", "/v1/units/engines-0", "/v1/units/../../etc", f"/{rng.randbytes(4).hex()}"))
        method = rng.choice(("POST", "PUT", "GET", "DELETE"))
        response = client.request(method, path, content=damaged(body, rng), headers={"content-type": kind})
        assert response.status_code < 500, response.text

    return post


MAKERS = {
    messages: ("requests", "requests to a site", "replies"),
    tables: ("tables", "tables to be guessed"),
    settings: ("experiments", "overrides", "deployments"),
    models: ("bundles", "snapshots"),
    run_folders: ("run folders",),
    site_folders: ("contracts", "signed steps", "a site's folder"),
}
NAMES = [name for names in MAKERS.values() for name in names]
ANSWERED = ("requests", "requests to a site", "replies", "signed steps")
"""What never raises: a site answers whatever comes, and a bad reply is left out."""


def check(name: str, one: Feed, cases: range) -> int:
    """Feed some cases, within the bounds; what is refused is refused in words. How many were."""
    refused = 0
    with bounded(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in cases:
            try:
                one(random.Random(f"{name} {k}"))  # noqa: S311 - damage, not secrets
            except FedprognosError as error:
                assert "\x1b" not in str(error)
                refused += 1
            except Exception as error:
                raise AssertionError(f"case {k} of {name}") from error
    assert refused == 0 or name not in ANSWERED
    return refused
