"""Networks that do not go together are refused by name, not broadcast or half taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedprognos as fp
from fedprognos import matching
from fedprognos.errors import ConfigError
from fedprognos.federation.federation_section import FederationOptions
from fedprognos.federation.strategies.absorb import AbsorbOptions
from fedprognos.federation.strategies.fedma import FedMAOptions, algorithm_1
from fedprognos.networks import Network, NetworkSpec
from refusals import refuses

FIRST: dict[str, Any] = {"inputs": 3, "widths": (4,), "cell": "gru"}


def network(**more: Any) -> Network:
    return Network.seeded(NetworkSpec(**{**FIRST, **more}), 0)


@pytest.mark.parametrize(
    ("more", "differs"),
    [
        ({"inputs": 1}, ("inputs", 1, 3)),
        ({"inputs": 2}, ("inputs", 2, 3)),
        ({"cell": "lstm"}, ("lstm", "gru")),
        ({"widths": (4, 4)}, ("recurrent layers", 2, 1)),
        ({"input_width": 3}, ("input layer",)),
        ({"reservoir": 5}, ("reservoir", 5, 0)),
        ({"direct": 2}, ("head", 2, 0)),
    ],
)
def test_networks_may_differ_in_their_widths_only(more: dict[str, Any], differs: tuple[object, ...]) -> None:
    assert Network.concat([network(), network(widths=(2,))]).spec.widths == (6,)
    for join in (Network.concat, fp.match_networks):
        with refuses(ConfigError, "network 2", *differs):
            join([network(), network(**more)])
        with refuses(ConfigError, "network 3"):
            join([network(**more), network(**more), network()])


def test_networks_must_fit_the_recipe_and_be_networks() -> None:
    rng = np.random.default_rng(0)
    recipe, fleet = fp.windows(rng.normal(size=(60, 12, 3)), rng.normal(size=60))
    assert fp.absorb([network(), network(widths=(2,))], recipe, fleet, width=3).spec.widths == (3,)
    with refuses(ConfigError, "2 inputs", 3):
        fp.absorb([network(inputs=2)] * 2, recipe, fleet, width=3)
    with refuses(ConfigError, "'a'"):
        fp.absorb(["a"], recipe, fleet, width=3)  # type: ignore[list-item]


def test_absorb_has_one_default_ridge_and_one_default_alpha_behind_every_door() -> None:
    rng = np.random.default_rng(0)
    recipe, fleet = fp.windows(rng.normal(size=(60, 12, 3)), rng.normal(size=60))
    networks = [network(), Network.seeded(network().spec, 1)]
    by_default = fp.absorb(networks, recipe, fleet, width=3)
    written = fp.absorb(networks, recipe, fleet, width=3, alpha=matching.ALPHA, ridge=matching.RIDGE)
    for name, tensor in written.weights.items():
        np.testing.assert_array_equal(by_default.weights[name], tensor)
    assert FederationOptions.model_fields["ridge"].default == matching.RIDGE
    assert AbsorbOptions().alpha[0] == matching.ALPHA


@pytest.mark.parametrize("average", ["mean", "median"])
def test_matching_networks_is_algorithm_1_without_retraining(average: str) -> None:
    networks = [Network.seeded(NetworkSpec(**{**FIRST, "widths": (4, 3)}), seed) for seed in range(3)]
    by_name = dict(zip("abc", networks, strict=True))
    options = FedMAOptions(average=average, width_limit=1.5)
    expected, _ = algorithm_1(by_name, dict.fromkeys("abc", 1.0), options)
    matched = fp.match_networks(networks, average=average, width_limit=1.5)
    assert matched.spec == expected.spec
    for name, tensor in expected.weights.items():
        np.testing.assert_array_equal(matched.weights[name], tensor)
