"""What a site keeps of a finished run: the model, a head of its own, and how both do on its own units.

The site decides for itself which model to use. It compares the federated model, the same with its own heads, and a
model that nobody else had a part in, on its own test machines. So a federation that was poisoned, or that does not suit
the site, costs it nothing. The decision does not leave the site.

Where the run trained its model once more on all units, the decision and the report are about the model that was
evaluated; what is kept is the later one, with heads fitted to all of the site's units.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
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
    choice_name,
    chosen_by_owner,
    evaluation_windows,
    folder_name,
    methods_of,
)
from fedprognos.features import build_windows
from fedprognos.federation import ONLY_HEAD, ChoiceReply, Client, DeliverRequest, PersonalRequest, head_name
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
LARGEST_RISE = 0.1
"""A model trained on all units may have an error larger by this share than the one that was evaluated."""


@dataclass(frozen=True)
class Delivery:
    """What a site made of a finished run.

    Parameters
    ----------
    place
        The folder with everything.
    errors
        Errors of the models on the site's test machines, by folder, the one to use first; empty where it has none.
    not_refitted
        Models that stay as they were evaluated: trained on all units they did worse on the site's own machines.
    """

    place: Path
    errors: Mapping[str, float]
    not_refitted: tuple[str, ...] = ()


def keep_delivery(
    folder: Path, client: Client, data: SiteData, request: DeliverRequest, identity: Identity
) -> Delivery:
    """Keep the model, make the site's own ones, and evaluate. The site signs them: it followed the run itself."""
    place = folder / "results" / folder_name(request.experiment)
    provenance, metrics = _table(request.provenance), _table(request.metrics)
    network = request.network.check("request")
    evaluated = Bundle(request.recipe, network, provenance, metrics, request.calibration, data.table, request.novelty)
    if request.refitted is not None:
        before = {name: fact for name, fact in provenance.items() if name != "trained_on"}
        evaluated = replace(evaluated, provenance=before, novelty=None)
    write_trust(place / "trust.toml", [(client.name, identity.public)])
    models = _models(client, request, evaluated, ONLY_HEAD, tested=data.test is not None)
    errors: dict[str, float] = {}
    if data.test is not None:
        scenario = Scenario(SCENARIO, {client.name: data.train}, {client.name: data.test})
        _evaluate(place, client, scenario, request, models["bundle"], ONLY_HEAD)
        errors = _errors(data.test, models)
    not_refitted: tuple[str, ...] = ()
    if request.refitted is not None:
        published = replace(
            evaluated, network=request.refitted.check("request"), provenance=provenance, novelty=request.novelty
        )
        whole = data.train if data.whole is None else data.whole
        everything = Client(client.name, whole, client.folder, client.floors, split=client.split)
        head = head_name("delivered", "all units")
        again = _models(everything, request, published, head, tested=data.test is not None)
        now = {} if data.test is None else _errors(data.test, again)
        # It has seen these machines, so an honest model does not do worse on them. One that was poisoned after the
        # evaluation does.
        not_refitted = tuple(name for name in now if now[name] > (1 + LARGEST_RISE) * errors[name])
        models = {name: models[name] if name in not_refitted else again[name] for name in models}
    for name, model in models.items():
        sign_bundle(model.save(place / name), identity)
    if errors:
        use = _decide(errors)
        write_json(place / "choice.json", {"use": use, "errors": errors, "not_refitted": not_refitted})
        errors = {use: errors[use], **errors}
    return Delivery(place, errors, not_refitted)


def _models(client: Client, request: DeliverRequest, bundle: Bundle, head: str, *, tested: bool) -> dict[str, Bundle]:
    """The models that a site can use, by folder; without test units nothing could choose one of its own."""
    personal = PersonalRequest(request.recipe, bundle.network, request.seed, request.validation_fraction, head=head)
    client.answer(personal)
    personal_facts = {"head": "personal", "client": client.name}
    models = {
        "bundle": bundle,
        "personal": bundle.with_own_head(client.folder.load_head(head), None, personal_facts),
    }
    if (choice := bundle.provenance.get("choices", {}).get(client.name)) is not None:
        # The head was made during the run, for the training units or for all: the bundle says for which.
        key = JobKey(str(bundle.provenance["scenario"]), str(bundle.provenance["method"]), 0)
        chosen = client.folder.load_head(choice_name(key, all_units="trained_on" in bundle.provenance))
        kept_out = client.folder.load_kept_out(choice_name(key, all_units=False))
        models["chosen"] = chosen_by_owner(bundle, client.name, ChoiceReply(**choice), chosen, kept_out)
    if tested:
        provenance = {**bundle.provenance, "method": "reservoir", "head": "exact", "client": client.name}
        network, why = _own_network(client, request), "it was made at this site alone"
        provenance |= {"no_intervals": why, "no_novelty": why}
        models["own"] = replace(
            bundle, network=network, provenance=provenance, metrics={}, calibration=None, novelty=None
        )
    return models


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


def _errors(test: Fleet, bundles: Mapping[str, Bundle]) -> dict[str, float]:
    """Errors of models on test units, labels capped."""
    recipe = bundles["bundle"].recipe
    windows = build_windows(recipe, test)
    truth = recipe.capped(windows.labels)
    return {
        name: float(np.sqrt(np.mean(np.square(predict(bundle.network, windows, recipe) - truth))))
        for name, bundle in bundles.items()
    }


def _decide(errors: Mapping[str, float]) -> str:
    """Which of the models to use."""
    best = min(errors, key=lambda name: errors[name])
    return best if errors[best] < (1 - LEAST_GAIN) * errors["bundle"] else "bundle"


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
