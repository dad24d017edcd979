"""One message of every kind that crosses between coordinator and clients, as real clients exchange them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedprognos.features import SurveyTerms, survey
from fedprognos.federation.client import Client
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.codec import decode
from fedprognos.federation.exchanges import Failure, exchanges
from fedprognos.federation.exchanges import site_messages as deployment
from fedprognos.federation.exchanges.choice import ChoiceRequest
from fedprognos.federation.exchanges.distances import DistanceRequest
from fedprognos.federation.exchanges.evaluate import EvaluateRequest
from fedprognos.federation.exchanges.fit import FitRequest
from fedprognos.federation.exchanges.import_model import ImportRequest
from fedprognos.federation.exchanges.outputs import OutputsRequest
from fedprognos.federation.exchanges.personal import PersonalRequest, PooledSlopes, PoolRequest
from fedprognos.federation.exchanges.ranges import RangesRequest
from fedprognos.federation.exchanges.residuals import ResidualRequest
from fedprognos.federation.exchanges.scores import ScoreRequest
from fedprognos.federation.exchanges.site_messages import DataTerms
from fedprognos.federation.exchanges.survey import MomentsRequest, OutlineRequest, SurveyReply, SurveyRequest
from fedprognos.federation.exchanges.wear import WearRequest
from fedprognos.fleet import Fleet
from fedprognos.networks import Bundle, HeadStatistics, Network, NetworkSpec
from fedprognos.networks.calibration import HeadSums
from fedprognos.networks.model_options import Training
from fedprognos.networks.pooling import pooled_fits
from fedprognos.privacy import mask_messages as secure
from small_fleets import recipe_of, series_fleet

RULE = {"altitude": 0, "mach": 2}
FLEET = series_fleet([40 + 3 * k for k in range(24)], name="a")
KINDS = (
    *(exchange.request for exchange in exchanges.values()),
    *(exchange.reply for exchange in exchanges.values()),
    *(secure.MaskedReply, Failure, deployment.StepsMissing),
)
RECORDED = Path(__file__).with_name("recorded")


def small_network(fleet: Fleet = FLEET) -> Network:
    recipe = recipe_of(fleet, conditions=RULE)
    return Network.seeded(NetworkSpec(inputs=recipe.channels, widths=(4,)), 0)


def every_request() -> list[Any]:
    """A request of every kind, small enough to be answered in no time."""
    recipe, network = recipe_of(FLEET, conditions=RULE), small_network()
    training = Training(epochs=1)
    asked: dict[str, Any] = {"recipe": recipe, "network": network, "seed": 7, "validation_fraction": 0.25}
    slopes = PooledSlopes.near(network, pooled_fits(network, 0.25))
    sums = HeadSums(HeadStatistics(500, 500.0, 500.0 * np.eye(5), np.ones(5)), 0.01)
    return [
        SurveyRequest(SurveyTerms(conditions=RULE, cap=125.0)),
        ImportRequest(),
        FitRequest(recipe, training, 0.25, seed=7, spec=network.spec),
        FitRequest(recipe, training, 0.25, seed=7, start=network, round=2, phase="average", frozen=1, proximal=0.1),
        EvaluateRequest(**asked, statistics=True),
        OutputsRequest(**asked),
        WearRequest(recipe),
        ChoiceRequest(**asked, fitted=network.head, neurons=(0, 4)),
        PoolRequest(**asked),
        PersonalRequest(**asked, slopes=slopes),
        ResidualRequest(**asked, ranges=np.array([60.0]), edges=np.linspace(-2.0, 2.0, 9), sums=sums, stretch=1.1),
        DistanceRequest(recipe, network, 7, sums.total),
        RangesRequest(recipe),
        ScoreRequest(**asked, score_at="all"),
        OutlineRequest(SurveyTerms(conditions=RULE)),
        MomentsRequest(SurveyTerms(conditions=RULE), len(FLEET.schema.sensors), ((0.0, 0.0), (20.0, 0.7))),
    ]


def secure_messages() -> list[Any]:
    """What is said for masked sums; keys, shares and signatures are made up."""
    keys = secure.KeysReply("aa", ("bb", "cc"), "dd")
    return [
        secure.KeysRequest("b1", 2, {"a": "ee", "b": "ff"}),
        keys,
        secure.SharesRequest("b1", {"a": keys, "b": keys}),
        secure.SharesReply({"b": "0011"}),
        secure.BeginRequest("b1", {"b": "0011"}),
        secure.BeginReply(),
        secure.MaskedReply(np.arange(6, dtype=np.int64).reshape(3, 2)),
        secure.SurvivorsRequest("b1", 1, ("a", "b", "c")),
        secure.SurvivorsReply("22"),
        secure.UnmaskRequest("b1", 1, ("a", "b"), {"a": "33", "b": "44"}),
        secure.UnmaskReply({"a": "55"}),
    ]


def deployed_messages() -> list[Any]:
    """What coordinator and sites say to each other besides."""
    recipe, network = recipe_of(FLEET, conditions=RULE), small_network()
    provenance = {"method": "fedma", "head": "exact", "seed": 0, "round": 1, "train_clients": ["a"]}
    return [
        deployment.HelloRequest("engines"),
        deployment.HelloReply("a", "0.1.0", "00ff"),
        deployment.ContractRequest("{}"),
        deployment.ContractReply(True),
        deployment.JoinRequest("engines", DataTerms(SurveyTerms(conditions=RULE), window=30, short="pad")),
        deployment.JoinReply(FLEET.schema, "0" * 32),
        deployment.StepsMissing(3),
        deployment.RefusalRequest("engines", "its columns differ"),
        deployment.RefusalReply(),
        deployment.DeliverRequest("engines", recipe, network, json.dumps(provenance), "{}", None, 7, 0.25, 0),
        deployment.DeliverReply(),
    ]


@dataclass(frozen=True)
class Replying:
    """A transport whose clients send what it is given."""

    replies: Mapping[str, bytes]

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(sorted(self.replies))

    def send(self, requests: Mapping[str, bytes]) -> dict[str, bytes | Failure]:
        return {name: self.replies[name] for name in requests}


def client_here(folder: Path) -> Client:
    """A client with test units and a model of its own."""
    recipe = recipe_of(FLEET, conditions=RULE)
    bundle = Bundle(recipe, small_network()).save(folder / "bundle")
    return Client("a", FLEET, ClientFolder(folder / "own", bundle), test=series_fleet([60, 70, 80], seed=5, name="t"))


def every_message(replies: list[bytes]) -> list[Any]:
    """A message of every kind: the requests, these replies to them, and those that nobody asks a client for."""
    found = {type(one): one for one in (decode(data, KINDS) for data in replies)}
    found[SurveyReply] = SurveyReply(survey(FLEET, SurveyTerms(conditions=RULE)))
    found[Failure] = Failure("a", "data", "could not be read")
    return [*every_request(), *found.values(), *deployed_messages(), *secure_messages()]
