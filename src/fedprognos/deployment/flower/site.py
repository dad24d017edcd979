"""A site at work: its SuperNode as a child process, its answers from its own disk and data."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
from flwr.app import Context, Message
from flwr.common.constant import SubStatus
from flwr.supercore.constant import TaskType
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.runtime import run_clientapp

from fedprognos import __version__
from fedprognos.deployment.flower import wire
from fedprognos.deployment.flower.children import STATUS, Child, ProcessError, alone, free_port, listening
from fedprognos.deployment.flower.delivery import keep_delivery
from fedprognos.deployment.flower.doorstep import (
    ALL_REQUESTS,
    PHASES,
    DeliverReply,
    DeliverRequest,
    HelloReply,
    HelloRequest,
    RefusalReply,
    RefusalRequest,
)
from fedprognos.deployment.flower.folders import SiteSettings, read_settings
from fedprognos.deployment.flower.holdings import Holdings, check_holdings
from fedprognos.deployment.flower.pace import RETRY, Pace
from fedprognos.deployment.flower.parcels import Shelf
from fedprognos.deployment.flower.tasks import Counter, acquire
from fedprognos.errors import MessageError
from fedprognos.federation.client import Client, failure
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.codec import decode, encode, ledger_line
from fedprognos.federation.cohort import digest
from fedprognos.federation.messages import FitReply, FitRequest
from fedprognos.federation.reply_cache import ReplyCache
from fedprognos.files import write_json

POLL_IN_S = 0.2
START_IN_S = 60.0
FETCH = "pull_and_inflate_object_from_tree"
Tell = Callable[[str], None]
WriteReport = Callable[[Path], Path]


@dataclass(eq=False)
class Service:
    """Answers for a site, whatever comes; what it trained is kept, so that being asked again costs nothing."""

    folder: Path
    settings: SiteSettings
    holdings: Holdings
    tell: Tell
    write_report: WriteReport | None = None

    def __post_init__(self) -> None:
        bundle = self.settings.bundle
        self.site = ClientFolder(self.folder, None if bundle is None else Path(bundle))
        self.client = Client(
            self.settings.name, self.holdings.train, self.site, self.settings.min_count, self.holdings.test
        )
        self.replies = ReplyCache(self.folder / "answers")
        self.limit = self.settings.max_message_in_mb << 20
        self.shelf = Shelf(self.folder / "shelf", self.limit)

    def respond(self, message: Message) -> Message:
        """The answer to a message; a failure free of data where there is none."""
        try:
            data = self._answer(self.shelf.unpack(wire.content(message, self.limit, "coordinator")))
            if len(data) > self.limit:
                raise MessageError(f"the answer is larger than {self.limit} bytes")
        except Exception as error:
            self.tell(f"could not answer: {error}")
            data = encode(failure(self.settings.name, error))
        return wire.reply(data, message)

    def _answer(self, data: bytes) -> bytes:
        request = decode(data, ALL_REQUESTS, "coordinator")
        self.note(PHASES[type(request).__name__])
        match request:
            case HelloRequest() | RefusalRequest() | DeliverRequest():
                encoded = encode(self._at_the_door(request))
                self.site.record(ledger_line(encoded))
                return encoded
            case FitRequest():
                encoded = self._trained(data, request)
            case _:
                encoded = self.client.respond(data)
        self.shelf.keep(data, encoded)
        return encoded

    def _trained(self, data: bytes, request: FitRequest) -> bytes:
        key = digest(f"{self.client.name}\x1f".encode() + data)
        if (known := self.replies.read(key)) is not None:
            self.site.record(ledger_line(known))
            return known
        self.tell(f"training: round {request.round}, {request.phase}, {request.training.epochs} epochs")
        encoded = self.client.respond(data)
        if ledger_line(encoded).kind == FitReply.__name__:  # a failure is worth another try
            self.replies.keep(key, encoded)
        return encoded

    def _at_the_door(
        self, request: HelloRequest | RefusalRequest | DeliverRequest
    ) -> HelloReply | RefusalReply | DeliverReply:
        match request:
            case HelloRequest():
                schema = check_holdings(self.holdings, request.section)
                self.tell(f"taking part in '{request.experiment}'")
                secret = (self.folder / "tasks.secret").read_bytes()
                return HelloReply(self.settings.name, __version__, schema, self.holdings.fingerprint(secret))
            case RefusalRequest():
                self.tell(f"REFUSED by the coordinator for '{request.experiment}': {request.reason}")
                return RefusalReply()
            case DeliverRequest():
                place = keep_delivery(self.folder, self.client, self.holdings, request)
                self.shelf.clear()
                self.tell(
                    f"the federated model is in {place / 'bundle'}, with a head of your own in {place / 'personal'}"
                )
                if self.write_report is not None and (place / "results.json").is_file():
                    self.tell(f"your report: {self.write_report(place)}")
                return DeliverReply(True)

    def note(self, doing: str) -> None:
        write_json(self.folder / STATUS, {"site": self.settings.name, "doing": doing, "since": time.time()})


def serve(folder: Path, holdings: Holdings, tell: Tell, write_report: WriteReport | None = None) -> None:
    """Join the federation and answer until told to stop."""
    import torch

    folder = folder.resolve()
    settings = read_settings(folder, SiteSettings)
    service = Service(folder, settings, holdings, tell, write_report)
    torch.set_num_threads(1)
    setattr(run_clientapp, FETCH, partial(getattr(run_clientapp, FETCH), **RETRY))
    port = free_port()
    with alone(folder):
        child = Child("supernode", _arguments(folder, settings, port), folder, {})
        try:
            counter = Counter(f"127.0.0.1:{port}", folder / "tasks.secret")
            _wait_until(lambda: listening("127.0.0.1", port), child)
            service.note("nothing yet")
            tell(f"joining {settings.coordinator} as '{settings.name}'; Ctrl-C leaves")
            with contextlib.closing(_Post(counter, tell)) as post:
                while True:
                    child.check()
                    if (errand := post.look()) is not None:
                        _work(errand, service)
        finally:
            child.stop()
            (folder / STATUS).unlink(missing_ok=True)


@dataclass(frozen=True, eq=False)
class _Errand:
    """A message that has arrived in full, and the connection to answer it by."""

    message: Message
    context: Context
    client: RuntimeHttpClient
    open: contextlib.ExitStack


class _Post:
    """Fetches messages in the background: one whose run has ended never arrives, and must not hold up the others."""

    def __init__(self, counter: Counter, tell: Tell) -> None:
        self._counter, self._tell, self._queue = counter, tell, counter.queue()
        self._arrived: queue.SimpleQueue[_Errand] = queue.SimpleQueue()
        self._awaited: set[contextlib.ExitStack] = set()
        self._closed = False
        self._pace = Pace(POLL_IN_S)

    def close(self) -> None:
        """Stop waiting for messages that may never arrive: a closed connection ends the threads that fetch them."""
        self._closed = True
        self._queue.close()
        for stack in list(self._awaited):
            stack.close()

    def look(self) -> _Errand | None:
        """The next message, if one has arrived."""
        with contextlib.suppress(httpx.HTTPError):
            if (found := acquire(self._queue, TaskType.CLIENT_APP)) is not None:
                self._pace.news()
                threading.Thread(target=self._fetch, args=(found[1],), daemon=True).start()
        with contextlib.suppress(queue.Empty):
            return self._arrived.get(timeout=self._pace.wait_in_s())
        return None

    def _fetch(self, token: str) -> None:
        stack = contextlib.ExitStack()
        self._awaited.add(stack)
        try:
            client = stack.enter_context(self._counter.task(token, "flwr-clientapp"))
            message, context, _, _ = run_clientapp.pull_task_input(
                client
            )  # the last is code from the network: not looked at
        except Exception as error:
            stack.close()
            if not self._closed:
                self._tell(f"a message was lost on the way: {error}")
            return
        finally:
            self._awaited.discard(stack)
        self._arrived.put(_Errand(message, context, client, stack))


def _work(errand: _Errand, service: Service) -> None:
    """Answer one message."""
    with errand.open:
        try:
            TaskIdentity.run_id, TaskIdentity.node_id = errand.context.run_id, errand.context.node_id
            run_clientapp.push_message(errand.client, service.respond(errand.message), errand.context)
            run_clientapp.push_task_output(errand.client, errand.context, SubStatus.COMPLETED, "")
        except (httpx.HTTPError, RuntimeError) as error:
            service.tell(f"an answer was lost on the way: {error}")


def _arguments(folder: Path, settings: SiteSettings, port: int) -> list[str]:
    return [
        *("--root-certificates", str(folder / "ca.crt")),
        *("--superlink", settings.coordinator),
        *("--auth-supernode-private-key", str(folder / "site.key")),
        *("--isolation", "process"),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--superexec-auth-secret-file", str(folder / "tasks.secret")),
    ]


def _wait_until(ready: Callable[[], bool], child: Child) -> None:
    deadline = time.monotonic() + START_IN_S
    while not ready():
        child.check()
        if time.monotonic() > deadline:
            raise ProcessError(f"{child.what} did not start within {START_IN_S:g} s", where=str(child.log))
        time.sleep(0.1)


__all__ = ["Service", "serve"]
