"""Networks that do not go together are refused by name, not broadcast or half taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedprognos as fp
from fedprognos.errors import ConfigError
from fedprognos.networks import Network, NetworkSpec

FIRST: dict[str, Any] = {"inputs": 3, "widths": (4,), "cell": "gru"}


def network(**more: Any) -> Network:
    return Network.seeded(NetworkSpec(**{**FIRST, **more}), 0)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"inputs": 1}, "1 inputs instead of 3"),
        ({"inputs": 2}, "2 inputs instead of 3"),
        ({"cell": "lstm"}, "lstm cells instead of gru"),
        ({"widths": (4, 4)}, "2 recurrent layers instead of 1"),
        ({"input_width": 3}, "an input layer instead of no"),
        ({"reservoir": 5}, "a reservoir of 5 instead of 0"),
        ({"direct": 2}, "2 rows in the head instead of 0"),
    ],
)
def test_networks_may_differ_in_their_widths_only(more: dict[str, Any], words: str) -> None:
    assert Network.concat([network(), network(widths=(2,))]).spec.widths == (6,)
    for join in (Network.concat, fp.match_networks):
        with pytest.raises(ConfigError, match=f"network 2 does not go with the first: {words}"):
            join([network(), network(**more)])
        with pytest.raises(ConfigError, match="network 3 does not go with the first"):
            join([network(**more), network(**more), network()])


def test_networks_must_fit_the_recipe_and_be_networks() -> None:
    rng = np.random.default_rng(0)
    recipe, fleet = fp.windows(rng.normal(size=(60, 12, 3)), rng.normal(size=60))
    assert fp.absorb([network(), network(widths=(2,))], recipe, fleet, width=3).spec.widths == (3,)
    with pytest.raises(ConfigError, match="have 2 inputs, the recipe makes 3"):
        fp.absorb([network(inputs=2)] * 2, recipe, fleet, width=3)
    with pytest.raises(ConfigError, match="'a' is not a network"):
        fp.absorb(["a"], recipe, fleet, width=3)  # type: ignore[list-item]
