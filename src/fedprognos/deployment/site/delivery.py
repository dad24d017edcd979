"""What a site keeps of a finished run: the model, a head of its own, and how both do on its own units."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedprognos import __version__
from fedprognos.deployment.site.site_data import SiteData
from fedprognos.deployment.site_messages import DeliverRequest
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
from fedprognos.federation import Client, PersonalRequest
from fedprognos.files import parse_json, write_json
from fedprognos.networks import Bundle

SCENARIO = "site"


def keep_delivery(folder: Path, client: Client, data: SiteData, request: DeliverRequest) -> Path:
    """Keep the bundle, make a personal head and evaluate both; return the folder with everything."""
    place = folder / "results" / folder_name(request.experiment)
    network, provenance = request.network.check("request"), _table(request.provenance)
    metrics = _table(request.metrics)
    bundle = Bundle(request.recipe, network, provenance, metrics, request.calibration, data.table, request.novelty)
    bundle.save(place / "bundle")
    personal = PersonalRequest(request.recipe, network, request.seed, request.validation_fraction)
    client.answer(personal)
    personal_bundle = replace(
        bundle,
        network=network.with_head(client.folder.load_head(personal.head)),
        provenance={**provenance, "head": "personal", "client": client.name},
        metrics={},
        calibration=None,
    )
    personal_bundle.save(place / "personal")
    if data.test is not None:
        scenario = Scenario(SCENARIO, {client.name: data.train}, {client.name: data.test})
        _evaluate(place, client, scenario, request, bundle, personal.head)
    return place


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
