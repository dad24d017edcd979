"""Sources beside HTTP and plain MQTT: nested JSON, a folder, Sparkplug B and OPC UA, each with a real peer."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiomqtt
import pandas as pd
import pytest
from brokers import broker, mosquitto, publisher, until
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st
from services import free_port, rows_of, running, small_bundle
from watchers import Watcher

from fedprognos.errors import ConfigError, DataError
from fedprognos.prognosis import Predictor
from fedprognos.service import DurableStream, read_plant
from fedprognos.service.row_readers import PayloadOptions, read_payload
from fedprognos.service.service_options import PlantOptions
from fedprognos.service.sources.folder import FolderOptions, FolderSource
from fedprognos.service.sources.mqtt import MqttOptions, MqttSource
from fedprognos.service.sources.opcua import OpcuaOptions, OpcuaSource
from fedprognos.service.sources.sparkplug import SparkplugOptions, SparkplugSource
from fedprognos.service.sparkplug_payload import BOOLEAN, DOUBLE, INT64, Metric, Payload, write_payload
from fedprognos.service.sparkplug_payload import read_payload as read_sparkplug
from refusals import refuses
from small_fleets import series_fleet

FLEET = series_fleet([22, 18])
BUNDLE = small_bundle(FLEET)
PREDICTOR = Predictor.from_bundle(BUNDLE)
NAME = st.text("aZ/ é", max_size=6)
NAMES = (*FLEET.schema.sensors, *FLEET.schema.settings)


def flat(row: dict[str, Any]) -> dict[str, float]:
    return {**row["sensors"], **row["settings"]}


def assert_offline_numbers(stream: DurableStream) -> None:
    expected = BUNDLE.predict(FLEET, last=True)
    for unit in FLEET.ids:
        health = stream.stream.health(unit)
        assert health is not None and health.value == pytest.approx(expected[unit][-1], abs=1e-5)


def at_work(watch: Watcher, story: Callable[[], Awaitable[None]]) -> None:
    """Run a story while the source works."""

    async def both() -> None:
        task = asyncio.create_task(watch.run())
        try:
            await story()
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(both())


# --- nested JSON -------------------------------------------------------------------------------


def test_parts_of_a_row_are_found_anywhere_in_a_payload() -> None:
    row = rows_of(FLEET["engines-0"], FLEET)[4]
    samples = {name: {"value": value, "quality": "good"} for name, value in row["sensors"].items()}
    gateway = {
        "header": {"machine": row["unit"]},
        "body": {"settings": row["settings"], "samples": [{"n": row["position"], "data": samples}]},
    }
    options = PayloadOptions(
        rows="body.samples",
        unit="header.machine",
        position="n",
        sensors="data",
        settings="body.settings",
        value="value",
    )
    assert read_payload([gateway], options, BUNDLE.recipe) == [row]


def test_what_is_missing_in_a_payload_is_missing_in_the_row() -> None:
    recipe = BUNDLE.recipe
    first, second = recipe.sensors
    options = PayloadOptions(sensors={first: "a.0", second: "a.7"})
    (row,) = read_payload([{"a": [None], "position": 3}], options, recipe)
    assert row == {"sensors": {first: None}, "settings": {}, "position": 3}
    with refuses(DataError, "samples"):
        read_payload([{}], PayloadOptions(rows="samples"), recipe)


@pytest.mark.long
def test_nested_json_over_mqtt_gives_the_offline_numbers(tmp_path: Path) -> None:
    port = free_port()
    payload = PayloadOptions(position="meta.n", sensors="data", settings="data")
    options = MqttOptions(
        host="127.0.0.1", port=port, topic="plant/+/data", publish="", payload=payload, retry_in_s=0.1
    )
    watch = Watcher(DurableStream(PREDICTOR), options, MqttSource)

    async def story() -> None:
        client = await publisher(port)
        await until(lambda: watch.tally.connections == 1)
        for unit in FLEET:
            for row in rows_of(unit, FLEET):
                nested = {"meta": {"n": row["position"]}, "data": {**flat(row), "noise": 1.0}}
                await client.publish(f"plant/{unit.id}/data", json.dumps(nested), qos=1)
        await until(lambda: watch.tally.accepted == 40)
        with suppress(aiomqtt.MqttError):
            await client.__aexit__(None, None, None)

    with broker(port, tmp_path):
        at_work(watch, story)
    assert_offline_numbers(watch.stream)


# --- a folder ----------------------------------------------------------------------------------


def table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame([{"unit": row["unit"], "cycle": row["position"], **flat(row)} for row in rows])


def test_files_that_appear_and_grow_in_a_folder_are_read(tmp_path: Path) -> None:
    (inbox := tmp_path / "in").mkdir()
    options = FolderOptions(folder=inbox, every_in_s=0.05)
    watch = Watcher(DurableStream(PREDICTOR), options, FolderSource)
    first, second = (rows_of(unit, FLEET) for unit in FLEET)

    async def story() -> None:
        table(first[:9]).to_csv(inbox / "a.csv", index=False)
        (inbox / "broken.csv").write_text("one,two\n1,2\n")
        (inbox / "notes.txt").write_text("not a table")
        await until(lambda: watch.tally.accepted == 9 and watch.tally.faulty == 1)
        table(first).to_csv(inbox / "a.csv", index=False)
        table(second).to_parquet(inbox / "b.parquet")
        await until(lambda: watch.tally.accepted == 40)

    at_work(watch, story)
    assert_offline_numbers(watch.stream)
    assert watch.tally.refused == 0 and watch.tally.faulty == 1
    assert "broken.csv" in watch.view.refusals[0].reason


def test_a_file_that_ends_within_a_row_is_no_row_until_it_is_complete(tmp_path: Path) -> None:
    (inbox := tmp_path / "in").mkdir()
    options = FolderOptions(folder=inbox, every_in_s=0.02)
    watch = Watcher(DurableStream(PREDICTOR), options, FolderSource)
    text = table(rows_of(FLEET["engines-0"], FLEET)[:9]).to_csv(index=False)
    cut = text.rindex(",")  # the last row lacks its last cell

    async def story() -> None:
        (inbox / "a.csv").write_text(text[:cut])
        (inbox / "b.csv").write_text(text.replace("engines-0", "other").rstrip())  # complete, but for the line break
        await until(lambda: watch.tally.faulty == 1 and watch.tally.accepted == 9)
        (inbox / "a.csv").write_text(text)
        await until(lambda: watch.tally.accepted == 18)

    at_work(watch, story)
    assert watch.tally.refused == 0 and "a.csv" in watch.view.refusals[0].reason
    numbers = [watch.stream.history(unit)[1][-1].numbers for unit in ("engines-0", "other")]
    assert numbers[0] == numbers[1]


def test_files_that_were_read_can_be_moved(tmp_path: Path) -> None:
    for folder in ("in", "done"):
        (tmp_path / folder).mkdir()
    options = FolderOptions(folder=tmp_path / "in", move_to=tmp_path / "done", every_in_s=0.05)
    watch = Watcher(DurableStream(PREDICTOR), options, FolderSource)
    table(rows_of(FLEET["engines-0"], FLEET)).to_csv(tmp_path / "in" / "a.csv", index=False)

    async def story() -> None:
        await until((tmp_path / "done" / "a.csv").exists)

    at_work(watch, story)
    assert watch.tally.accepted == 22 and not list((tmp_path / "in").iterdir())


def test_a_service_reads_its_sources_beside_http(tmp_path: Path) -> None:
    plant = PlantOptions.model_validate({"sources": [{"kind": "folder", "folder": tmp_path, "every_in_s": 0.05}]})
    first, second = (rows_of(unit, FLEET) for unit in FLEET)
    table(first).to_csv(tmp_path / "a.csv", index=False)
    with running(BUNDLE, plant=plant) as client:
        assert client.post("/v1/rows", json=second).json()["accepted"] == 18
        end = time.monotonic() + 15
        while client.get("/v1/fleet").json()["units"] < 2:
            assert time.monotonic() < end
            time.sleep(0.05)


# --- Sparkplug B -------------------------------------------------------------------------------


def published_messages() -> Any:
    """The published schema, as far as it is used, in Google's implementation: the referee of the codec."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="sparkplug.proto", package="t", syntax="proto2")
    metric, payload = file.message_type.add(name="Metric"), file.message_type.add(name="Payload")
    for message, name, number, kind, label in (
        (metric, "name", 1, kinds.TYPE_STRING, 1),
        (metric, "alias", 2, kinds.TYPE_UINT64, 1),
        (metric, "timestamp", 3, kinds.TYPE_UINT64, 1),
        (metric, "datatype", 4, kinds.TYPE_UINT32, 1),
        (metric, "is_historical", 5, kinds.TYPE_BOOL, 1),
        (metric, "is_null", 7, kinds.TYPE_BOOL, 1),
        (metric, "int_value", 10, kinds.TYPE_UINT32, 1),
        (metric, "long_value", 11, kinds.TYPE_UINT64, 1),
        (metric, "float_value", 12, kinds.TYPE_FLOAT, 1),
        (metric, "double_value", 13, kinds.TYPE_DOUBLE, 1),
        (metric, "boolean_value", 14, kinds.TYPE_BOOL, 1),
        (metric, "string_value", 15, kinds.TYPE_STRING, 1),
        (payload, "timestamp", 1, kinds.TYPE_UINT64, 1),
        (payload, "metrics", 2, kinds.TYPE_MESSAGE, 3),
        (payload, "seq", 3, kinds.TYPE_UINT64, 1),
        (payload, "uuid", 4, kinds.TYPE_STRING, 1),
    ):
        field = message.field.add(name=name, number=number, type=kind, label=label)
        if name == "metrics":
            field.type_name = ".t.Metric"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Payload"))


@pytest.mark.parametrize(
    ("datatype", "field", "sent", "value"),
    [
        (1, "int_value", 2**32 - 5, -5),
        (2, "int_value", 2**16 - 5, -5),
        (3, "int_value", 2**32 - 5, -5),
        (INT64, "long_value", 2**64 - 5, -5),
        (7, "int_value", 2**32 - 5, 2**32 - 5),
        (8, "long_value", 2**64 - 5, 2**64 - 5),
        (9, "float_value", 0.5, 0.5),
        (DOUBLE, "double_value", 0.1, 0.1),
        (BOOLEAN, "boolean_value", True, True),
        (12, "string_value", "höher", "höher"),
        (DOUBLE, "is_null", True, None),
    ],
)
def test_values_are_read_as_the_published_schema_writes_them(
    datatype: int, field: str, sent: object, value: object
) -> None:
    message = published_messages()(timestamp=1_700_000_000_000, seq=255, uuid="passed over")
    message.metrics.add(name="Motor/heat", alias=3, timestamp=7, datatype=datatype, is_historical=True, **{field: sent})
    payload = read_sparkplug(message.SerializeToString())
    assert payload == Payload(1_700_000_000_000, [Metric("Motor/heat", 3, 7, datatype, value)], 255)  # type: ignore[arg-type]


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.builds(
                Metric, st.text(), st.none() | st.integers(0, 2**64 - 1), st.none(), st.just(DOUBLE), st.floats()
            ),
            st.builds(Metric, NAME, st.none(), st.none(), st.just(INT64), st.integers(-(2**63), 2**63 - 1)),
            st.builds(Metric, NAME, st.none(), st.integers(0, 2**63), st.just(BOOLEAN), st.booleans()),
        ),
        max_size=5,
    )
)
def test_payloads_are_written_as_the_published_schema_reads_them(metrics: list[Metric]) -> None:
    data = write_payload(Payload(5, metrics, 9))
    message = published_messages()()
    message.ParseFromString(data)
    assert [metric.name for metric in message.metrics] == [metric.name for metric in metrics]
    for theirs, ours, again in zip(message.metrics, metrics, read_sparkplug(data).metrics, strict=True):
        if ours.datatype == BOOLEAN:
            assert theirs.boolean_value == ours.value == again.value
        elif ours.datatype == INT64:
            assert theirs.long_value == int(ours.value or 0) % 2**64 and again.value == ours.value
        else:
            assert repr(theirs.double_value) == repr(ours.value)


@settings(deadline=None)
@given(st.binary(max_size=80))
def test_damaged_payloads_are_refused_and_nothing_else_happens(data: bytes) -> None:
    with suppress(DataError):
        read_sparkplug(data)


class EdgeNode:
    """A Sparkplug edge node with the machines of the fleet as devices."""

    def __init__(self, client: aiomqtt.Client) -> None:
        self.client, self.seq = client, 0
        self.alias = {name: k for k, name in enumerate(["cycle", *NAMES])}

    async def send(self, kind: str, device: str, metrics: list[Metric], lost: bool = False) -> None:
        payload = write_payload(Payload(int(1000 * time.time()), metrics, self.seq))
        self.seq = (self.seq + 1) % 256
        if not lost:
            await self.client.publish("/".join(filter(None, ["spBv1.0/plant", kind, "edge", device])), payload)

    async def birth(self, current: dict[str, dict[str, Any]]) -> None:
        self.seq = 0
        await self.send("NBIRTH", "", [Metric("bdSeq", None, None, INT64, 0)])
        for device, row in current.items():
            values = {"cycle": row["position"], **flat(row)}
            await self.send(
                "DBIRTH", device, [Metric(name, self.alias[name], None, DOUBLE, values[name]) for name in self.alias]
            )

    async def data(self, row: dict[str, Any], lost: bool = False) -> None:
        values = {"cycle": row["position"], **flat(row)}
        metrics = [Metric("", self.alias[name], None, DOUBLE, value) for name, value in values.items()]
        await self.send("DDATA", row["unit"], metrics, lost)


@pytest.mark.long
def test_sparkplug_gives_the_offline_numbers_and_a_gap_leads_to_a_rebirth(tmp_path: Path) -> None:
    port = free_port()
    options = SparkplugOptions(host="127.0.0.1", port=port, position="cycle", host_id="fedprognos", retry_in_s=0.1)
    watch = Watcher(DurableStream(PREDICTOR), options, SparkplugSource)
    lives = [rows_of(unit, FLEET) for unit in FLEET]
    commands: list[Payload] = []
    states: list[dict[str, Any]] = []

    async def hear(client: aiomqtt.Client) -> None:
        async for message in client.messages:
            data = bytes(message.payload)  # type: ignore[arg-type]
            if "/STATE/" in str(message.topic):
                states.append(json.loads(data))
            else:
                commands.append(read_sparkplug(data))

    async def story() -> None:
        client = await publisher(port)
        await client.subscribe("spBv1.0/plant/NCMD/edge")
        await client.subscribe("spBv1.0/STATE/fedprognos")
        hearing = asyncio.create_task(hear(client))
        await until(lambda: watch.tally.connections == 1)
        edge = EdgeNode(client)
        edge.seq = 17
        await edge.data(lives[0][0])  # nobody knows what this is: no birth was seen
        await until(lambda: len(commands) == 1)
        assert [(metric.name, metric.value) for metric in commands[0].metrics] == [("Node Control/Rebirth", True)]
        await edge.birth({life[0]["unit"]: life[0] for life in lives})
        for row in lives[0][1:10]:
            await edge.data(row)
        await until(lambda: watch.tally.accepted == 11)
        await edge.data(lives[0][10], lost=True)
        await edge.data(lives[0][10])  # its number is one too high, so its values may not be all that changed
        node = watch.source.nodes["plant", "edge"]
        await until(lambda: node.next_seq is None)
        node.rebirth_asked = -1e9
        await edge.data(lives[0][11])
        await until(lambda: len(commands) == 2)
        await edge.birth({"engines-0": lives[0][10], "engines-1": lives[1][0]})
        for row in [*lives[0][11:], *lives[1][1:]]:
            await edge.data(row)
        await until(lambda: watch.tally.accepted == 40)
        await edge.send("NDEATH", "", [Metric("bdSeq", None, None, INT64, 3)])  # of another birth: ignored
        await edge.send("NDEATH", "", [Metric("bdSeq", None, None, INT64, 0)])
        await until(lambda: not watch.source.nodes)
        await until(lambda: bool(states))
        hearing.cancel()
        with suppress(aiomqtt.MqttError):
            await client.__aexit__(None, None, None)

    mosquitto()
    with broker(port, tmp_path):
        at_work(watch, story)
    assert_offline_numbers(watch.stream)
    assert states[0]["online"] is True
    assert watch.tally.refused == 0


# --- OPC UA ------------------------------------------------------------------------------------


@pytest.mark.long
def test_opcua_gives_the_offline_numbers_and_a_server_that_restarts_is_waited_for() -> None:
    asyncua = pytest.importorskip("asyncua")
    url = f"opc.tcp://127.0.0.1:{free_port()}/fleet"
    options = OpcuaOptions(url=url, parent="ns=2;s=machines", position="cycle", every_in_s=0.05, retry_in_s=0.1)
    watch = Watcher(DurableStream(PREDICTOR), options, OpcuaSource)
    lives = [rows_of(unit, FLEET) for unit in FLEET]

    async def server_with(rows: list[dict[str, Any]]) -> tuple[Any, dict[str, dict[str, Any]]]:
        server = asyncua.Server()
        await server.init()
        server.set_endpoint(url)
        space = await server.register_namespace("http://plant.example.org")
        assert space == 2
        parent = await server.nodes.objects.add_object(asyncua.ua.NodeId("machines", 2), "2:machines")
        variables: dict[str, dict[str, Any]] = {}
        for row in rows:
            machine = await parent.add_object(asyncua.ua.NodeId(row["unit"], 2), f"2:{row['unit']}")
            values = {**flat(row), "cycle": row["position"]}
            variables[row["unit"]] = {
                name: await machine.add_variable(
                    asyncua.ua.NodeId(f"{row['unit']}.{name}", 2), f"2:{name}", float(value)
                )
                for name, value in values.items()
            }
        await server.start()
        return server, variables

    async def write(variables: dict[str, dict[str, Any]], row: dict[str, Any]) -> None:
        for name, value in {**flat(row), "cycle": row["position"]}.items():  # the position last
            await variables[row["unit"]][name].write_value(float(value))

    async def story() -> None:
        server, variables = await server_with([life[0] for life in lives])
        await until(lambda: watch.tally.accepted == 2, 60)
        for row in lives[0][1:12]:
            await write(variables, row)  # several within one message of the server
        await until(lambda: watch.tally.accepted == 13, 60)
        await server.stop()
        server, variables = await server_with([lives[0][12], lives[1][0]])
        await until(lambda: watch.tally.connections == 2, 60)
        for row in [*lives[0][13:], *lives[1][1:]]:
            await write(variables, row)
        await until(lambda: watch.tally.accepted == 40, 60)
        await server.stop()

    at_work(watch, story)
    assert_offline_numbers(watch.stream)
    assert watch.tally.refused == 0


def test_opcua_values_of_bad_quality_are_blank_and_a_bad_position_makes_no_row() -> None:
    asyncua = pytest.importorskip("asyncua")
    ua, url = asyncua.ua, f"opc.tcp://127.0.0.1:{free_port()}/fleet"
    options = OpcuaOptions(url=url, parent="ns=2;s=machines", position="cycle", every_in_s=0.05, retry_in_s=0.1)
    watch = Watcher(DurableStream(PREDICTOR), options, OpcuaSource)
    values = {**flat(rows_of(FLEET["engines-0"], FLEET)[0]), "cycle": 1.0}

    async def story() -> None:
        server = asyncua.Server()
        await server.init()
        server.set_endpoint(url)
        await server.register_namespace("http://plant.example.org")
        parent = await server.nodes.objects.add_object(ua.NodeId("machines", 2), "2:machines")
        machine = await parent.add_object(ua.NodeId("pump", 2), "2:pump")
        nodes = {
            name: await machine.add_variable(ua.NodeId(name, 2), f"2:{name}", float(value))
            for name, value in values.items()
        }

        async def write(name: str, value: float | None, status: int) -> None:
            kind = ua.VariantType.Null if value is None else ua.VariantType.Double
            await server.write_attribute_value(
                nodes[name].nodeid, ua.DataValue(ua.Variant(value, kind), StatusCode=ua.StatusCode(status))
            )

        await server.start()
        await until(lambda: watch.tally.accepted == 1, 60)
        codes = ua.StatusCodes
        for position, value, status in (
            (2.0, 9999.0, codes.BadSensorFailure),
            (3.0, None, codes.BadNoCommunication),
            (4.0, math.nan, codes.Good),
        ):
            await write(FLEET.schema.sensors[0], value, status)
            await write("cycle", position, codes.Good)
            await until(lambda position=position: watch.tally.accepted == position, 60)
        await write("cycle", 5.0, codes.BadOutOfService)
        await write("cycle", 6.0, codes.Good)
        await until(lambda: watch.tally.accepted == 5, 60)
        await server.stop()

    at_work(watch, story)
    rows = watch.stream.history("pump")[1]
    assert [row.position for row in rows] == [1, 2, 3, 4, 6]
    assert [math.isnan(row.values[0]) for row in rows] == [False, True, True, True, True]


# --- the plant file ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[[sources]]\nkind = "pigeon"', "pigeon"),
        ('[[sources]]\nkind = "folder"\nfolder = "nowhere"', "nowhere"),
        ('[[sources]]\nkind = "opcua"\nurl = "opc.tcp://x:4840"', "parent"),
        ('[[sources]]\nkind = "mqtt"\nhost = "h"\npublish = "health"', "{unit}"),
        ('[[sources]]\nkind = "sparkplug"\nhost = "h"\ngroup = "a/b"', "group"),
        ('[[sources]]\nkind = "mqtt"\nhost = "a"\n[[sources]]\nkind = "mqtt"\nhost = "b"', "mqtt"),
    ],
)
def test_sources_that_cannot_work_are_refused(text: str, named: str, tmp_path: Path) -> None:
    (tmp_path / "plant.toml").write_text(text)
    with refuses(ConfigError, named):
        read_plant(tmp_path / "plant.toml")
