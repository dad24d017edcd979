"""A site at work: it answers requests from its own data, and keeps what it trained on its own disk."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedprognos import __version__
from fedprognos.deployment import messages
from fedprognos.deployment.delivery import keep_delivery
from fedprognos.deployment.engine import Engine, Tell
from fedprognos.deployment.folders import SiteOptions, read_options
from fedprognos.deployment.processes import STATUS, alone
from fedprognos.deployment.site_data import SiteData, check_site_data
from fedprognos.deployment.tensor_cache import TensorCache, TensorsMissing, TensorsMissingError
from fedprognos.errors import MessageError
from fedprognos.federation.client import Client, failure
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.codec import encode, ledger_line
from fedprognos.federation.cohort import digest
from fedprognos.federation.messages import Failure, FitReply, FitRequest
from fedprognos.federation.reply_cache import ReplyCache
from fedprognos.files import write_json
from fedprognos.networks.threads import one_torch_thread

WriteReport = Callable[[Path], Path]


@dataclass(eq=False)
class Site:
    """Answers for a site, whatever comes. What it trained is kept, so that a repeated request costs nothing."""

    folder: Path
    options: SiteOptions
    data: SiteData
    tell: Tell
    write_report: WriteReport | None = None

    def __post_init__(self) -> None:
        name, bundle = self.options.name, self.options.bundle
        own = ClientFolder(self.folder, None if bundle is None else Path(bundle))
        self.client = Client(name, self.data.train, own, self.options.min_count, self.data.test)
        self.limit = self.options.max_message_in_mb << 20
        self.answers = ReplyCache(self.folder / "answers")
        self.tensors = TensorCache(self.folder / "tensors", self.limit)

    def respond(self, data: bytes) -> bytes:
        """The encoded reply to an encoded request; a failure free of data where there is none."""
        try:
            if len(data) > self.limit:
                raise MessageError(f"{len(data)} bytes, more than the {self.limit} agreed")
            encoded = self._reply(data)
            if len(encoded) > self.limit:
                raise MessageError(f"the answer is larger than {self.limit} bytes")
            return encoded
        except Exception as error:
            self.tell(f"could not answer: {error}")
            return encode(failure(self.options.name, error))

    def _reply(self, data: bytes) -> bytes:
        try:
            whole = self.tensors.complete(data)
        except TensorsMissingError:
            encoded = encode(TensorsMissing())
            self.client.folder.record(ledger_line(encoded))
            return encoded
        key = digest(f"{self.options.name}\x1f".encode() + whole)
        if (known := self.answers.read(key)) is not None:
            self.client.folder.record(ledger_line(known))
            return known
        reply, encoded = self.client.gate(whole, messages.REQUESTS, self._answer)
        if isinstance(reply, Failure):
            self.tell(f"could not answer: {self.client.folder.last_error()}")
        if isinstance(reply, FitReply):
            self.answers.keep(key, encoded)
        if not isinstance(reply, messages.DeliverReply):
            self.tensors.keep(whole, encoded)
        return encoded

    def _answer(self, request: messages.Request) -> Any:
        self.note(request.activity)
        match request:
            case messages.HelloRequest():
                return self._hello(request)
            case messages.RefusalRequest():
                self.tell(f"REFUSED by the coordinator for '{request.experiment}': {request.reason}")
                return messages.RefusalReply()
            case messages.DeliverRequest():
                return self._keep(request)
            case FitRequest():
                self.tell(f"training: round {request.round}, {request.phase}, {request.training.epochs} epochs")
        return self.client.answer(request)

    def _hello(self, request: messages.HelloRequest) -> messages.HelloReply:
        schema = check_site_data(self.data, request.terms)
        self.tell(f"taking part in '{request.experiment}'")
        secret = (self.folder / "tasks.secret").read_bytes()
        return messages.HelloReply(self.options.name, __version__, schema, self.data.fingerprint(secret))

    def _keep(self, request: messages.DeliverRequest) -> messages.DeliverReply:
        place = keep_delivery(self.folder, self.client, self.data, request)
        shutil.rmtree(self.folder / "answers", ignore_errors=True)
        self.tensors.clear()
        self.tell(f"the federated model is in {place / 'bundle'}, with a head of your own in {place / 'personal'}")
        if self.write_report is not None and (place / "results.json").is_file():
            self.tell(f"your report: {self.write_report(place)}")
        return messages.DeliverReply()

    def note(self, doing: str) -> None:
        """Note what the site does, for `deploy status`."""
        write_json(self.folder / STATUS, {"site": self.options.name, "doing": doing, "since": time.time()})


def serve(folder: Path, engine: Engine, data: SiteData, tell: Tell, write_report: WriteReport | None = None) -> None:
    """Join the federation and answer until interrupted."""
    folder = folder.resolve()
    options = read_options(folder, SiteOptions)
    site = Site(folder, options, data, tell, write_report)
    with one_torch_thread(), alone(folder), engine.join(folder, options, tell) as inbox:
        site.note("nothing yet")
        tell(f"joining {options.coordinator} as '{options.name}'; Ctrl-C leaves")
        while True:
            if (task := inbox.next()) is not None:
                task.reply(site.respond(task.data))
