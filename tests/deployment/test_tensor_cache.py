"""What a site has is not sent again; what it lost is; the message is the same to the last bit."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Message
from flwr.supercore.task_identity import TaskIdentity
from hypothesis import given
from hypothesis import strategies as st
from sites_here import Grid

from fedprognos.deployment.flower import cohort as cohort_module
from fedprognos.deployment.flower.cohort import FlowerCohort
from fedprognos.deployment.flower.folders import SiteSettings
from fedprognos.deployment.flower.holdings import Holdings
from fedprognos.deployment.flower.parcels import MARK, LackingError, Sent, Shelf
from fedprognos.deployment.flower.site import Service
from fedprognos.errors import MessageError
from fedprognos.federation.codec import encode
from fedprognos.federation.heads import finish
from fedprognos.federation.messages import FitReply
from fedprognos.federation.options import FederationOptions, FedMAOptions
from fedprognos.federation.strategies import Plan, strategy
from fedprognos.networks import NetworkSpec
from fedprognos.networks.options import TrainOptions
from small_fleets import recipe_of, series_fleet

LIMIT = 1 << 20
NAMES = ("a", "b", "c")


def message(*numbers: int) -> bytes:
    """A reply with a tensor of 400 numbers for each of these, and a small one."""
    weights = {f"w{k}": np.full(400, number, np.float32) for k, number in enumerate(numbers)}
    return encode(FitReply({**weights, "small": np.zeros(3, np.float32)}, 1, (), 1, False))


numbers = st.lists(st.integers(0, 5), max_size=5)


@given(had=numbers, wanted=numbers)
def test_a_parcel_becomes_the_message_again_and_is_no_longer(
    tmp_path_factory: pytest.TempPathFactory, had: list[int], wanted: list[int]
) -> None:
    shelf, sent = Shelf(tmp_path_factory.mktemp("shelf"), LIMIT), Sent()
    first, second = message(*had), message(*wanted)
    assert shelf.unpack(sent.pack("a", first)) == first
    shelf.keep(first)
    sent.answered("a", first, first)
    parcel = sent.pack("a", second)
    assert shelf.unpack(parcel) == second
    new = len([n for n in wanted if n not in had])
    if new < len(wanted):
        assert len(parcel) < 1600 * new + 2000
    assert sent.pack("b", second) == second  # another site has nothing


def test_what_is_lost_or_spoilt_is_said(tmp_path: Path) -> None:
    shelf, sent = Shelf(tmp_path / "shelf", LIMIT), Sent()
    shelf.keep(message(1))
    sent.answered("a", message(1), message(1))
    parcel = sent.pack("a", message(1))
    assert parcel.startswith(MARK)
    assert sent.saved > 1000
    (file,) = (tmp_path / "shelf").iterdir()
    file.write_bytes(bytes(1600))
    with pytest.raises(LackingError, match="not what was meant"):
        shelf.unpack(parcel)
    shelf.clear()
    with pytest.raises(LackingError, match="not here any more"):
        shelf.unpack(parcel)
    assert sent.pack("a", message(1), whole=True) == message(1)
    sent.forget("a")
    assert sent.pack("a", message(1)) == message(1)


def test_the_shelf_has_an_end(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "shelf", 4000)
    for number in range(20):
        shelf.keep(message(number))
    kept = list((tmp_path / "shelf").iterdir())
    assert 1 <= len(kept) <= 5
    shelf.unpack(message(3))  # a whole message needs no shelf


@pytest.mark.parametrize(
    "header",
    [
        {"held": [[0, 8, "../../settings.toml"]], "size": 8},
        {"held": [[0, 8, "/etc/passwd"]], "size": 8},
        {"held": [[8, 0, "0" * 64]], "size": 8},
        {"held": [[0, 8, "0" * 64], [4, 12, "0" * 64]], "size": 12},
        {"held": [[0, LIMIT * 2, "0" * 64]], "size": LIMIT * 2},
        {"held": [[0, 8]], "size": 8},
        {"held": "x", "size": 8},
        {"size": -1, "held": []},
        [],
    ],
)
def test_parcels_from_elsewhere_are_checked(tmp_path: Path, header: object) -> None:
    whole = {"sha256": hashlib.sha256(b"").hexdigest(), **header} if isinstance(header, dict) else header
    text = json.dumps(whole).encode()
    for size in (len(text), 1 << 40, len(text) - 2):
        with pytest.raises(MessageError, match="malformed parcel"):
            Shelf(tmp_path, LIMIT).unpack(MARK + size.to_bytes(8, "little") + text)


# --- a whole federation ---------------------------------------------------------------------------


@pytest.fixture
def federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Grid:
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    monkeypatch.setattr(cohort_module, "LOOK_IN_S", 0.01)
    sites = {}
    for seed, name in enumerate(NAMES):
        (tmp_path / name).mkdir()
        settings = SiteSettings(name=name, coordinator="x:1")
        fleet = series_fleet([60, 58, 70, 66], seed=seed, name=name)
        sites[name] = Service(tmp_path / name, settings, Holdings(fleet, None), lambda text: None)
    return Grid(sites)


def plan_of(federation: Grid, **fedma: object) -> Plan:
    recipe = recipe_of(federation.sites["a"].holdings.train)
    network = NetworkSpec(inputs=recipe.channels, widths=(16, 16))
    section = FederationOptions(heads=("mean",), fedma=FedMAOptions(**fedma))  # type: ignore[arg-type]
    return Plan(recipe, network, TrainOptions(epochs=1), section, seed=3)


def cohort_of(federation: Grid, sent: Sent) -> FlowerCohort:
    return FlowerCohort(federation, federation.keys, NAMES, limit_in_bytes=LIMIT, timeout_in_s=60.0, sent=sent)  # type: ignore[arg-type]


def test_a_round_of_fedma_asks_a_site_at_most_once_more_than_there_are_layers_and_sends_no_layer_twice(
    federation: Grid,
) -> None:
    sent, plan = Sent(), plan_of(federation, rounds=2, width_limit=1.0)
    cohort = cohort_of(federation, sent)
    layers = len(plan.anatomy.layers)  # two recurrent ones and the head
    sizes, before = [], 0
    for round_ in strategy("fedma")(cohort, plan):
        finish(cohort, plan, round_.models[0])
        assert {federation.asked[name] for name in NAMES} == {round_.number * (layers + 1)}
        sizes.append(sent.bytes - before)
        before = sent.bytes
        weights = sum(array.nbytes for array in round_.models[0].weights.values())
    messages = len(NAMES) * (layers + 1)
    overhead = 6000 * messages  # recipe, plan and header of a message
    # Once around: the first training starts from nothing, then every layer goes to every site once, and its
    # inputs above once more; the finished model is examined, and the next round starts, with nothing sent.
    assert sizes[0] < 2 * len(NAMES) * weights + overhead
    assert sizes[1] < 2 * len(NAMES) * weights + overhead
    assert sent.saved > 2 * len(NAMES) * weights


def test_a_site_that_lost_its_shelf_is_sent_the_whole_and_the_weights_are_the_same(
    federation: Grid, tmp_path: Path
) -> None:
    plan = plan_of(federation, width_limit=1.0)
    expected = [round_.models[0].weights for round_ in strategy("fedma")(cohort_of(federation, Sent()), plan)]
    for name in NAMES:
        federation.sites[name].shelf.clear()
        shutil.rmtree(tmp_path / name / "answers")
    sent = Sent()
    cohort = cohort_of(federation, sent)
    before = dict(federation.asked)
    respond = Service.respond

    def forgetful(message: Message) -> Message:
        federation.sites["b"].shelf.clear()
        return respond(federation.sites["b"], message)

    federation.sites["b"].respond = forgetful  # type: ignore[method-assign]
    found = [round_.models[0].weights for round_ in strategy("fedma")(cohort, plan)]
    for ours, theirs in zip(found, expected, strict=True):
        assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    asked = {name: federation.asked[name] - before[name] for name in NAMES}
    assert asked["b"] > asked["a"] == asked["c"]
