"""A client: a private fleet and its replies.

Every request is checked before it is answered, and no statistic of fewer than `min_count` windows or rows leaves,
whatever is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprognos.errors import DataNotFoundError, FedprognosError, MessageError
from fedprognos.features import Recipe, WindowSet, build_windows, hold_out, survey
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.codec import decode, encode, ledger_line, tag_of, wire_of
from fedprognos.federation.cohort import digest
from fedprognos.federation.folds import MAX_FOLDS, Fold
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
    LayerOutputs,
    OutputsReply,
    OutputsRequest,
    Reply,
    Request,
    SurveyReply,
    SurveyRequest,
)
from fedprognos.federation.pool_messages import PersonalReply, PersonalRequest, PooledSlopes, PoolReply, PoolRequest
from fedprognos.federation.privacy.statistics import private_statistics
from fedprognos.federation.score_messages import ResidualReply, ResidualRequest, ScoreRequest
from fedprognos.federation.scoring import score_reply
from fedprognos.federation.secure.answers import answer_sums, check_alone, masked
from fedprognos.federation.seeds import stream
from fedprognos.fleet import Fleet
from fedprognos.networks import Bundle, Epoch, Network, fit, predict
from fedprognos.networks.head import head_statistics
from fedprognos.networks.outputs import output_sums
from fedprognos.networks.pooling import Fits, forward_fits, judged_on_held_out
from fedprognos.networks.residuals import merge_small_bins, residuals

MIN_COUNT = 20
"""No statistic of fewer rows than this leaves a client, whatever it is asked."""
MAX_PARAMETERS, MAX_EPOCHS, MAX_EDGES, MAX_RANGES = 20_000_000, 10_000, 400, 20

if TYPE_CHECKING:  # needs `cryptography`, which is there where sites mask
    from fedprognos.federation.secure.member import Member

OnEpoch = Callable[[Epoch], None]


class Client:
    """Holds one owner's training fleet and answers requests from it.

    Parameters
    ----------
    folder
        The owner's own: ledger, log, personal heads, perhaps a model trained earlier.
    min_count
        The owner's own floor; a request can raise it but not lower it.
    test
        Test units of the owner's own; where a runner holds the test units, clients have none.
    device
        Where networks are trained: `auto`, `cpu` or `cuda`.
    member
        Masks sums, where replies must not be seen one by one; they then never leave unmasked.
    """

    def __init__(
        self,
        name: str,
        fleet: Fleet,
        folder: ClientFolder,
        min_count: int = MIN_COUNT,
        test: Fleet | None = None,
        device: str = "auto",
        member: Member | None = None,
    ) -> None:
        self.name, self.fleet, self.folder, self.min_count, self.test = name, fleet, folder, min_count, test
        self.device = device
        self.member = member
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
        match request:
            case SurveyRequest():
                floor = max(self.min_count, request.terms.min_count)
                return SurveyReply(survey(self.fleet, request.terms.model_copy(update={"min_count": floor})))
            case ImportRequest():
                return self._import()
            case FitRequest():
                return self._fit(request, on_epoch)
            case EvaluateRequest():
                return self._evaluate(request)
            case OutputsRequest():
                return self._outputs(request)
            case PoolRequest():
                return PoolReply(self._fits(request).sendable(self.min_count))
            case PersonalRequest():
                return self._personal(request)
            case ResidualRequest():
                return self._residuals(request)
            case ScoreRequest():
                held = self._parts(request.recipe, request.seed, request.validation_fraction, Fold())[1]
                return score_reply(request, self.folder, self.test, held, self.min_count)
            case _:
                return answer_sums(self.member, request, self.fleet, self.min_count)  # type: ignore[no-any-return]

    def _import(self) -> ImportReply:
        if self.folder.bundle is None:
            raise DataNotFoundError("no model was trained here earlier", hint="set federation.bundles")
        bundle = Bundle.load(self.folder.bundle)
        windows = self._windows_for(bundle.recipe)
        return ImportReply(bundle.recipe, bundle.network, len(windows))

    def _fit(self, request: FitRequest, on_epoch: OnEpoch | None) -> FitReply:
        if request.shape.parameters > MAX_PARAMETERS or request.training.epochs > MAX_EPOCHS:
            raise MessageError("asks for more training than this client allows")
        if not 0 <= request.frozen < request.shape.layers:
            raise MessageError(f"cannot freeze {request.frozen} of {request.shape.layers} layers")
        fold = Fold(request.fold, request.folds)
        train, validation = self._parts(request.recipe, request.seed, request.validation_fraction, fold)
        if len(train) < self.min_count:
            raise MessageError(f"fewer than {self.min_count} windows to learn from")
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
            seed=stream(request.seed, self.name, request.round, request.phase),
            device=self.device,
            frozen=request.frozen,
            proximal=request.proximal,
            on_epoch=on_epoch,
        )
        weights = {name: array for name, array in result.network.weights.items() if name in request.learnt}
        return FitReply(weights, result.windows, result.history, result.best_epoch, result.collapsed)

    def _evaluate(self, request: EvaluateRequest) -> EvaluateReply:
        network = request.network.check("request")
        fraction, fold = request.validation_fraction, Fold(request.fold, request.folds)
        if request.privacy is not None:
            train, _ = self._head_parts(request.recipe, request.seed, 0.0, fold)
            return EvaluateReply(None, private_statistics(network, train, request.recipe, request.privacy))
        sums = None
        if fraction > 0:
            held = self._parts(request.recipe, request.seed, fraction, fold)[1]
            if held is not None and len(held) >= self.min_count:
                error = predict(network, held, request.recipe) - request.recipe.capped(held.labels)
                absolute, squared = float(np.abs(error).sum()), float(np.square(error).sum())
                sums = ErrorSums(len(held), float(error.sum()), absolute, squared)
        if not request.statistics:
            return EvaluateReply(sums)
        # Units the layers below have learnt from cannot tell how strongly their head should be held back.
        train, held = self._head_parts(request.recipe, request.seed, fraction, fold)
        return EvaluateReply(
            sums,
            head_statistics(network, train, request.recipe, alike=request.alike),
            None if held is None else head_statistics(network, held, request.recipe, alike=request.alike),
        )

    def _outputs(self, request: OutputsRequest) -> OutputsReply:
        network = request.network.check("request")
        fold = Fold(request.fold, request.folds)
        train, _ = self._head_parts(request.recipe, request.seed, request.validation_fraction, fold)
        return OutputsReply(tuple(LayerOutputs(o.n, o.starts, o.s, o.S) for o in output_sums(network, train)))

    def _fits(self, request: PoolRequest | PersonalRequest) -> Fits:
        """Statistics of the points that a personal head is fitted to, and of those on which it is judged."""
        network, fraction = request.network.check("request"), request.validation_fraction
        if not judged_on_held_out(network, fraction):
            windows = self._head_parts(request.recipe, request.seed, 0.0, Fold())[0]
            return forward_fits(network, windows, request.recipe, self._stream(request.seed, "cuts"))
        train, held = self._head_parts(request.recipe, request.seed, fraction, Fold())
        learnt = head_statistics(network, train, request.recipe)
        later = head_statistics(network, train.select(np.arange(0)) if held is None else held, request.recipe)
        return Fits([learnt, learnt.add(later)], [later], nested=held is not None)

    def _personal(self, request: PersonalRequest) -> PersonalReply:
        fits, columns = self._fits(request), request.network.spec.features
        slopes = request.slopes or PooledSlopes.near(request.network, len(fits.fitted))
        slopes.check(len(fits.fitted), columns)
        self.folder.save_head(digest(encode(request)), fits.head(slopes.freedoms, slopes.shared))
        return PersonalReply(fits.fitted[-1].n)

    def _residuals(self, request: ResidualRequest) -> ResidualReply:
        ranges, edges, folds = request.ranges, request.edges, len(request.models)
        for bounds, most in ((ranges, MAX_RANGES), (edges, MAX_EDGES)):
            if bounds.ndim != 1 or len(bounds) > most or (np.diff(bounds) <= 0).any():
                raise MessageError(f"edges and ranges must be at most {MAX_EDGES} and {MAX_RANGES} increasing numbers")
        if not 2 <= folds <= MAX_FOLDS:
            raise MessageError(f"models of {folds} folds; there must be 2 to {MAX_FOLDS}")
        windows = self._windows_for(request.recipe)
        if len(np.unique(windows.unit)) < self.min_count:
            raise MessageError(f"fewer than {self.min_count} units to take residuals from")
        counts = np.zeros((len(ranges) + 1, len(edges) + 1), dtype=np.int64)
        present: list[set[int]] = [set() for _ in counts]
        for fold, model in enumerate(request.models):
            network = model.check("request")
            unseen = Fold(fold, folds).members(windows, self._stream(request.seed, "folds"))
            found = residuals(network, windows.select(unseen), request.recipe)
            place = np.searchsorted(ranges, found.predictions, side="right")
            np.add.at(counts, (place, np.searchsorted(edges, found.scaled)), 1)
            for k, unit in zip(place.tolist(), found.unit.tolist(), strict=True):
                present[k].add(unit)
        return ResidualReply(*merge_small_bins(counts, present, self.min_count))

    def _stream(self, seed: int, phase: str) -> int:
        return stream(seed, self.name, 0, phase)

    def _parts(self, recipe: Recipe, seed: int, fraction: float, fold: Fold) -> tuple[WindowSet, WindowSet | None]:
        """The windows to fit and those kept out, the same in every round."""
        return hold_out(self._learnt_from(recipe, seed, fold), fraction, self._stream(seed, "validation"))

    def _head_parts(self, recipe: Recipe, seed: int, fraction: float, fold: Fold) -> tuple[WindowSet, WindowSet | None]:
        """The parts a head is fitted to and chosen on; too small a part is not told apart from the other."""
        train, held = self._parts(recipe, seed, fraction, fold)
        if held is None or len(held) < self.min_count or len(train) < self.min_count:
            train, held = self._learnt_from(recipe, seed, fold), None
        if len(train) < self.min_count:
            raise MessageError(f"fewer than {self.min_count} windows to make a head from")
        return train, held

    def _learnt_from(self, recipe: Recipe, seed: int, fold: Fold) -> WindowSet:
        """All windows but those of the fold left out."""
        windows = self._windows_for(recipe)
        return windows.select(~fold.members(windows, self._stream(seed, "folds"))) if fold.folds else windows

    def _windows_for(self, recipe: Recipe) -> WindowSet:
        """Windows are built once for a recipe, not for every request."""
        key = recipe.to_json()
        if self._windows is None or self._windows[0] != key:
            self._windows = (key, build_windows(recipe, self.fleet))
        return self._windows[1]


def failure(client: str, error: Exception) -> Failure:
    """What a peer may know of an error: its kind. The full text stays in the owner's log."""
    code = error.code if isinstance(error, FedprognosError) else "internal"
    text = error.what if isinstance(error, MessageError) else f"a {code} error; the log of '{client}' says which"
    return Failure(client, code, text)
