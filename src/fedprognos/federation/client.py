"""A client: a private fleet and its replies.

Every request is checked before it is answered, and nothing leaves that has less behind it than the owner's floors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprognos.errors import DataNotFoundError, FedprognosError, MessageError
from fedprognos.features import Recipe, WindowSet, build_windows, hold_out
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.codec import decode, encode, ledger_line, tag_of, wire_of
from fedprognos.federation.dealing import RESERVE, Dealing, reserved
from fedprognos.federation.floors import FloorError, Floors
from fedprognos.federation.limits import Limits
from fedprognos.federation.messages import (
    REQUESTS,
    ErrorSums,
    EvaluateReply,
    EvaluateRequest,
    Failure,
    FitReply,
    FitRequest,
    ImportReply,
    ImportRequest,
    OutputsReply,
    OutputsRequest,
    Reply,
    Request,
    SurveyReply,
    SurveyRequest,
)
from fedprognos.federation.pool_messages import PersonalReply, PersonalRequest, PooledSlopes, PoolReply, PoolRequest
from fedprognos.federation.private_replies import private_evaluation, private_fit_reply
from fedprognos.federation.score_messages import ResidualRequest, ScoreRequest
from fedprognos.federation.scoring import residual_reply, score_reply
from fedprognos.federation.secure.answers import answer_sums, check_alone, masked
from fedprognos.federation.secure.survey import surveyed
from fedprognos.federation.seeds import stream
from fedprognos.fleet import Fleet
from fedprognos.networks import Bundle, Epoch, Network, fit, predict
from fedprognos.networks.head import head_statistics
from fedprognos.networks.pooling import Fits, forward_fits, judged_on_held_out

if TYPE_CHECKING:  # needs `cryptography`, which is there where sites mask
    from fedprognos.federation.secure.member import Member

OnEpoch = Callable[[Epoch], None]
Parts = tuple[WindowSet, WindowSet | None]


class Client:
    """Holds one owner's training fleet and answers requests from it.

    Parameters
    ----------
    folder
        The owner's own: ledger, log, personal heads, perhaps a model trained earlier.
    floors, limits
        The owner's own: the least behind what leaves, which a request can raise but not lower, and the most that a
        request may take. Runs in one process have no floor of units and do not look for rows that stand out.
    test
        Test units of the owner's own; where a runner holds the test units, clients have none.
    device
        Where networks are trained: `auto`, `cpu` or `cuda`.
    member
        Masks sums, where replies must not be seen one by one; they then never leave unmasked.
    dealing
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
        dealing: Dealing = Dealing(),  # noqa: B008 - frozen
    ) -> None:
        self.name, self.fleet, self.folder, self.test, self.device = name, fleet, folder, test, device
        self.floors, self.limits, self.member, self.dealing = floors.of(len(fleet)), limits, member, dealing
        self._windows: tuple[str, WindowSet] | None = None

    def respond(self, data: bytes, on_epoch: OnEpoch | None = None) -> bytes:
        """Encoded answer to an encoded request."""
        return self.gate(data, REQUESTS, lambda request: self.answer(request, on_epoch))[1]

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
            check_alone(self.member, tag, request)
            reply = masked(self.member, tag, request, answer(request))
            encoded = encode(reply, wire_of(data))
        except Exception as error:
            self.folder.log_error(error)
            reply = failure(self.name, error)
            encoded = encode(reply)
        self.folder.record(ledger_line(encoded))
        return reply, encoded

    def answer(self, request: Request, on_epoch: OnEpoch | None = None) -> Reply:
        """Answer one request; raise where it cannot be answered."""
        for fleet in (self.fleet, *([self.test] if self.test is not None else [])):
            self.limits.check(request, fleet)
        match request:
            case SurveyRequest():
                return SurveyReply(surveyed(self.fleet, request.terms, self.floors))
            case ImportRequest():
                return self._import()
            case FitRequest():
                return self._fit(request, on_epoch)
            case EvaluateRequest():
                return self._evaluate(request)
            case OutputsRequest():
                return self._outputs(request)
            case PoolRequest():
                return self._pool(request)
            case PersonalRequest():
                return self._personal(request)
            case ResidualRequest():
                windows, seed = self._windows_for(request.recipe), self._dealt(request.seed, "reserve", RESERVE)
                return residual_reply(request, windows, self._sent_parts(request), seed, self.floors)
            case ScoreRequest():
                held = self._parts(request.recipe, request.seed, request.validation_fraction)[1]
                return score_reply(request, self.folder, self.test, held, self.floors)
            case _:
                return answer_sums(self.member, request, self.fleet, self.floors)  # type: ignore[no-any-return]

    def _import(self) -> ImportReply:
        if self.folder.bundle is None:
            raise DataNotFoundError("no model was trained here earlier", hint="set federation.bundles")
        bundle = Bundle.load(self.folder.bundle)
        return ImportReply(bundle.recipe, bundle.network, len(self._windows_for(bundle.recipe)))

    def _fit(self, request: FitRequest, on_epoch: OnEpoch | None) -> FitReply:
        if not 0 <= request.frozen < request.shape.layers:
            raise MessageError(f"cannot freeze {request.frozen} of {request.shape.layers} layers")
        apart = request.without_reserve
        if request.privacy is not None:
            order = self.dealing.order(request.seed, self.name, request.round, request.phase)
            return private_fit_reply(request, self._head_parts(request.recipe, request.seed, 0.0, apart)[0], order)
        train, validation = self._parts(request.recipe, request.seed, request.validation_fraction, apart)
        self.floors.check(train)
        if request.start is None:
            bias = float(request.recipe.encode(train.labels).mean())
            seed, forget = stream(request.seed, self.name, 0, "weights"), request.training.forget_bias
            start = Network.seeded(request.shape, seed, bias, forget)
        else:
            start = request.start.check("request")
        result = fit(
            start,
            train,
            validation,
            request.recipe,
            request.training,
            seed=self.dealing.order(request.seed, self.name, request.round, request.phase),
            device=self.device,
            frozen=request.frozen,
            proximal=request.proximal,
            on_epoch=on_epoch,
        )
        weights = {name: array for name, array in result.network.weights.items() if name in request.learnt}
        told = self.floors.enough(validation)  # it decides when to stop, but its errors may have to stay
        history = tuple(epoch if told else replace(epoch, validation_rmse=None) for epoch in result.history)
        return FitReply(weights, result.windows, history, result.best_epoch, result.collapsed)

    def _evaluate(self, request: EvaluateRequest) -> EvaluateReply:
        network = request.network.check("request")
        fraction, apart = request.validation_fraction, request.without_reserve
        if request.privacy is not None:
            return private_evaluation(request, self._head_parts(request.recipe, request.seed, 0.0, apart)[0])
        sums = None
        if fraction > 0:
            held = self._parts(request.recipe, request.seed, fraction, apart)[1]
            if held is not None and self.floors.enough(held):
                error = predict(network, held, request.recipe) - request.recipe.capped(held.labels)
                absolute, squared = float(np.abs(error).sum()), float(np.square(error).sum())
                sums = ErrorSums(len(held), float(error.sum()), absolute, squared)
        if not request.statistics:
            return EvaluateReply(sums)
        parts = self._sent_parts(request, apart)
        return EvaluateReply(sums, *(head_statistics(network, p, request.recipe, alike=request.alike) for p in parts))

    def _sent_parts(self, request: EvaluateRequest | ResidualRequest, apart: bool = False) -> list[WindowSet]:
        """The parts whose statistics leave: what was trained on and, where it tells enough, what was kept out.

        Units the layers below have learnt from cannot tell how strongly their head should be held back.
        """
        train, held = self._head_parts(request.recipe, request.seed, request.validation_fraction, apart)
        if held is not None:
            with contextlib.suppress(FloorError):
                for part in (train, held):
                    self.floors.look(request.network, part, alike=request.alike)
                return [train, held]
            train = self._learnt_from(request.recipe, request.seed, apart)
        self.floors.look(request.network, train, alike=request.alike)
        return [train]

    def _outputs(self, request: OutputsRequest) -> OutputsReply:
        network = request.network.check("request")
        asked = (request.recipe, request.seed, request.validation_fraction, request.without_reserve)
        train, _ = self._head_parts(*asked)
        return OutputsReply(self.floors.outputs(network, train))

    def _fits(self, request: PoolRequest | PersonalRequest) -> Fits:
        """Statistics of the points that a personal head is fitted to, and of those on which it is judged."""
        network, fraction = request.network.check("request"), request.validation_fraction
        if not judged_on_held_out(network, fraction):
            windows = self._head_parts(request.recipe, request.seed, 0.0)[0]
            return forward_fits(network, windows, request.recipe, self._dealt(request.seed, "cuts", 0.0))
        train, held = self._head_parts(request.recipe, request.seed, fraction)
        learnt = head_statistics(network, train, request.recipe)
        later = head_statistics(network, train.select(np.arange(0)) if held is None else held, request.recipe)
        return Fits([learnt, learnt.add(later)], [later], nested=held is not None)

    def _pool(self, request: PoolRequest) -> PoolReply:
        fits = self._fits(request).sendable(self.floors.rows, self.floors.units, apart=self.floors.parts)
        if self.floors.leverage < 1:
            network, fraction = request.network, request.validation_fraction
            self.floors.look(network, self._learnt_from(request.recipe, request.seed))
            try:
                if not judged_on_held_out(network, fraction):
                    raise FloorError("parts of few points")
                for part in self._head_parts(request.recipe, request.seed, fraction):
                    if part is not None:
                        self.floors.look(network, part)
            except FloorError:  # only the sums of all points leave
                fits = (*[None] * (len(fits) - 1), fits[-1])
        return PoolReply(fits)

    def _personal(self, request: PersonalRequest) -> PersonalReply:
        fits, columns = self._fits(request), request.network.spec.features
        slopes = request.slopes or PooledSlopes.near(request.network, len(fits.fitted))
        slopes.check(len(fits.fitted), columns)
        self.folder.save_head(request.head, fits.head(slopes.freedoms, slopes.shared))
        return PersonalReply(fits.fitted[-1].n)

    def _dealt(self, seed: int, phase: str, share: float) -> int:
        return self.dealing.stream(seed, self.name, phase, share)

    def _parts(self, recipe: Recipe, seed: int, fraction: float, apart: bool = False) -> Parts:
        """The windows to fit and those kept out, the same in every round."""
        return hold_out(self._learnt_from(recipe, seed, apart), fraction, self._dealt(seed, "validation", fraction))

    def _head_parts(self, recipe: Recipe, seed: int, fraction: float, apart: bool = False) -> Parts:
        """The parts a head is fitted to and chosen on; too small a part is not told apart from the other."""
        train, held = self._parts(recipe, seed, fraction, apart)
        if held is None or not (self.floors.enough(held) and self.floors.enough(train)):
            train, held = self._learnt_from(recipe, seed, apart), None
        self.floors.check(train)
        return train, held

    def _learnt_from(self, recipe: Recipe, seed: int, apart: bool = False) -> WindowSet:
        """All windows, or those without the reserve: sums of both differ by it, so floors hold for it, too."""
        windows = self._windows_for(recipe)
        if not apart:
            return windows
        return windows.select(~reserved(windows, self._dealt(seed, "reserve", RESERVE), self.floors))

    def _windows_for(self, recipe: Recipe) -> WindowSet:
        """Windows are built once for a recipe, not for every request."""
        key = recipe.to_json()
        if self._windows is None or self._windows[0] != key:
            self._windows = (key, self.floors.points(build_windows(recipe, self.fleet), self.fleet, recipe))
        return self._windows[1]


def failure(client: str, error: Exception) -> Failure:
    """What a peer may know of an error: its kind. The full text stays in the owner's log."""
    code = error.code if isinstance(error, FedprognosError) else "internal"
    text = error.what if isinstance(error, MessageError) else f"a {code} error; the log of '{client}' says which"
    return Failure(client, code, text)
