"""The parts of a deployment by themselves, without processes: guard, wire, cohort, door, site."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedprognos.deployment.flower import cohort as cohort_module
from fedprognos.deployment.flower import wire
from fedprognos.deployment.flower.children import Child, ProcessError, alone, running, stop_running
from fedprognos.deployment.flower.cohort import FlowerCohort
from fedprognos.deployment.flower.coordinator import submit
from fedprognos.deployment.flower.doorstep import (
    ALL_ANSWERS,
    ALL_REQUESTS,
    PHASES,
    HelloReply,
    HelloRequest,
    RefusalRequest,
)
from fedprognos.deployment.flower.folders import SiteSettings
from fedprognos.deployment.flower.gathering import _misfits, deployable
from fedprognos.deployment.flower.holdings import Holdings, check_holdings, read_holdings
from fedprognos.deployment.flower.launch import HEADER, UNLOCK, Guard, send_what_is_left
from fedprognos.deployment.flower.pace import Pace
from fedprognos.deployment.flower.site import FETCH, Service
from fedprognos.errors import ConfigError, DataError, MessageError, OutputError, RecipeError
from fedprognos.experiment import config
from fedprognos.features.options import RecipeOptions
from fedprognos.federation.codec import decode, encode
from fedprognos.federation.messages import Failure, FitReply, FitRequest, SurveyReply, SurveyRequest
from fedprognos.networks import NetworkSpec
from fedprognos.networks.options import TrainOptions
from small_fleets import recipe_of, series_fleet

SECTION = RecipeOptions(window=10)


# --- the guard ------------------------------------------------------------------------------------


def call(guard: Guard, path: str, headers: dict[str, str] | None = None, chunks: tuple[bytes, ...] = (b"",)) -> int:
    sent: list[MutableMapping[str, Any]] = []
    waiting = [{"type": "http.request", "body": c, "more_body": k < len(chunks) - 1} for k, c in enumerate(chunks)]

    async def receive() -> MutableMapping[str, Any]:
        return waiting.pop(0)

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    raw = [(k.encode(), v.encode()) for k, v in (headers or {}).items()]
    asyncio.run(guard({"type": "http", "path": path, "headers": raw}, receive, send))
    return int(sent[0]["status"])


async def reads_everything(scope: Any, receive: Any, send: Any) -> None:
    while (await receive())["more_body"]:
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("path", ["/v1/control/start-run", "/docs", "/openapi.json", "/", "/v1/fleets/x"])
def test_what_flower_leaves_open_needs_the_secret(path: str) -> None:
    guard = Guard(reads_everything, "secret", 100)
    assert call(guard, path) == 403
    assert call(guard, path, {HEADER: "guess"}) == 403
    assert call(guard, path, {HEADER: "secret"}) == 200


def test_what_has_locks_of_its_own_is_let_through_up_to_the_limit() -> None:
    guard = Guard(reads_everything, "secret", 100)
    assert call(guard, "/v1/fleet/activate-node") == 503  # the sites' keys are not registered yet
    assert call(guard, UNLOCK) == 403
    assert call(guard, UNLOCK, {HEADER: "secret"}) == 204
    assert call(guard, "/v1/fleet/push-object", chunks=(bytes(60), bytes(40))) == 200
    assert call(guard, "/v1/fleet/push-object", {"content-length": "101"}) == 413
    assert call(guard, "/v1/fleet/push-object", {"content-length": "many"}) == 413
    assert call(guard, "/v1/fleet/push-object", chunks=(bytes(60), bytes(60))) == 413  # a length that was not told


async def answers_errors_itself(scope: Any, receive: Any, send: Any) -> None:
    try:
        await reads_everything(scope, receive, send)
    except Exception:
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        raise


def test_too_much_is_refused_as_such_whatever_the_app_makes_of_it() -> None:
    guard = Guard(answers_errors_itself, "secret", 100)
    assert call(guard, "/v1/runtime/push-object", chunks=(bytes(60), bytes(60))) == 413
    assert call(guard, "/v1/runtime/push-object", chunks=(bytes(60), bytes(40))) == 200


def test_an_answer_that_waits_is_sent_without_a_new_message() -> None:
    entry = SimpleNamespace(
        is_retrieved=False, message=SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id="m1"))
    )
    state = SimpleNamespace(lock_msg_store=threading.Lock(), msg_store={"r1": entry})
    assert send_what_is_left(lambda state, receive: 7, Pace(1.0))(state=state, receive=None) == 7
    nothing_new = send_what_is_left(lambda state, receive: None, Pace(1.0))
    assert nothing_new(state=state, receive=None) is not None
    entry.is_retrieved = True
    assert nothing_new(state=state, receive=None) is None


def test_the_parts_of_flower_that_are_changed_are_still_there() -> None:
    """Everything else comes from Flower's own interfaces; these are why the version is pinned."""
    from flwr.superlink import extensions, main
    from flwr.supernode import start_client_internal
    from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState, MessageEntry
    from flwr.supernode.runtime import run_clientapp

    assert "state" in inspect.signature(start_client_internal._pull_and_store_message).parameters
    source = inspect.getsource(start_client_internal)
    assert all(wait in source for wait in ("time.sleep(3)", "time.sleep(0.5)", "pull_objects("))
    assert f"{FETCH}(" in inspect.getsource(run_clientapp.pull_task_input)
    assert hasattr(extensions, "get_middleware")
    assert "extensions.get_middleware()" in inspect.getsource(main)
    assert "is_retrieved" in MessageEntry.__dataclass_fields__
    assert "lock_msg_store" in inspect.getsource(InMemoryNodeState.__init__)


# --- the wire -------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def as_in_a_run() -> None:
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1


def question(data: bytes) -> Message:
    message = wire.request(data, 7, 60.0, "0")
    message.metadata.__dict__["_message_id"] = "asked"
    return message


def test_bytes_come_out_as_they_went_in_and_nothing_else_does() -> None:
    assert wire.content(question(b"abc"), 3, "x") == b"abc"
    with pytest.raises(MessageError, match="more than the 2 agreed"):
        wire.content(question(b"abc"), 2, "x")
    for records in (
        RecordDict(),
        RecordDict({"other": ConfigRecord({"message": b"a"})}),
        RecordDict({"fedprognos": ConfigRecord({"message": "text"})}),
        RecordDict({"fedprognos": ConfigRecord({"message": b"a", "more": 1})}),
    ):
        with pytest.raises(MessageError, match="not a message of this federation"):
            wire.content(Message(records, 7, wire.KIND), 100, "x")


# --- the cohort -----------------------------------------------------------------------------------


@dataclass
class Node:
    node_id: int
    public_key: bytes
    last_activated_at: str = "monday"


class FakeGrid:
    """Nodes that answer with what they are told to; None never answers."""

    def __init__(self, nodes: list[Node], answers: dict[int, Any]) -> None:
        self.nodes, self.answers, self.pushed = nodes, answers, dict[str, int]()

    def get_nodes(self) -> list[Node]:
        return self.nodes

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            ids.append(f"m{len(self.pushed)}")
            self.pushed[ids[-1]] = message.metadata.dst_node_id
        return ids

    def pull_messages(self, ids: Iterable[str]) -> list[Message]:
        answer = self.answers[self.pushed[next(iter(ids))]]
        if isinstance(answer, Exception):
            raise answer
        return [] if answer is None else [wire.reply(answer, question(b""))]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cohort_module, "POLL_IN_S", 0.01)
    monkeypatch.setattr(cohort_module, "LOOK_IN_S", 0.02)


def sites(grid: FakeGrid, names: str, **more: Any) -> FlowerCohort:
    keys = {name: name.encode() for name in names}
    return FlowerCohort(grid, keys, tuple(names), **{"limit_in_bytes": 100_000, **more})  # type: ignore[arg-type]


def asked(grid: FakeGrid, names: str, **more: Any) -> dict[str, Any]:
    federation = sites(grid, names, **{"timeout_in_s": 0.3, "absent_in_s": 0.1, **more})
    return federation.ask(dict.fromkeys(names, SurveyRequest(SECTION)))  # type: ignore[return-value]


@pytest.mark.usefixtures("quick")
def test_every_site_is_in_the_answer_whatever_it_does(tmp_path: Path) -> None:
    good = service(tmp_path).client.respond(encode(SurveyRequest(SECTION)))
    nodes = [Node(k, name.encode()) for k, name in enumerate("abcdef")]
    grid = FakeGrid(nodes, {0: good, 1: bytes(200_000), 2: b"nonsense", 3: None, 4: ValueError("inflate"), 5: good})
    replies = asked(grid, "abcdeg")  # f is nobody of ours, g never came
    assert isinstance(replies["a"], SurveyReply)
    codes = {name: reply.code for name, reply in replies.items() if isinstance(reply, Failure)}
    assert codes == {"b": "message", "c": "message", "d": "timeout", "e": "message", "g": "absent"}
    assert "more than the 100000 agreed" in replies["b"].text
    assert 5 not in grid.pushed.values()


@pytest.mark.usefixtures("quick")
def test_a_site_that_was_started_anew_is_asked_again() -> None:
    node = Node(1, b"a")
    grid = FakeGrid([node], {1: None})

    def restarted(what: str, pending: tuple[str, ...]) -> None:
        if grid.pushed:
            node.last_activated_at = "tuesday"

    assert asked(grid, "a", watch=restarted)["a"].code == "timeout"
    assert len(grid.pushed) == 2


@pytest.mark.usefixtures("quick")
def test_an_absent_site_is_waited_for_once(tmp_path: Path) -> None:
    good = service(tmp_path).client.respond(encode(SurveyRequest(SECTION)))
    grid = FakeGrid([Node(1, b"a")], {1: good})
    federation = sites(grid, "ab", absent_in_s=0.5)
    for patience_in_s in (0.5, 0.0):
        begun = time.monotonic()
        replies = federation.in_precision("float16").ask(dict.fromkeys("ab", SurveyRequest(SECTION)))
        assert patience_in_s <= time.monotonic() - begun < patience_in_s + 0.4
        assert replies["b"] == Failure("b", "absent", "it is not connected")
    grid.nodes.append(Node(2, b"b"))
    grid.answers[2] = good
    assert isinstance(federation.ask({"b": SurveyRequest(SECTION)})["b"], SurveyReply)


@pytest.mark.usefixtures("quick")
def test_where_everybody_is_needed_an_absent_site_is_waited_for_until_it_is_back(tmp_path: Path) -> None:
    good = service(tmp_path).client.respond(encode(SurveyRequest(SECTION)))
    grid = FakeGrid([Node(1, b"a")], {1: good, 2: good})
    missed: list[str] = []

    def returns(what: str, pending: tuple[str, ...]) -> None:
        if missed and len(grid.nodes) == 1:
            grid.nodes.append(Node(2, b"b"))

    options: dict[str, Any] = {"all_needed": True, "missed": missed.append, "timeout_in_s": 30.0}
    replies = asked(grid, "ab", watch=returns, **options)
    assert all(isinstance(reply, SurveyReply) for reply in replies.values())
    assert missed == ["b"]
    del grid.nodes[1]
    federation = sites(grid, "ab", absent_in_s=0.1, **options)
    asking = dict.fromkeys("ab", SurveyRequest(SECTION))
    told = federation.converse(asking, (SurveyReply,), all_needed=False)  # what can be done without is not waited for
    assert told["b"] == Failure("b", "absent", "it is not connected")


@pytest.mark.usefixtures("quick")
def test_a_failure_is_the_site_s_own_and_short() -> None:
    told = encode(Failure("somebody else", "c" * 1000, "t" * 1000))
    reply = asked(FakeGrid([Node(1, b"a")], {1: told}), "a")["a"]
    assert reply == Failure("a", "c" * 40, "t" * 400)


# --- the door -------------------------------------------------------------------------------------


def hello(name: str, fingerprint: str = "same", **schema: Any) -> HelloReply:
    return HelloReply(name, "1", replace(series_fleet([30]).schema, **schema), fingerprint)


def test_sites_that_do_not_fit_are_told_why() -> None:
    replies = {"a": hello("a"), "b": hello("b"), "c": hello("c", sensors=("pressure", "humidity")), "d": hello("a")}
    reasons = _misfits(replies, {"b": "other"})
    assert "humidity" in reasons["c"]
    assert "calls itself 'a'" in reasons["d"]
    assert "data changed" in reasons["b"]
    assert "a" not in reasons


def test_central_training_is_left_out_and_refused_alone() -> None:
    _, experiment, _ = config.load("demo")
    said: list[str] = []
    assert "central" not in deployable(experiment, said.append).federation.methods
    assert said
    only = config.load("demo", ["federation.methods=['central']"])[1]
    with pytest.raises(ConfigError, match="all data in one place"):
        deployable(only, said.append)


# --- the site -------------------------------------------------------------------------------------


def service(folder: Path, said: list[str] | None = None) -> Service:
    folder.mkdir(exist_ok=True)
    (folder / "tasks.secret").write_text("s")
    fleet = series_fleet([60, 58, 70, 66], seed=1, name="a")
    settings = SiteSettings(name="a", coordinator="x:1")
    return Service(folder, settings, Holdings(fleet, None), (said if said is not None else []).append)


def answer(at: Service, request: Any) -> Any:
    return decode(wire.content(at.respond(question(encode(request))), 1 << 30, ""), ALL_ANSWERS)


def test_a_site_says_who_it_is_and_notes_it_in_the_ledger(tmp_path: Path) -> None:
    at = service(tmp_path)
    reply = answer(at, HelloRequest("x", SECTION))
    assert reply.name == "a"
    assert reply.fingerprint == answer(at, HelloRequest("y", SECTION)).fingerprint
    assert [line.kind for line in at.site.ledger()] == ["HelloReply", "HelloReply"]


def test_an_experiment_that_does_not_fit_is_explained_at_the_site_only(tmp_path: Path) -> None:
    said: list[str] = []
    reply = answer(service(tmp_path, said), HelloRequest("x", RecipeOptions(window=500)))
    assert (reply.code, "500" in reply.text) == ("recipe", False)
    assert any("longer than every unit" in text for text in said)
    answer(service(tmp_path, said), RefusalRequest("x", "your columns differ"))
    assert "your columns differ" in said[-1]


def test_training_is_kept_on_disk_and_not_done_twice(tmp_path: Path) -> None:
    said: list[str] = []
    at = service(tmp_path, said)
    recipe = recipe_of(at.holdings.train)
    plan = TrainOptions(epochs=1)
    request = FitRequest(recipe, NetworkSpec(inputs=recipe.channels, widths=(3,)), plan, seed=1)
    first = answer(at, request)
    again = answer(service(tmp_path, said), request)  # after a restart
    assert isinstance(first, FitReply)
    assert all(np.array_equal(first.weights[name], again.weights[name]) for name in first.weights)
    assert sum("training" in text for text in said) == 1
    assert len(at.site.ledger()) == 2


def test_nonsense_and_a_full_disk_give_a_failure_free_of_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = service(tmp_path)
    reply = decode(wire.content(at.respond(question(b"nonsense")), 1 << 30, ""), ALL_ANSWERS)
    assert (reply.client, reply.code) == ("a", "message")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "ledger.jsonl"))

    monkeypatch.setattr(at.site, "record", full)
    reply = answer(at, SurveyRequest(SECTION))
    assert reply.code == "internal"
    assert str(tmp_path) not in reply.text


# --- the site's data ------------------------------------------------------------------------------


def test_a_site_reads_its_part_of_a_benchmark_or_its_own_table(tmp_path: Path) -> None:
    _, demo, base = config.load("demo")
    holdings = read_holdings("plant-a", demo, base)
    assert check_holdings(holdings, demo.recipe).sensors
    with pytest.raises(ConfigError, match="plant-a"):
        read_holdings("plant-x", demo, base)
    table = tmp_path / "fleet.csv"
    table.write_text("machine,hour,heat,site\n" + "".join(f"m{k % 2},{k // 2},{k},b\n" for k in range(60)))
    with pytest.raises(ConfigError, match="names no columns"):
        read_holdings("plant-a", demo, base, table)
    own = config.parse(
        {
            "data": {"kind": "table", "path": "x", "unit": "machine", "time": "hour", "site": "site"},
            "partition": {"by": "column", "column": "site"},
            "recipe": {"window": 40},
        },
        "test",
    )
    with pytest.raises(DataError, match="holds units of b"):
        read_holdings("a", own, tmp_path, table)
    with pytest.raises(RecipeError, match="longer than every unit"):
        check_holdings(read_holdings("b", own, tmp_path, table), own.recipe)


# --- processes ------------------------------------------------------------------------------------


def test_a_folder_is_held_by_one_process_and_old_notes_mean_nothing(tmp_path: Path) -> None:
    (tmp_path / "running.json").write_text('{"pid": 1}')
    assert running(tmp_path) is None
    with alone(tmp_path):
        assert running(tmp_path) == os.getpid()
        with pytest.raises(ProcessError, match="running already"), alone(tmp_path):
            pass
    assert running(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_stopping_waits_for_the_end_and_tidies_up_after_one_that_was_killed(tmp_path: Path) -> None:
    assert not stop_running(tmp_path)
    code = (
        "import sys, time; from pathlib import Path; "
        "from fedprognos.deployment.flower.children import alone, terminate_as_interrupt\n"
        "try:\n"
        "    with terminate_as_interrupt(), alone(Path(sys.argv[1])):\n"
        "        time.sleep(60)\n"
        "finally:\n"
        "    time.sleep(1.5)\n"  # the folder is given up, the process is not at its end
    )
    for sign in (signal.SIGTERM, signal.SIGKILL):
        process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stderr=subprocess.DEVNULL)
        while running(tmp_path) is None:
            time.sleep(0.05)
        (tmp_path / "status.json").write_text("{}")
        if sign == signal.SIGKILL:
            process.kill()
            process.wait()
        assert stop_running(tmp_path) == (sign == signal.SIGTERM)
        assert process.wait(0.5) is not None
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("ERROR: Failed to activate SuperNode", "it does not know it, or it is in use already"),
        (
            "ssl.SSLError: CERTIFICATE_VERIFY_FAILED\nERROR: Exit Code: 305",
            "no certificate of this federation's authority",
        ),
        ("\x1b[91mERROR\x1b[0m: out of luck", "exit code 3): ERROR: out of luck"),
    ],
)
def test_why_a_process_ended_is_told_in_words(tmp_path: Path, log: str, said: str) -> None:
    child = Child.__new__(Child)
    child.what, child.log = "supernode", tmp_path / "supernode.log"
    child.log.write_text(log)
    child.process = SimpleNamespace(poll=lambda: 3)  # type: ignore[assignment]
    with pytest.raises(ProcessError) as told:
        child.check()
    assert said in str(told.value)


def test_a_name_that_another_experiment_has_is_refused_when_it_is_queued(tmp_path: Path) -> None:
    experiment = config.load("demo")[1]
    assert submit(tmp_path, "demo", experiment) == submit(tmp_path, "demo", experiment)
    other = config.load("demo", ("train.epochs=3",))[1]
    with pytest.raises(OutputError, match="another experiment") as told:
        submit(tmp_path, "demo", other)
    assert "--name" in told.value.hint
    assert len(list((tmp_path / "queue").iterdir())) == 1


def test_what_is_asked_has_words_for_people() -> None:
    assert set(PHASES) == {kind.__name__ for kind in ALL_REQUESTS}
