"""Weights in half the bytes: what is rounded, what never is, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprognos.errors import MessageError
from fedprognos.experiment.experiment_run import run
from fedprognos.federation.client import Client
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.codec import as_travelled, decode, encode, ledger_line, narrowed, widened, wire_of
from fedprognos.federation.exchanges import Failure, reply_kinds
from fedprognos.federation.exchanges.evaluate import EvaluateReply, EvaluateRequest
from fedprognos.federation.exchanges.fit import FitReply, FitRequest
from fedprognos.federation.federation_section import Wire
from fedprognos.networks import Network, NetworkSpec
from fedprognos.networks.model_options import Training
from refusals import refuses
from small_fleets import recipe_of, series_fleet

NARROW: tuple[Wire, ...] = ("float16", "bfloat16")
RELATIVE = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


@pytest.mark.parametrize("wire", NARROW)
@given(st.lists(st.floats(-60000, 60000, width=32), min_size=1))
def test_weights_are_rounded_to_nearest_and_rounding_them_again_changes_nothing(
    wire: Wire, values: list[float]
) -> None:
    array = np.array(values, dtype=np.float32)
    there = widened(narrowed("w", array, wire))
    assert there.dtype == np.float32
    smallest = 2.0**-24 if wire == "float16" else 2.0**-133
    assert (np.abs(there - array) <= RELATIVE[wire] * np.abs(array) + smallest).all()
    assert np.array_equal(widened(narrowed("w", there, wire)), there)


def test_bfloat16_rounds_as_torch_does() -> None:
    import torch

    array = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    expected = torch.from_numpy(array).to(torch.bfloat16).to(torch.float32).numpy()
    assert np.array_equal(as_travelled({"w": array}, "bfloat16")["w"], expected)


@pytest.mark.parametrize(("wire", "value"), [("float16", 70000.0), ("bfloat16", 3.4e38)])
def test_weights_too_large_are_refused_and_infinity_is_not_let_in(wire: Wire, value: float) -> None:
    reply = FitReply({"w": np.array([1.0, value], np.float32)}, 1, (), 1, False)
    with refuses(MessageError, "tensor", "/w ", wire, "federation.wire"):
        encode(reply, wire)
    sent = encode(FitReply({"w": np.array([1.0, 2.0], np.float32)}, 1, (), 1, False), wire)
    infinite = b"\x00\x7c" if wire == "float16" else b"\x80\x7f"
    with refuses(MessageError, "FitReply", "/w ", "NaN"):
        decode(sent[:-2] + infinite, reply_kinds())


@pytest.mark.parametrize("wire", NARROW)
def test_a_client_answers_in_the_precision_it_is_asked_in_and_never_rounds_statistics(
    tmp_path: Path, wire: Wire
) -> None:
    fleet = series_fleet([90, 80, 85, 95])
    client = Client("a", fleet, ClientFolder(tmp_path))
    recipe = recipe_of(fleet)
    spec = NetworkSpec(inputs=recipe.channels, widths=(16,))
    fit = FitRequest(recipe, Training(epochs=1), 0.2, seed=1, spec=spec)
    full, half = (client.respond(encode(fit, w)) for w in ("float32", wire))
    assert wire_of(half) == wire
    numbers = sum(int(np.prod(shape)) for shape in ledger_line(half).tensors.values())
    assert len(full) - len(half) == pytest.approx(2 * numbers, abs=100)
    trained, rounded = decode(full, reply_kinds()), decode(half, reply_kinds())
    for name, array in as_travelled(trained.weights, wire).items():
        assert np.array_equal(rounded.weights[name], array)
    asked = EvaluateRequest(recipe, Network(spec, rounded.weights), 1, 0.25, statistics=True)
    sent = [decode(client.respond(encode(asked, w)), (EvaluateReply,)) for w in ("float32", wire)]
    assert sent[0].fit.hh.dtype == np.float64
    assert np.array_equal(sent[0].fit.hh, sent[1].fit.hh)
    assert sent[0].validation == sent[1].validation


def test_a_client_whose_weights_do_not_fit_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client("a", series_fleet([90, 80]), ClientFolder(tmp_path))
    large = FitReply({"w": np.array([1e6], np.float32)}, 30, (), 1, False)
    monkeypatch.setattr(client, "answer", lambda request, on_epoch: large)
    recipe = recipe_of(client.fleet)
    request = FitRequest(recipe, Training(), 0.2, seed=1, spec=NetworkSpec(inputs=recipe.channels, widths=(2,)))
    reply = decode(client.respond(encode(request, "float16")), reply_kinds())
    assert isinstance(reply, Failure)
    assert reply.code == "message" and "float16" in reply.text


def test_a_run_in_half_precision_moves_about_half_the_bytes_and_publishes_what_was_evaluated(tmp_path: Path) -> None:
    tiny = (
        *("data.units_per_site=4", "data.test_units_per_site=2", "model.widths=[24]", "train.epochs=1"),
        *("recipe.stride=10", "federation.methods=['fedavg', 'fedma']", "federation.fedavg={rounds=1, epochs=1}"),
        *("federation.heads=['mean']", "evaluation.baselines=[]", "evaluation.bootstrap=0"),
    )
    moved = {}
    for wire in ("float32", "float16"):
        overrides = (*tiny, f"federation.wire='{wire}'")
        done = run("plants", out=tmp_path / wire, overrides=overrides, seeds=1, workers=1)
        moved[wire] = {row.method: row.bytes or 0 for row in done.results.rows}
    assert all(0.5 < moved["float16"][m] / moved["float32"][m] < 0.65 for m in ("fedavg", "fedma"))
    weights = done.bundle.network.weights
    assert all(np.array_equal(array, as_travelled(weights, "float16")[name]) for name, array in weights.items())
