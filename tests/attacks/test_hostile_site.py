"""One broken or hostile site ends no run: it is named and left out, and nothing that it sent is remembered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hostile_replies import LIES, LyingTransport

from fedprognos.features.options import RecipeOptions
from fedprognos.federation.client import Client
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.cohort import MessageCohort, gather
from fedprognos.federation.heads import personal_heads, with_heads
from fedprognos.federation.messages import Failure
from fedprognos.federation.options import federation_options
from fedprognos.federation.plan import Plan
from fedprognos.federation.recipe_setup import common_recipe
from fedprognos.federation.reply_cache import ReplyCache
from fedprognos.federation.score_messages import ResidualRequest, ScoreReply, ScoreRequest
from fedprognos.federation.strategies import strategies
from fedprognos.networks import NetworkSpec
from fedprognos.networks.calibration import EDGES, prediction_ranges
from fedprognos.networks.options import TrainOptions
from small_fleets import series_fleet

RECIPE = RecipeOptions(window=8, cap=40, stride=3, conditions={"altitude": 0})
QUICK = {"fedavg": {"rounds": 1, "epochs": 1}, "heads": ["exact", "mean"], "min_clients": 2}


def members(folder: Path) -> dict[str, Client]:
    lengths = {"a": [20] * 21, "b": [24] * 21, "c": [22] * 21}
    fleets = {n: series_fleet(found, seed=k, name=n) for k, (n, found) in enumerate(lengths.items())}
    return {n: Client(n, fleet, ClientFolder(folder / n), test=fleet) for n, fleet in fleets.items()}


def everything(transport: LyingTransport, cache: ReplyCache, left: list[Failure]) -> None:
    """Every kind of request, as a run asks them."""
    declared: dict[str, int] = {}
    cohort = MessageCohort(transport, cache=cache, scope="x", declared=declared)
    federation = federation_options().model_validate(QUICK)
    recipe = common_recipe(cohort, RECIPE, federation, left.append)
    train = TrainOptions(epochs=1, batch_size=64, learning_rate=0.05, validation_fraction=0.3)
    plan = Plan(recipe, NetworkSpec(inputs=recipe.channels, widths=(3,)), train, federation, 1, left_out=left.append)
    for method in ("fedavg", "absorb"):
        for round_ in strategies[method].run(cohort, plan):
            for clients, network in round_.models.items():
                with_heads(cohort, plan, clients, network)
    personal_heads(cohort, plan, network, cohort.clients)
    ranges = np.array(prediction_ranges(recipe), dtype=np.float64)
    residuals = ResidualRequest(recipe, (network, network), 1, ranges, np.array(EDGES))
    replies = cohort.ask(dict.fromkeys(cohort.clients, residuals)).values()
    left += [reply for reply in replies if isinstance(reply, Failure)]
    gather(cohort, dict.fromkeys("abc", ScoreRequest(recipe, network, 1, 0.3)), ScoreReply, 2, left.append)


@pytest.mark.parametrize("lie", LIES)
def test_a_reply_that_cannot_be_true_costs_its_sender_its_place_and_nobody_else(tmp_path: Path, lie: str) -> None:
    kind, change = LIES[lie]
    left: list[Failure] = []
    cache = ReplyCache(tmp_path / "answers")
    transport = LyingTransport(members(tmp_path), "b", kind, change)
    everything(transport, cache, left)
    assert transport.lied
    assert {one.client for one in left} == {"b"}
    kept = {path.read_bytes() for path in (tmp_path / "answers").iterdir()}
    assert lie == "other columns" or not kept & set(transport.sent)
    assert all(len(one.text) <= 400 for one in left)


def test_the_same_command_goes_well_once_the_site_is_repaired(tmp_path: Path) -> None:
    cache, left = ReplyCache(tmp_path / "answers"), list[Failure]()
    everything(LyingTransport(members(tmp_path), "b", *LIES["statistics of another shape"]), cache, left)
    assert left
    left.clear()
    everything(LyingTransport(members(tmp_path), "nobody", *LIES["weights of 1e30"]), cache, left)
    assert not left
