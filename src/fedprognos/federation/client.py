"""A client: one owner's fleet behind one gate.

Every request passes the gate: it is decoded, refused where it must be masked and is not, limited, answered by its
exchange, masked and noted in the ledger. No reply leaves that is about less than the owner's floors ask for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprognos.errors import FedprognosError, MessageError
from fedprognos.features import Recipe, WindowSet, build_windows, hold_out
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.codec import decode, encode, ledger_line, tag_of, wire_of
from fedprognos.federation.cohort import digest
from fedprognos.federation.exchanges import Exchange, Failure, OnEpoch, Reply, Request, exchange_for, request_kinds
from fedprognos.federation.limits import Limits
from fedprognos.federation.plausible import MOST_ROWS
from fedprognos.fleet import Fleet
from fedprognos.matching import OutputSums
from fedprognos.networks import Network
from fedprognos.privacy import RESERVE, FloorError, Floors, SecretSplit, reserved

if TYPE_CHECKING:  # needs `cryptography`, which is there where sites mask
    from fedprognos.privacy import Member

Parts = tuple[WindowSet, WindowSet | None]


class Client:
    """Holds one owner's training fleet and answers requests from it.

    Parameters
    ----------
    folder
        The owner's own: ledger, log, personal heads, perhaps a model trained earlier.
    floors
        The owner's own: how many windows and units must be behind anything that leaves. A request can raise them, not
        lower them. Runs in one process have no floor of units and do not look for rows that stand out.
    limits
        The most that a request may take.
    test
        Test units that the owner holds; where a runner holds the test units, clients have none.
    device
        Where networks are trained: `auto`, `cpu` or `cuda`.
    member
        Masks sums, where replies must not be seen one by one; they then never leave unmasked.
    split
        Which units are kept out of training; a site's own secret decides it.
    """

    def __init__(
        self,
        name: str,
        fleet: Fleet,
        folder: ClientFolder,
        floors: Floors = Floors(),  # noqa: B008 - frozen
        test: Fleet | None = None,
        device: str = "auto",
        member: Member | None = None,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        split: SecretSplit = SecretSplit(),  # noqa: B008 - frozen
    ) -> None:
        self.name, self.fleet, self.folder, self.test, self.device = name, fleet, folder, test, device
        self.floors, self.limits, self.member, self.split = floors.for_fleet_of(len(fleet)), limits, member, split
        self._windows: tuple[str, WindowSet] | None = None

    def respond(self, data: bytes, on_epoch: OnEpoch | None = None) -> bytes:
        """Encoded answer to an encoded request."""
        return self.gate(data, request_kinds(), lambda request: self.answer(request, on_epoch))[1]

    def gate(self, data: bytes, kinds: tuple[type, ...], answer: Callable[[Any], Any]) -> tuple[Any, bytes]:
        """The one way in and out: a request is checked, its reply noted in the ledger, an error kept in the log.

        Parameters
        ----------
        kinds
            The messages that are let in.
        answer
            From a decoded request to its reply; whatever it raises becomes a failure.

        Returns
        -------
        reply, encoded
            The reply or failure, and the bytes that leave.
        """
        try:
            request, tag = decode(data, kinds), tag_of(data)
            self._check_masked(request, tag)
            reply = answer(request)
            reply = reply if tag is None else self._masked(request, reply, tag)
            encoded = encode(reply, wire_of(data), factors=getattr(request, "factors", False))
        except Exception as error:
            self.folder.log_error(error)
            reply = failure(self.name, error)
            encoded = encode(reply)
        self.folder.record(ledger_line(encoded))
        return reply, encoded

    def answer(self, request: Request, on_epoch: OnEpoch | None = None) -> Reply:
        """Answer one request; raise where it cannot be answered."""
        exchange = exchange_for(request)
        if exchange is None or exchange.answer is None:
            raise MessageError(f"a client does not answer a {type(request).__name__[:40]}")
        for fleet in (self.fleet, *([self.test] if self.test is not None else [])):
            self.limits.check(request, fleet)
        return exchange.answer(self, request, on_epoch)

    def _check_masked(self, request: Request, tag: tuple[str, int] | None) -> None:
        """Refuse to answer unmasked what is masked at this site."""
        exchange = exchange_for(request)
        if self.member is not None and tag is None and exchange is not None and exchange.only_masked:
            raise MessageError("answers of this site are added up masked, and never leave alone")

    def _masked(self, request: Request, reply: Reply, tag: tuple[str, int]) -> Any:
        """The reply as this client's part of a masked sum."""
        exchange = exchange_for(request)
        if self.member is None or exchange is None:
            raise MessageError("this site takes part in no masked sums")
        self._check_part(exchange, request, reply)
        values, hidden = exchange.vector(request, reply)
        asked = digest(encode(request))
        about = asked if exchange.about is None else digest(exchange.about(request))
        return self.member.masked(*tag, asked, values, exchange.limbs, about, hidden)

    def _check_part(self, exchange: Exchange, request: Request, reply: Reply) -> None:
        """Keep back a part that is wrong by mistake: under its mask nobody else can check it."""
        exchange.check(request, reply, MOST_ROWS)

    def windows(self, recipe: Recipe) -> WindowSet:
        """All windows that count, built once for a recipe and not for every request."""
        key = recipe.to_json()
        if self._windows is None or self._windows[0] != key:
            self._windows = (key, self.floors.points(build_windows(recipe, self.fleet), self.fleet, recipe))
        return self._windows[1]

    def learnt_from(self, recipe: Recipe, seed: int, without_reserve: bool = False) -> WindowSet:
        """All windows, or those without the reserve: sums of both differ by it, so floors hold for it, too."""
        windows = self.windows(recipe)
        if not without_reserve:
            return windows
        return windows.select(~reserved(windows, self.split_seed(seed, "reserve", RESERVE), self.floors))

    def parts(self, recipe: Recipe, seed: int, fraction: float, without_reserve: bool = False) -> Parts:
        """The windows to fit and those kept out, the same in every round."""
        windows = self.learnt_from(recipe, seed, without_reserve)
        return hold_out(windows, fraction, self.split_seed(seed, "validation", fraction), recipe.task)

    def head_parts(self, recipe: Recipe, seed: int, fraction: float, without_reserve: bool = False) -> Parts:
        """The parts a head is fitted to and chosen on; where either is too small, all windows are one part."""
        train, held = self.parts(recipe, seed, fraction, without_reserve)
        if held is None or not (self.floors.enough(held) and self.floors.enough(train)):
            train, held = self.learnt_from(recipe, seed, without_reserve), None
        self.floors.check(train)
        return train, held

    def summed_parts(
        self,
        recipe: Recipe,
        network: Network,
        seed: int,
        fraction: float,
        alike: bool,
        without_reserve: bool = False,
    ) -> list[WindowSet]:
        """The parts whose statistics leave: what was trained on and, where no row stands out, what was kept out.

        They are kept apart because units that the layers have learnt from cannot show how strongly a head must be
        held back.
        """
        train, held = self.head_parts(recipe, seed, fraction, without_reserve)
        if held is not None:
            with contextlib.suppress(FloorError):
                for part in (train, held):
                    self.floors.check_leverage(network, part, alike=alike)
                return [train, held]
            train = self.learnt_from(recipe, seed, without_reserve)
        self.floors.check_leverage(network, train, alike=alike)
        return [train]

    def summed_outputs(
        self, recipe: Recipe, network: Network, seed: int, fraction: float, without_reserve: bool = False
    ) -> tuple[OutputSums, ...]:
        """Sums of the layers' outputs on what training learnt from."""
        train, _ = self.head_parts(recipe, seed, fraction, without_reserve)
        return self.floors.outputs(network, train)

    def split_seed(self, seed: int, phase: str, share: float) -> int:
        """Where the random numbers begin that put units into parts."""
        return self.split.stream(seed, self.name, phase, share)


class ClientOfAllUnits(Client):
    """Answers about all units of an owner after the same run has asked about the training units alone.

    Sums of both differ by the test units, so floors and the tripwire hold for these as for any part that leaves. Where
    they do not hold, the answer is about the training units again.
    """

    def __init__(self, trained: Client, whole: Fleet) -> None:
        limits, split = trained.limits, trained.split
        super().__init__(trained.name, whole, trained.folder, trained.floors, None, trained.device, None, limits, split)
        self.trained, self.floors = trained, trained.floors
        self._new: tuple[str, WindowSet | None] | None = None

    def windows(self, recipe: Recipe) -> WindowSet:
        """All windows, or those of the training units where too few are new."""
        return self.trained.windows(recipe) if self._new_windows(recipe) is None else super().windows(recipe)

    def summed_parts(
        self,
        recipe: Recipe,
        network: Network,
        seed: int,
        fraction: float,
        alike: bool,
        without_reserve: bool = False,
    ) -> list[WindowSet]:
        """All windows as one part, if no new row stands out; otherwise what the training units give."""
        if (new := self._new_windows(recipe)) is not None:
            with contextlib.suppress(FloorError):
                self.floors.check_leverage(network, new, alike=alike)
                return super().summed_parts(recipe, network, seed, fraction, alike, without_reserve)
        return self.trained.summed_parts(recipe, network, seed, fraction, alike, without_reserve)

    def summed_outputs(
        self, recipe: Recipe, network: Network, seed: int, fraction: float, without_reserve: bool = False
    ) -> tuple[OutputSums, ...]:
        """The same for sums of outputs."""
        if (new := self._new_windows(recipe)) is not None:
            with contextlib.suppress(FloorError):
                self.floors.outputs(network, new)
                return super().summed_outputs(recipe, network, seed, fraction, without_reserve)
        return self.trained.summed_outputs(recipe, network, seed, fraction, without_reserve)

    def _new_windows(self, recipe: Recipe) -> WindowSet | None:
        """Windows that the training units do not have; None where sums over them may not leave.

        There may be as many as the training units have: a client declared the latter, and nobody may count for more.
        """
        key = recipe.to_json()
        if self._new is None or self._new[0] != key:
            trained, everything = self.trained.windows(recipe), super().windows(recipe)
            before, now = (list(zip(_ids(windows), windows.position, strict=True)) for windows in (trained, everything))
            old = set(before)
            new = everything.select(np.array([point not in old for point in now], dtype=bool))
            sendable = old <= set(now) and len(new) <= len(trained) and self.floors.enough(new)
            self._new = key, new if sendable else None
        return self._new[1]


def _ids(windows: WindowSet) -> list[str]:
    """The name of each window's unit."""
    return [windows.unit_ids[unit] for unit in windows.unit]


def failure(client: str, error: Exception) -> Failure:
    """What a peer may know of an error: its kind. The full text stays in the owner's log."""
    code = error.code if isinstance(error, FedprognosError) else "internal"
    text = (
        error.what
        if isinstance(error, MessageError)
        else f"an error of kind '{code}': the log of '{client}' says which"
    )
    return Failure(client, code, text)
