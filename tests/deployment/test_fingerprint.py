"""A fingerprint stands other last digits and finds other numbers, shapes and kinds."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from other_processor import nudged

sys.path.append(str(Path(__file__).parents[1] / "federation"))

from every_message import every_request

from fedprognos.deployment.steps.fingerprint import Fingerprint, divergence, fingerprint_of
from fedprognos.federation.codec import encode
from fedprognos.federation.federation_section import Wire

REQUESTS: list[Any] = every_request()
NAMES = [f"{type(request).__name__}-{k}" for k, request in enumerate(REQUESTS)]
WITH_NETWORKS = [request for request in REQUESTS if getattr(request, "network", None) is not None]


@pytest.mark.parametrize("request_", REQUESTS, ids=NAMES)
def test_other_last_digits_are_no_divergence(request_: Any) -> None:
    message, rng = encode(request_), np.random.default_rng(0)
    theirs = fingerprint_of(nudged(message, rng))
    assert divergence(message, Fingerprint.model_validate_json(theirs.model_dump_json())) == ""


@pytest.mark.parametrize("wire", get_args(Wire))
@pytest.mark.parametrize("request_", WITH_NETWORKS, ids=lambda request: type(request).__name__)
def test_other_weights_are_a_divergence_in_every_precision(request_: Any, wire: Wire) -> None:
    message = encode(request_, wire)
    network = request_.network
    rounded = {name: np.float32(array * (1 + 1e-7)) for name, array in network.weights.items()}
    assert divergence(message, fingerprint_of(encode(with_weights(request_, rounded), wire))) == ""
    for name, array in network.weights.items():
        changed = {**network.weights, name: np.float32(array * 1.1 + 0.1)}
        assert name in divergence(message, fingerprint_of(encode(with_weights(request_, changed), wire)))


def with_weights(request: Any, weights: dict[str, Any]) -> Any:
    return replace(request, network=replace(request.network, weights=weights))


def test_another_kind_shape_sum_or_number_is_a_divergence() -> None:
    evaluate = next(request for request in WITH_NETWORKS if type(request).__name__ == "EvaluateRequest")
    outputs = next(request for request in WITH_NETWORKS if type(request).__name__ == "OutputsRequest")
    message = encode(evaluate)
    others = [
        encode(outputs),
        encode(evaluate, tag=("batch", 1)),
        encode(replace(evaluate, validation_fraction=0.75)),
        encode(replace(evaluate, recipe=evaluate.recipe.model_copy(update={"label_mean": 1e3}))),
    ]
    assert all(divergence(message, fingerprint_of(other)) for other in others)
    ours = fingerprint_of(message)
    name = next(iter(ours.shapes))
    for change in ({"shapes": {}}, {"shapes": {**ours.shapes, name: (7,)}}, {"norms": {**ours.norms, name: np.inf}}):
        assert divergence(message, ours.model_copy(update=change))
