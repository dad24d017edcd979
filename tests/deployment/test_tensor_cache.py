"""What a site has is not sent again; what it lost is; the message is the same to the last bit."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sites_here import MailboxHere, site_here

from fedprognos.deployment import site_transport
from fedprognos.deployment.site_transport import SiteTransport
from fedprognos.deployment.tensor_cache import MARK, SentTensors, TensorCache, TensorsMissingError
from fedprognos.errors import MessageError
from fedprognos.federation.codec import encode
from fedprognos.federation.cohort import MessageCohort
from fedprognos.federation.heads import with_heads
from fedprognos.federation.messages import FitReply
from fedprognos.federation.options import federation_options
from fedprognos.federation.plan import Plan
from fedprognos.federation.strategies import strategies
from fedprognos.networks import NetworkSpec
from fedprognos.networks.options import TrainOptions
from small_fleets import recipe_of

LIMIT = 1 << 20
NAMES = ("a", "b", "c")


def message(*numbers: int) -> bytes:
    """A reply with a tensor of 400 numbers for each of these, and a small one."""
    weights = {f"w{k}": np.full(400, number, np.float32) for k, number in enumerate(numbers)}
    return encode(FitReply({**weights, "small": np.zeros(3, np.float32)}, 1, (), 1, False))


numbers = st.lists(st.integers(0, 5), max_size=5)


@given(had=numbers, wanted=numbers)
def test_a_shortened_message_becomes_the_message_again_and_is_no_longer(
    tmp_path_factory: pytest.TempPathFactory, had: list[int], wanted: list[int]
) -> None:
    cache, sent = TensorCache(tmp_path_factory.mktemp("tensors"), LIMIT), SentTensors()
    first, second = message(*had), message(*wanted)
    assert cache.complete(sent.shorten("a", first)) == first
    cache.keep(first)
    sent.answered("a", first, first)
    shortened = sent.shorten("a", second)
    assert cache.complete(shortened) == second
    new = len([n for n in wanted if n not in had])
    if new < len(wanted):
        assert len(shortened) < 1600 * new + 2000
    assert sent.shorten("b", second) == second  # another site has nothing


def test_what_is_lost_or_damaged_is_said(tmp_path: Path) -> None:
    cache, sent = TensorCache(tmp_path / "tensors", LIMIT), SentTensors()
    cache.keep(message(1))
    sent.answered("a", message(1), message(1))
    shortened = sent.shorten("a", message(1))
    assert shortened.startswith(MARK)
    assert sent.saved > 1000
    (file,) = (tmp_path / "tensors").iterdir()
    file.write_bytes(bytes(1600))
    with pytest.raises(TensorsMissingError, match="damaged"):
        cache.complete(shortened)
    cache.clear()
    with pytest.raises(TensorsMissingError, match="no longer in the cache"):
        cache.complete(shortened)
    sent.forget("a")
    assert sent.shorten("a", message(1)) == message(1)


def test_the_cache_has_an_end(tmp_path: Path) -> None:
    cache = TensorCache(tmp_path / "tensors", 4000)
    for number in range(20):
        cache.keep(message(number))
    kept = list((tmp_path / "tensors").iterdir())
    assert 1 <= len(kept) <= 5
    assert cache.complete(message(3)) == message(3)  # a whole message needs no cache


@pytest.mark.parametrize(
    "data", [b"", b"nonsense", message(1)[:40], message(1).replace(b"data_offsets", b"dada_offsets")]
)
def test_a_malformed_reply_teaches_nothing_about_a_site(data: bytes) -> None:
    sent = SentTensors()
    sent.answered("a", message(2), data)
    assert sent.shorten("a", message(1)) == message(1)


@pytest.mark.parametrize(
    "header",
    [
        {"parts": [[8, "../../settings.toml"]]},
        {"parts": [[8, "/etc/passwd"]]},
        {"parts": [[-8, "0" * 64]]},
        {"parts": [[LIMIT * 2, "0" * 64]]},
        {"parts": [[LIMIT, "0" * 64], [1, ""]]},
        {"parts": [[8]]},
        {"parts": "x"},
        {},
        [],
    ],
)
def test_shortened_messages_from_elsewhere_are_checked(tmp_path: Path, header: object) -> None:
    whole = {"sha256": hashlib.sha256(b"").hexdigest(), **header} if isinstance(header, dict) else header
    text = json.dumps(whole).encode()
    for size in (len(text), 1 << 40, len(text) - 2):
        with pytest.raises(MessageError, match="malformed shortened message"):
            TensorCache(tmp_path, LIMIT).complete(MARK + size.to_bytes(8, "little") + text)


# --- a whole federation ---------------------------------------------------------------------------


@pytest.fixture
def federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MailboxHere:
    monkeypatch.setattr(site_transport, "LOOK_IN_S", 0.0)
    return MailboxHere({name: site_here(tmp_path / name, name, seed) for seed, name in enumerate(NAMES)})


def plan_of(federation: MailboxHere, **fedma: object) -> Plan:
    recipe = recipe_of(federation.sites["a"].data.train)
    spec = NetworkSpec(inputs=recipe.channels, widths=(16, 16))
    options = federation_options().model_validate({"heads": ("mean",), "fedma": fedma})
    return Plan(recipe, spec, TrainOptions(epochs=1), options, seed=3)


def cohort_of(federation: MailboxHere, sent: SentTensors) -> MessageCohort:
    return MessageCohort(SiteTransport(federation, NAMES, LIMIT, 60.0, sent=sent))


def test_a_round_of_fedma_asks_a_site_at_most_once_more_than_there_are_layers_and_sends_no_layer_twice(
    federation: MailboxHere,
) -> None:
    sent, plan = SentTensors(), plan_of(federation, rounds=2, width_limit=1.0)
    cohort = cohort_of(federation, sent)
    layers = len(plan.spec.anatomy.layers)  # two recurrent ones and the head
    sizes, before = [], 0
    for round_ in strategies["fedma"].run(cohort, plan):
        [(clients, network)] = round_.models.items()
        with_heads(cohort, plan, clients, network)
        assert {federation.asked[name] for name in NAMES} == {round_.number * (layers + 1)}
        sizes.append(sent.bytes - before)
        before = sent.bytes
        weights = sum(array.nbytes for array in network.weights.values())
    messages = len(NAMES) * (layers + 1)
    overhead = 6000 * messages  # recipe, plan and header of a message
    # Once around: the first training starts from nothing, then every layer goes to every site once, and its
    # inputs above once more; the finished model is evaluated, and the next round starts, with nothing sent.
    assert sizes[0] < 2 * len(NAMES) * weights + overhead
    assert sizes[1] < 2 * len(NAMES) * weights + overhead
    assert sent.saved > 2 * len(NAMES) * weights


def test_a_site_that_lost_its_tensors_is_sent_the_whole_and_the_weights_are_the_same(
    federation: MailboxHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(federation, width_limit=1.0)

    def networks() -> list[dict[str, np.ndarray]]:
        rounds = strategies["fedma"].run(cohort_of(federation, SentTensors()), plan)
        return [dict(network.weights) for round_ in rounds for network in round_.models.values()]

    expected, before = networks(), dict(federation.asked)
    for name in NAMES:
        federation.sites[name].tensors.clear()
        shutil.rmtree(tmp_path / name / "answers")
    forgetful = federation.sites["b"]
    respond = forgetful.respond

    def forget_and_respond(data: bytes) -> bytes:
        forgetful.tensors.clear()
        return respond(data)

    monkeypatch.setattr(forgetful, "respond", forget_and_respond)
    for ours, theirs in zip(networks(), expected, strict=True):
        assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    asked = {name: federation.asked[name] - before[name] for name in NAMES}
    assert asked["b"] > asked["a"] == asked["c"]
    kinds = [line.kind for line in forgetful.client.folder.ledger()]
    assert kinds.count("TensorsMissing") == asked["b"] - asked["a"]
