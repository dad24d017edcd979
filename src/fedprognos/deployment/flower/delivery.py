"""What a site keeps of a finished federation: the model, a head of its own, and how both do on its own units."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedprognos import __version__
from fedprognos.deployment.flower.doorstep import DeliverRequest
from fedprognos.deployment.flower.holdings import Holdings
from fedprognos.evaluation import Results, fleet_summary, write_predictions, write_trajectories
from fedprognos.evaluation.options import EvaluationOptions
from fedprognos.experiment.assess import Predictor, assess, examination, network_predictor
from fedprognos.experiment.methods import methods_of
from fedprognos.experiment.run_folder import folder_name
from fedprognos.experiment.scenario import Scenario
from fedprognos.features import WindowSet
from fedprognos.federation.client import Client
from fedprognos.federation.codec import encode
from fedprognos.federation.cohort import digest
from fedprognos.federation.messages import PersonalRequest
from fedprognos.files import write_json
from fedprognos.networks import Bundle, Network

SCENARIO = "site"


def keep_delivery(folder: Path, client: Client, holdings: Holdings, request: DeliverRequest) -> Path:
    """Keep the bundle, make a personal head, examine both; the folder with everything."""
    place = folder / "results" / folder_name(request.experiment)
    bundle = Bundle(
        request.recipe,
        request.network.check("request"),
        json.loads(request.provenance),
        json.loads(request.metrics),
        request.calibration,
    )
    bundle.save(place / "bundle")
    personal = PersonalRequest(request.recipe, request.network, request.seed, request.validation_fraction)
    client.answer(personal)
    own = request.network.with_head(client.folder.load_head(digest(encode(personal))))
    made = {**bundle.provenance, "head": "personal", "client": client.name}
    replace(bundle, network=own, provenance=made, metrics={}, calibration=None).save(place / "personal")
    if holdings.test is not None:
        _examine(place, client.name, holdings, request, {"": request.network, "+personal": own})
    shutil.rmtree(folder / "answers", ignore_errors=True)
    return place


def _examine(
    place: Path,
    name: str,
    holdings: Holdings,
    request: DeliverRequest,
    models: Mapping[str, Network],
) -> None:
    """Rows and predictions for the site's own report, in the form of any run's folder."""
    if holdings.test is None:
        return
    scenario = Scenario(SCENARIO, {name: holdings.train}, {name: holdings.test})
    section = EvaluationOptions(seeds=1, bootstrap=request.bootstrap)
    exam = examination(scenario, request.recipe, section)
    provenance = json.loads(request.provenance)
    rows, predictions = [], []
    for ending, network in models.items():
        plain: Predictor = network_predictor(network, request.recipe)

        def predictor(windows: WindowSet, test: str, plain: Predictor = plain) -> NDArray[np.float64] | None:
            return plain(windows, test)

        facts = {
            "head": "personal" if ending else provenance.get("head"),
            "round": provenance.get("round"),
            "selected_on": "validation" if request.validation_fraction > 0 else "last",
            "width": network.spec.widths,
            "parameters": network.spec.parameters,
        }
        more = assess(exam, f"{provenance.get('method')}{ending}", 0, (name,), predictor, facts)
        rows += more[0]
        predictions += more[1]
    job = f"{SCENARIO}~{provenance.get('method')}~seed0"
    write_predictions(place / "predictions" / f"{job}.csv", predictions)
    write_trajectories(place / "trajectories" / f"{job}.safetensors", predictions)
    write_json(place / "fleets" / f"{SCENARIO}.json", fleet_summary(scenario.clients, scenario.tests, request.recipe))
    document = {"title": f"{request.experiment}: the federated model at {name}", "partition": {SCENARIO: {}}}
    document["recipe"] = {"cap": request.recipe.cap}
    results = Results(request.experiment, __version__, document, tuple(rows), (), methods_of(rows))
    write_json(place / "results.json", results.as_dict())
    write_json(place / "provenance.json", {"received": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})
