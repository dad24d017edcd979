"""A site answers the steps of contracts that its engineer approved, from its own data, and nothing else."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedprognos import __version__
from fedprognos.deployment.carrier import Join, Tell, WriteReport
from fedprognos.deployment.contract import MAX_CONTRACT_IN_BYTES, Contract, in_words, side_by_side
from fedprognos.deployment.folders import SiteOptions, read_options
from fedprognos.deployment.processes import STATUS, alone, bounded_memory
from fedprognos.deployment.site.approvals import Approval, Approvals, Differences, reasons_to_refuse
from fedprognos.deployment.site.delivery import keep_delivery
from fedprognos.deployment.site.site_data import SiteData, check_site_data
from fedprognos.deployment.site.site_ledger import SiteLedger, check_budget, check_exposure
from fedprognos.deployment.steps.replay import Replay, StepRefusedError, StepsMissingError
from fedprognos.deployment.steps.signed_steps import (
    STEP,
    StepHeader,
    open_step,
    own_reply,
    read_reply,
    seal_reply,
    sha256,
)
from fedprognos.errors import MessageError
from fedprognos.features import columns_of
from fedprognos.federation import (
    Client,
    ClientOfAllUnits,
    FitRequest,
    Limits,
    PersonalRequest,
    decode,
    digest,
    encode,
    failure,
    is_about_all_units,
    ledger_line,
)
from fedprognos.federation.exchanges import Failure, activity_of, exchange_for
from fedprognos.federation.exchanges import site_messages as messages
from fedprognos.files import write_json, write_private
from fedprognos.identity import Identity, identity_of, verify
from fedprognos.networks import Bundle, one_torch_thread
from fedprognos.privacy import Floors, Member, SecretSplit

HEADROOM_IN_BYTES = 2 << 30
"""Address space that libraries reserve without using it."""
SECRETS, SURVIVORS = "masks.json", "survivors.json"
MAX_OPENING_IN_BYTES = 2 * MAX_CONTRACT_IN_BYTES
"""Largest message before there is a contract: nobody has signed it."""


@dataclass(eq=False)
class Site:
    """Answers every message that comes to a site, with a reply or a failure."""

    folder: Path
    options: SiteOptions
    data: SiteData
    tell: Tell
    write_report: WriteReport | None = None

    def __post_init__(self) -> None:
        options = self.options
        self.identity = identity_of(self.folder)
        self.ledger = SiteLedger(self.folder, None if options.bundle is None else Path(options.bundle))
        floors = Floors(options.min_count, options.min_units, options.max_leverage, parts=options.splits == "secret")
        self.client = Client(
            options.name,
            self.data.train,
            self.ledger,
            floors,
            self.data.test,
            limits=Limits(options.max_memory_in_mb << 20),
            split=SecretSplit(self.identity.secret("splits") if options.splits == "secret" else b""),
        )
        whole = self.data.train if self.data.whole is None else self.data.whole
        self.all_units = ClientOfAllUnits(self.client, whole)
        """Answers when the published model is trained once more."""
        self.limit = options.max_message_in_mb << 20
        self.approvals = Approvals(self.folder, options.approved, options.members)
        self.fingerprint = self.data.fingerprint(self.identity.secret("data"))
        self.differences = Differences(self.data, self.client.floors, self.identity.secret("units"))
        self._replay: Replay | None = None
        self._check_waiting()  # the data may have changed since

    def respond(self, data: bytes) -> bytes:
        """The reply to a request; a failure free of data where there is none."""
        self.ledger.about = {"digest": sha256(data)}
        try:
            if len(data) > self.limit:
                raise MessageError(f"{len(data)} bytes, more than the {self.limit} agreed")
            with bounded_memory((self.options.max_memory_in_mb << 20) + HEADROOM_IN_BYTES):
                reply = self._step(data) if data.startswith(STEP) else self._opening(data)
            if len(reply) > self.limit:
                raise MessageError(f"the answer is larger than {self.limit} bytes")
            return reply
        except Exception as error:
            self.tell(f"REFUSED: {error}")
            encoded = encode(failure(self.options.name, error))
            self.ledger.about["refused"] = str(error)[:400]
            self._record_refusal(encoded)
            return encoded

    def _opening(self, data: bytes) -> bytes:
        """Answer a message outside a contract: say who the site is, or take a contract for approval."""
        if len(data) > MAX_OPENING_IN_BYTES:
            raise StepRefusedError(f"{len(data)} bytes outside a contract")
        kind = ledger_line(data).kind[:40]
        self.ledger.about["request"] = kind
        if kind not in {allowed.__name__ for allowed in messages.OPENING}:
            raise StepRefusedError(f"{kind} outside a contract")
        return self._record(encode(self._open(decode(data, messages.OPENING))))

    def _open(self, request: messages.HelloRequest | messages.ContractRequest) -> Any:
        self.note(activity_of(type(request).__name__))
        if isinstance(request, messages.HelloRequest):
            if request.version != __version__:  # the coordinator refuses this site; its engineer must know why
                theirs = request.version[:40] or "of an older version"
                self.tell(f"REFUSED: the coordinator has fedprognos {theirs}, this site has {__version__}")
            bundle = self.ledger.bundle
            recipe = "" if bundle is None else Bundle.load(bundle).recipe.digest
            return messages.HelloReply(self.options.name, __version__, self.identity.public, recipe)
        contract = Contract.parse(request.contract)
        schema = self.data.train.schema
        experiment, sensors = contract.experiment(), len(schema.sensors)
        inputs = sensors + len(schema.settings) + columns_of(experiment.recipe.extra, sensors)
        self.client.limits.check_model(experiment.model, inputs, side_by_side(contract))
        is_new = self.approvals.entry(contract.digest) is None
        entry = self.approvals.put(contract, self.options.name, self.identity.public)
        reasons = [] if entry.state == "running" else self._checked(contract)
        if is_new:
            for line in in_words(contract, self.options.name):
                self.tell(line)
            for text in self.approvals.differences(contract.digest) or ():
                self.tell(f"  UNUSUAL: {text}")
            for text in reasons:
                self.tell(f"  WILL BE REFUSED: {text}")
            if entry.state == "waiting":
                self.tell(f"to approve it:  fedprognos deploy approve {self.folder}")
        return messages.ContractReply(entry.state != "waiting")

    def _step(self, data: bytes) -> bytes:
        """Answer a step of a contract: the one that must come now, or give the reply to an earlier one again."""
        header, replies = open_step(data)
        self.ledger.about |= {"contract": header.contract, "step": header.step, "signature": header.signature}
        replay = self._following(header)
        if (kept := replay.journal.read(own_reply(header.step))) is not None:
            self.ledger.about["repeat"] = True
            self.ledger.record(ledger_line(read_reply(kept)[1]))
            return kept
        try:
            request = replay.follow(header, replies)
        except StepsMissingError as error:
            return self._record(encode(messages.StepsMissing(error.first)))
        self.ledger.about["request"] = ledger_line(request).kind
        check_budget(self.ledger, header.contract, self.options.max_answers_per_run, self.options.max_answers_per_month)
        client = self.all_units if is_about_all_units(request) else self.client
        reply, encoded = client.gate(request, messages.step_requests(), lambda asked: self._answer(asked, client))
        sealed = seal_reply(self.identity, header.contract, header.step, self.options.name, encoded)
        if isinstance(reply, Failure):
            self.tell(f"could not answer: {self.ledger.last_error()}")
            return sealed
        replay.journal.keep(own_reply(header.step), sealed)
        if isinstance(reply, messages.DeliverReply):
            self._finish(replay)
        return sealed

    def _following(self, header: StepHeader) -> Replay:
        """The replay of an approved contract's run; raise unless its coordinator signed this step."""
        entry = self.approvals.entry(header.contract)
        if entry is None or entry.state == "waiting":
            raise StepRefusedError("this contract is not approved here")
        verify(entry.contract.coordinator, header.signature, header.signed_text, "the coordinator")
        self._bind(entry)
        if self._replay is None or self._replay.contract.digest != header.contract:
            if self._replay is not None:
                self._replay.stop()
            place = self.approvals.place(header.contract)
            journal = self.approvals.journal(header.contract)
            self._replay = Replay(entry.contract, self.options.name, journal, self.tell)
            self.ledger.heads = place / "heads"  # two runs may name their heads alike
            member = member_of(entry.contract, self.options.name, self.identity, place)
            self.client.member = self.all_units.member = member
        self._replay.finished = entry.state == "finished"
        return self._replay

    def _check_waiting(self) -> None:
        """Let `deploy approve` show what this site finds about the contracts that have not begun."""
        for entry in self.approvals.entries():
            if entry.state in ("waiting", "approved"):
                self._checked(entry.contract)

    def _checked(self, contract: Contract) -> list[str]:
        """Compare a contract with the runs answered so far, unless that is done; the reasons to refuse it."""
        basis = f"{self.fingerprint} {self.client.floors}"
        if self.approvals.differences(contract.digest, basis) is None:
            differences = list(self.differences.too_small(contract, self.approvals))
            self.approvals.keep_differences(contract.digest, differences, basis)
        return reasons_to_refuse(contract, self.approvals, self.ledger, self.options) or []

    def _bind(self, entry: Approval) -> None:
        """Bind a contract to the data that is there when its first step comes."""
        if entry.state == "approved":
            if reasons := self._checked(entry.contract):
                for text in reasons:
                    self.tell(f"run '{entry.contract.run}': {text}")
                # The reasons tell of this site's data: the coordinator learns no more than that there are some.
                raise StepRefusedError("this site refuses to begin this run; its engineer is told why")
            self.differences.remember(entry.contract, self.approvals.place(entry.contract.digest))
            self.approvals.set_state(entry, "running", self.fingerprint)
            self._check_waiting()  # they differ from this run, too
        elif entry.data != self.fingerprint:
            raise StepRefusedError("this site's data changed after the run began; it needs a new run")

    def _finish(self, replay: Replay) -> None:
        """The model is delivered: remove what only the run needed."""
        entry = self.approvals.entry(replay.contract.digest)
        if entry is not None:
            self.approvals.set_state(entry, "finished", self.fingerprint)
        replay.tidy()
        (self.approvals.place(replay.contract.digest) / SECRETS).unlink(missing_ok=True)
        self._replay = self.client.member = self.all_units.member = None

    def _record(self, encoded: bytes) -> bytes:
        """Write a message into the ledger, and give it back for sending."""
        self.ledger.record(ledger_line(encoded))
        return encoded

    def _record_refusal(self, encoded: bytes) -> None:
        """The same for a refusal. It holds no data, so it leaves even if the ledger cannot be written."""
        try:
            self.ledger.record(ledger_line(encoded))
        except Exception as error:
            self.tell(f"cannot write the ledger: {error}")

    def _answer(self, request: Any, client: Client) -> Any:
        self.note(activity_of(type(request).__name__))
        exchange = exchange_for(request)
        if exchange is not None and exchange.template is not None and hasattr(request, "network"):
            # Sums over what a network puts out: other members had a part in it, and may have made it for that.
            contract, seed = str(self.ledger.about["contract"]), request.seed
            check_exposure(self.ledger, contract, seed, self.options.max_sums_per_seed)
            self.ledger.about["seed"] = seed
        match request:
            case messages.JoinRequest():
                schema = check_site_data(self.data, request.terms)
                self.tell(f"taking part in '{request.experiment}'")
                return messages.JoinReply(schema, self.fingerprint, self.data.whole is not None)
            case messages.RefusalRequest():
                self.tell(f"REFUSED by the coordinator for '{request.experiment}': {request.reason}")
                return messages.RefusalReply()
            case messages.DeliverRequest():
                fitted = PersonalRequest(request.recipe, request.network, request.seed, request.validation_fraction)
                self.client.limits.check(fitted, self.all_units.fleet)
                return self._keep(request)
            case FitRequest():
                self.tell(f"training: round {request.round}, {request.phase}, {request.training.epochs} epochs")
        return client.answer(request)

    def _keep(self, request: messages.DeliverRequest) -> messages.DeliverReply:
        delivery = keep_delivery(self.folder, self.client, self.data, request, self.identity)
        place, errors = delivery.place, delivery.errors
        self.tell(f"the federated model is in {place / 'bundle'}, with a head of your own in {place / 'personal'}")
        for name in delivery.not_refitted:
            self.tell(
                f"UNUSUAL: trained on all units, {name} is worse on your own test machines than before: kept as it was "
                "evaluated. A member may have poisoned the second training."
            )
        if errors:
            use, *others = errors
            beside = ", ".join(f"{name} {errors[name]:.3g}" for name in others)
            self.tell(f"use {place / use}: {errors[use]:.3g} off on your own test machines; {beside}")
        if self.write_report is not None and (place / "results.json").is_file():
            self.tell(f"your report: {self.write_report(place)}")
        return messages.DeliverReply()

    def note(self, doing: str) -> None:
        """Write what the site does, for `deploy status`."""
        write_json(self.folder / STATUS, {"site": self.options.name, "doing": doing, "since": time.time()})


def member_of(contract: Contract, site: str, identity: Identity, place: Path) -> Member | None:
    """This site as a member of a contract's masked sums; None where nothing is masked.

    The secrets of a run are in a private file, so that a restarted site continues. Who was in which sum is kept apart,
    for all contracts with the same members, and never removed: the same sum again with one member fewer would reveal
    that member's part.
    """
    if contract.mode != "masked":
        return None
    path, survivors = place / SECRETS, place.parent / SURVIVORS
    members = digest("\n".join(f"{name} {key}" for name, key in sorted(contract.members.items())).encode())

    def signed_before() -> dict[str, Any]:
        signed: dict[str, Any] = json.loads(survivors.read_text("utf-8")) if survivors.is_file() else {}
        return signed

    def keep(state: dict[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, json.dumps({"batches": state["batches"]}).encode())
        if state["signed"] != (kept := signed_before()).get(members, {}):
            write_private(survivors, json.dumps({**kept, members: state["signed"]}).encode())

    secrets = json.loads(path.read_text("utf-8")) if path.is_file() else {"batches": {}}
    state = {"batches": secrets["batches"], "signed": signed_before().get(members, {})}
    return Member(site, identity.key, contract.members, state, keep)


def serve_site(folder: Path, join: Join, data: SiteData, tell: Tell, write_report: WriteReport | None = None) -> None:
    """Join the federation and answer until interrupted."""
    folder = folder.resolve()
    options = read_options(folder, SiteOptions)
    site = Site(folder, options, data, tell, write_report)
    with one_torch_thread(), alone(folder), join(folder, options, tell) as inbox:
        site.note("nothing yet")
        if options.splits == "public":
            tell("UNUSUAL: splits = 'public': everybody can compute which units are kept out of training")
        tell(f"joining {options.coordinator} as '{options.name}'; Ctrl-C leaves")
        while True:
            if (task := inbox.next()) is not None:
                task.reply(site.respond(task.data))
