"""What is registered, and the examples from outside, keep the promises of their kinds; breaches are named."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from brokers import broker, publisher
from every_message import FLEET, RULE, every_request, small_network
from services import free_port
from sinks import mail_server, webhook

import fedprognos as fp
from fedprognos import checks
from fedprognos.checks import CheckError
from fedprognos.errors import MessageError
from fedprognos.experiment.engines import DaskCluster, Engine, OwnProcesses
from fedprognos.features import SurveyTerms
from fedprognos.federation.client import Client
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.exchanges import request_kinds
from fedprognos.federation.exchanges.survey import MomentsRequest, SurveyRequest
from fedprognos.fleet.readers import ReadContext
from fedprognos.networks import Bundle
from fedprognos.privacy.mask_messages import KeysRequest
from fedprognos.prognosis import Row
from fedprognos.service.alert_sinks import sinks
from fedprognos.service.sources import sources
from refusals import refuses
from small_fleets import recipe_of

sys.path.append(str(Path(__file__).parent / "outside"))

from my_aggregator import MIDRANGE
from my_baseline import MEDIAN
from my_cell import PLAIN
from my_channel import HIGHEST
from my_engine import PoliteProcesses
from my_history import THINNED
from my_mechanism import ROUNDED
from my_metric import WITHIN
from my_partition import ALTERNATING
from my_reader import PUMPS
from my_sink import LOGBOOK
from my_source import LINES
from my_strategy import TRUST

QUICK: dict[str, dict[str, Any]] = {
    "fedavg": {"rounds": 2, "epochs": 1},
    "fedprox": {"rounds": 2, "epochs": 1},
    "fedma": {"rounds": 2},
    "reservoir": {"units": 4},
    "levels": {"levels": "voltage_in_V", "grid_end_in_s": 1500.0},
    "life": {"window": None},
    "condition": {"decimals": {"altitude_in_kft": 0}},
    "lifespan": {"edges": (150,)},
    "random": {"clients": 3},
    "column": {"column": "site"},
    "dirichlet": {"clients": 3, "alpha": 1.0},
    "cmapss": {"subset": "FD001"},
    "nasa-battery": {"batteries": ["B0018"]},
    "synthetic-engines": {"units_per_site": 1, "test_units_per_site": 1},
    "synthetic-batteries": {"units_per_site": 1},
    "table": {"path": "fleet.csv", "unit": "pump", "time": "hour"},
    "mqtt": {"host": "127.0.0.1", "port": 9},
    "sparkplug": {"host": "127.0.0.1", "port": 9},
    "opcua": {"url": "opc.tcp://127.0.0.1:9", "parent": "ns=2;s=pumps"},
    "webhook": {"url": "http://127.0.0.1:9/nobody"},
    "mail": {"host": "127.0.0.1", "port": 9, "sender": "plant@example.org", "to": ["crew@example.org"]},
}
"""Options that a registered thing needs, or that make its check quick."""


def registered(shelf: Any, *outside: Any) -> Any:
    """All things on a shelf and those from outside, each as a case of its own."""
    marks = {name: [pytest.mark.needs_data(name)] for name in ("cmapss", "nasa-battery")}
    return pytest.mark.parametrize(
        "thing",
        [pytest.param(thing, id=thing.name, marks=marks.get(thing.name, [])) for thing in (*shelf.values(), *outside)],
    )


@registered(fp.registry.cells, PLAIN)
def test_cells(thing: Any) -> None:
    checks.check_cell(thing)


@registered(fp.registry.channels, HIGHEST)
def test_channels(thing: Any) -> None:
    checks.check_channel(thing)


@registered(fp.registry.histories, THINNED)
def test_histories(thing: Any) -> None:
    checks.check_history(thing, **QUICK.get(thing.name, {}))


@registered(fp.registry.metrics, WITHIN)
def test_metrics(thing: Any) -> None:
    checks.check_metric(thing)


@registered(fp.registry.baselines, MEDIAN)
def test_baselines(thing: Any) -> None:
    checks.check_baseline(thing)


@registered(fp.registry.aggregators, MIDRANGE)
def test_averages(thing: Any) -> None:
    checks.check_average(thing)


@registered(fp.registry.mechanisms, ROUNDED)
def test_mechanisms(thing: Any) -> None:
    checks.check_mechanism(thing)


@registered(fp.registry.strategies, TRUST)
def test_strategies(thing: Any) -> None:
    checks.check_strategy(thing, **QUICK.get(thing.name, {}))


@pytest.mark.parametrize("request_", every_request(), ids=lambda request: type(request).__name__)
def test_exchanges(request_: Any, tmp_path: Path) -> None:
    bundle = Bundle(recipe_of(FLEET, conditions=RULE), small_network()).save(tmp_path / "bundle")
    client = Client("a", FLEET, ClientFolder(tmp_path / "a", bundle), test=FLEET)
    if isinstance(request_, MomentsRequest):
        request_ = replace(request_, columns=len(FLEET.schema.sensors) + len(FLEET.schema.settings))
    checks.check_exchange(fp.registry.exchanges[type(request_).__name__], request_, client)


@registered(fp.registry.partitions, ALTERNATING)
def test_partitions(thing: Any) -> None:
    checks.check_partition(thing, **QUICK.get(thing.name, {}))


@registered(fp.registry.readers, PUMPS)
def test_readers(thing: Any, tmp_path: Path) -> None:
    rows = [f"{pump},{hour},{hour / 2}" for pump in "abc" for hour in range(1, 5)]
    (tmp_path / "fleet.csv").write_text("pump,hour,heat\n" + "\n".join(rows))
    checks.check_reader(thing, ReadContext(folder=tmp_path), **QUICK.get(thing.name, {}))


@registered(sources, LINES)
def test_sources(thing: Any, tmp_path: Path) -> None:
    """Each waits for machines that are not there; port 9 answers nobody."""
    options = {"folder": {"folder": tmp_path}, "lines": {"port": free_port()}}.get(
        thing.name, QUICK.get(thing.name, {})
    )
    checks.check_source(thing, **options)


def test_a_folder_keeps_every_row(tmp_path: Path) -> None:
    def send(rows: Sequence[Row]) -> None:
        lines = [f"{row.unit},{row.position},{row.sensors['heat']}" for row in rows]
        (tmp_path / f"{len(rows)}.csv").write_text("\n".join(["pump,hour,heat", *lines]))

    checks.check_source(sources["folder"], send, folder=tmp_path, every_in_s=0.05, unit="pump", time="hour")


def test_a_source_from_outside_keeps_every_row() -> None:
    port = free_port()

    def send(rows: Sequence[Row]) -> None:
        with socket.create_connection(("127.0.0.1", port), 5) as connection, connection.makefile("rwb") as lines:
            for row in rows:
                lines.write(json.dumps({"unit": row.unit, "position": row.position, "sensors": row.sensors}).encode())
                lines.write(b"\n")
                lines.flush()
                assert lines.readline() == b"stored\n"

    checks.check_source(LINES, send, port=port)


@pytest.mark.long
def test_mqtt_keeps_every_row(tmp_path: Path) -> None:
    async def publish(rows: Sequence[Row]) -> None:
        client = await publisher(port)
        for row in rows:
            payload = json.dumps({"position": row.position, "sensors": row.sensors})
            await client.publish(f"fleet/{row.unit}/sensors", payload, qos=1)
        await client.__aexit__(None, None, None)

    with broker(port := free_port(), tmp_path):
        send = lambda rows: asyncio.run(publish(rows))  # noqa: E731
        checks.check_source(sources["mqtt"], send, host="127.0.0.1", port=port, retry_in_s=0.1)


@registered(sinks, LOGBOOK)
def test_sinks(thing: Any, tmp_path: Path) -> None:
    """None confirms an alert that nobody receives."""
    checks.check_sink(thing, **({"file": tmp_path / "missing"} if thing is LOGBOOK else QUICK[thing.name]))


def test_sinks_reach_their_receivers(tmp_path: Path) -> None:
    with webhook() as posted:
        checks.check_sink(sinks["webhook"], lambda: json.dumps(posted.posts), url=posted.url)
    with mail_server() as (port, mails):
        options = {**QUICK["mail"], "port": port, "security": "none"}
        checks.check_sink(sinks["mail"], lambda: "".join(map(str, mails)), **options)
    file = tmp_path / "alerts.jsonl"
    file.touch()
    checks.check_sink(LOGBOOK, file.read_text, file=file)


@pytest.mark.long
@pytest.mark.parametrize(
    "make_engine", [lambda: OwnProcesses(2), lambda: DaskCluster("local", 2), lambda: PoliteProcesses(2)]
)
def test_engines(make_engine: Callable[[], Engine]) -> None:
    checks.check_engine(make_engine)


def test_every_exchange_that_a_client_answers_is_checked() -> None:
    masks = {kind for kind in request_kinds() if kind.__module__ == KeysRequest.__module__}  # for members of sums only
    assert {type(request) for request in every_request()} == set(request_kinds()) - masks


def test_every_shelf_is_checked() -> None:
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {"averages" if name == "aggregators" else name for name in fp.registry.__all__} <= tested


class TestBreaches:
    """A broken promise is found, and the error names the thing and the part."""

    def test_a_cell_whose_gates_do_not_fit(self) -> None:
        with refuses(CheckError, "cell 'gru'", "weight_ih_l0", code="check"):
            checks.check_cell(replace(fp.registry.cells["gru"], gates=4))

    def test_a_cell_whose_step_is_another(self) -> None:
        lstm, gru = fp.registry.cells["lstm"], fp.registry.cells["gru"]
        with refuses(CheckError, "cell 'gru'", "step"):
            checks.check_cell(replace(gru, step=lambda *tensors: lambda rows, states: 0.5 * states))
        assert lstm.step is not None

    def test_a_cell_whose_signature_does_not_follow_its_neurons(self) -> None:
        def signature(weight_ih: np.ndarray, *rest: np.ndarray) -> np.ndarray:
            return np.sort(fp.registry.cells["gru"].signature(weight_ih, *rest), axis=0)

        with refuses(CheckError, "cell 'sorted'", "signature"):
            checks.check_cell(replace(fp.registry.cells["gru"], name="sorted", signature=signature))

    def test_a_channel_that_looks_ahead(self) -> None:
        with refuses(CheckError, "channel 'mean'", "batch"):
            checks.check_channel(
                replace(
                    fp.registry.channels["mean"],
                    batch=lambda rows, span: np.repeat(rows.mean(axis=0, keepdims=True), len(rows), axis=0),
                )
            )

    def test_a_channel_that_differs_row_by_row(self) -> None:
        with refuses(CheckError, "channel 'mean'", "push", "span 1"):
            checks.check_channel(replace(fp.registry.channels["mean"], start=fp.registry.channels["change"].start))

    def test_a_metric_whose_parts_do_not_add_up(self) -> None:
        with refuses(CheckError, "metric 'rmse'", "pool"):
            checks.check_metric(replace(fp.registry.metrics["rmse"], pool=lambda values, n: float(values.sum())))

    def test_a_metric_that_prefers_noise(self) -> None:
        with refuses(CheckError, "metric 'rmse'", "0.0"):
            checks.check_metric(replace(fp.registry.metrics["rmse"], best="highest"))

    def test_a_baseline_that_looks_at_test_labels(self) -> None:
        with refuses(CheckError, "baseline 'oracle'", "labels"):
            checks.check_baseline(fp.Baseline("oracle", "Oracle", 1, lambda train, recipe: lambda test: test.labels))

    def test_an_average_that_is_not_robust(self) -> None:
        with refuses(CheckError, "average 'weak'", "10"):
            checks.check_average(replace(fp.registry.aggregators["mean"], name="weak", robust=True))

    def test_a_mechanism_with_too_little_noise(self) -> None:
        gaussian = fp.registry.mechanisms["gaussian"]
        with refuses(CheckError, "mechanism 'gaussian'", "0.497"):
            checks.check_mechanism(
                replace(
                    gaussian, apply=lambda values, bound, noise, seed: gaussian.apply(values, bound, noise / 2, seed)
                )
            )

    def test_an_exchange_that_refuses_its_own_reply(self) -> None:
        def check(request: Any, reply: Any, most_points: int) -> None:
            raise MessageError("too large")

        exchange = fp.registry.exchanges["SurveyRequest"]
        strict = replace(exchange, check=check)
        with (
            mock.patch.dict(fp.registry.exchanges._things, {exchange.name: strict}),
            refuses(CheckError, "exchange 'SurveyRequest'", "check", "too large"),
        ):
            checks.check_exchange(strict, SurveyRequest(SurveyTerms()))

    def test_a_strategy_that_forgets_its_seed(self) -> None:
        start = fp.Network.seeded

        def rounds(cohort: Any, plan: Any, options: Any) -> Any:
            yield fp.Round(1, {cohort.clients: start(plan.spec, 0)}, 1)

        with refuses(CheckError, "strategy 'still'", "seed"):
            checks.check_strategy(fp.Strategy("still", "Still", 1, rounds))

    def test_a_partition_that_loses_a_unit(self) -> None:
        with refuses(CheckError, "partition 'alternating'", "unit"):
            checks.check_partition(replace(ALTERNATING, deal=lambda fleet, options: {"all": list(fleet.units[1:])}))

    def test_a_source_that_gives_up(self) -> None:
        async def run(options: Any, feed: Any) -> None:
            raise ConnectionRefusedError

        with refuses(CheckError, "source 'lines'", "ConnectionRefusedError"):
            checks.check_source(replace(LINES, run=run))

    def test_a_sink_that_confirms_what_nobody_got(self) -> None:
        async def send(alerts: Any) -> None:
            pass

        with refuses(CheckError, "alert sink 'webhook'"):
            checks.check_sink(replace(sinks["webhook"], open=lambda options: send), **QUICK["webhook"])

    def test_a_name_that_no_file_can_have(self) -> None:
        with refuses(CheckError, "My Metric"):
            checks.check_metric(replace(fp.registry.metrics["rmse"], name="My Metric"))
