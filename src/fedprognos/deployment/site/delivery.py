"""What a site keeps of a finished run: the model, a head of its own, and how both do on its own units.

The site decides for itself which model to use. It compares the federated model, the same with its own head, and a model
that nobody else had a part in, on its own test machines. So a federation that was poisoned, or that does not suit the
site, costs it nothing. The decision does not leave the site.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedprognos import __version__
from fedprognos.deployment.site.site_data import SiteData
from fedprognos.errors import MessageError
from fedprognos.evaluation import EvaluationOptions, Results, fleet_summary, write_predictions, write_trajectories
from fedprognos.experiment import (
    FinishedModel,
    HeldTests,
    JobKey,
    Scenario,
    evaluation_windows,
    folder_name,
    methods_of,
)
from fedprognos.features import build_windows
from fedprognos.federation import Client, DeliverRequest, PersonalRequest
from fedprognos.files import parse_json, write_json
from fedprognos.fleet import Fleet
from fedprognos.identity import Identity
from fedprognos.matching import RIDGE
from fedprognos.networks import (
    OWN_RESERVOIR,
    Bundle,
    Network,
    NetworkSpec,
    exact_head,
    head_statistics,
    predict,
    sign_bundle,
    write_trust,
)

SCENARIO = "site"
LEAST_GAIN = 0.05
"""Another model must lower the federated model's error by this share: test machines are few."""


def keep_delivery(
    folder: Path, client: Client, data: SiteData, request: DeliverRequest, identity: Identity
) -> tuple[Path, dict[str, float]]:
    """Keep the bundle, make a personal head, and evaluate. The site signs its models: it followed the run itself.

    Returns
    -------
    place, errors
        The folder with everything. Errors of the models on the site's test machines, by folder, the one to use first;
        nothing where the site has none.
    """
    place = folder / "results" / folder_name(request.experiment)
    network, provenance = request.network.check("request"), _table(request.provenance)
    metrics = _table(request.metrics)
    bundle = Bundle(request.recipe, network, provenance, metrics, request.calibration, data.table, request.novelty)
    write_trust(place / "trust.toml", [(client.name, identity.public)])
    sign_bundle(bundle.save(place / "bundle"), identity)
    personal = PersonalRequest(request.recipe, network, request.seed, request.validation_fraction)
    client.answer(personal)
    personal_bundle = replace(
        bundle,
        network=network.with_head(client.folder.load_head(personal.head)),
        provenance={**provenance, "head": "personal", "client": client.name},
        metrics={},
        calibration=None,
    )
    sign_bundle(personal_bundle.save(place / "personal"), identity)
    if data.test is None:
        return place, {}
    scenario = Scenario(SCENARIO, {client.name: data.train}, {client.name: data.test})
    _evaluate(place, client, scenario, request, bundle, personal.head)
    own_bundle = replace(
        bundle,
        network=_own_network(client, request),
        provenance={**provenance, "method": "reservoir", "head": "exact", "client": client.name},
        metrics={},
        calibration=None,
        novelty=None,
    )
    sign_bundle(own_bundle.save(place / "own"), identity)
    return place, _decide(place, data.test, {"bundle": bundle, "personal": personal_bundle, "own": own_bundle})


def _own_network(client: Client, request: DeliverRequest) -> Network:
    """A fixed random network with a head fitted to the site's own units."""
    recipe, delivered = request.recipe, request.network.spec
    spec = NetworkSpec(
        inputs=recipe.channels,
        widths=(),
        cell=delivered.cell,
        reservoir=OWN_RESERVOIR,
        direct=delivered.direct or 1,
    )
    network = Network.seeded(spec, 0, 0.0)
    parts = client.head_parts(recipe, request.seed, request.validation_fraction)
    fit, held = (None if part is None else head_statistics(network, part, recipe) for part in parts)
    if fit is None:
        raise MessageError("no units to fit a head to")
    return network.with_head(exact_head(fit, held, RIDGE).head)


def _decide(place: Path, test: Fleet, bundles: Mapping[str, Bundle]) -> dict[str, float]:
    """Write which of the models to use into `choice.json`; their errors, labels capped, the one to use first."""
    recipe = bundles["bundle"].recipe
    windows = build_windows(recipe, test)
    truth = recipe.capped(windows.labels)
    errors = {
        name: float(np.sqrt(np.mean(np.square(predict(bundle.network, windows, recipe) - truth))))
        for name, bundle in bundles.items()
    }
    best = min(errors, key=lambda name: errors[name])
    kept = best if errors[best] < (1 - LEAST_GAIN) * errors["bundle"] else "bundle"
    write_json(place / "choice.json", {"use": kept, "errors": errors})
    return {kept: errors[kept], **errors}


def _table(text: str) -> dict[str, Any]:
    try:
        table = parse_json(text)
    except ValueError:
        table = None
    if not isinstance(table, dict):
        raise MessageError("provenance and metrics must be JSON objects")
    return table


def _evaluate(
    place: Path, client: Client, scenario: Scenario, request: DeliverRequest, bundle: Bundle, head: str
) -> None:
    """Write the results for the site's own report, as in any run's folder; `head` names the personal head."""
    options = EvaluationOptions(seeds=1, bootstrap=request.bootstrap)
    windows = evaluation_windows(scenario, request.recipe, options)
    tests = HeldTests(windows, {client.name: client.folder}, request.coverage)
    network, owners = bundle.network, (client.name,)
    method = str(bundle.provenance.get("method"))
    key = JobKey(SCENARIO, method, 0)
    facts = {
        "head": bundle.provenance.get("head"),
        "round": bundle.provenance.get("round"),
        "selected_on": "validation" if request.validation_fraction > 0 else "last",
        "width": network.spec.widths,
        "parameters": network.spec.parameters,
    }
    rows, predictions = tests.rows(FinishedModel(key, method, owners, [network], facts, None, request.calibration))
    facts["head"] = "personal"
    personal = FinishedModel(key, f"{method}+personal", owners, [network], facts, {client.name: head})
    personal_rows, personal_predictions = tests.rows(personal)
    rows, predictions = rows + personal_rows, predictions + personal_predictions
    job = folder_name(f"{SCENARIO}~{method}~seed0")
    write_predictions(place / "predictions" / f"{job}.csv", predictions)
    write_trajectories(place / "trajectories" / f"{job}.safetensors", predictions)
    write_json(place / "fleets" / f"{SCENARIO}.json", fleet_summary(scenario.clients, scenario.tests, request.recipe))
    document = {
        "title": f"{request.experiment}: the federated model at {client.name}",
        "partition": {SCENARIO: {}},
        "recipe": {"cap": request.recipe.cap},
    }
    results = Results(request.experiment, __version__, document, tuple(rows), (), methods_of(rows))
    write_json(place / "results.json", results.as_dict())
    write_json(place / "provenance.json", {"received": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})
