"""A model's errors on a client's own units: sums and histograms, none of too few windows or units."""

from __future__ import annotations

import re

import numpy as np

from fedprognos.errors import MessageError
from fedprognos.evaluation import ScoreSums, score_sums
from fedprognos.evaluation.score_at import moments_scored
from fedprognos.features import WindowSet, build_windows
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.floors import Floors
from fedprognos.federation.folds import MAX_FOLDS, Fold
from fedprognos.federation.score_messages import ResidualReply, ResidualRequest, ScoreReply, ScoreRequest
from fedprognos.fleet import Fleet
from fedprognos.networks import predict
from fedprognos.networks.residuals import merge_small_bins, residuals

MAX_EDGES, MAX_RANGES = 400, 20


def score_reply(
    request: ScoreRequest, folder: ClientFolder, test: Fleet | None, held: WindowSet | None, floors: Floors
) -> ScoreReply:
    """Sums over the test units and over the part kept out of training."""
    network = request.network.check("request")
    if request.head:
        if not re.fullmatch("[0-9a-f]{32}", request.head):
            raise MessageError("not the name of a personal head")
        network = network.with_head(folder.load_head(request.head))
        held = None  # it helped to make this head

    def sums(windows: WindowSet | None) -> ScoreSums | None:
        if windows is None or not floors.enough(windows):
            return None
        said = predict(network, windows, request.recipe)
        bounds = None if request.calibration is None else request.calibration.interval(said, request.coverage)
        recipe = request.recipe
        return score_sums(windows.labels, said, windows.unit, task=recipe.task, cap=recipe.cap, bounds=bounds)

    tested = None
    if test is not None:
        tested = build_windows(request.recipe, test, points=moments_scored([test], request.score_at))
    return ScoreReply(sums(tested), sums(held))


def residual_reply(request: ResidualRequest, windows: WindowSet, seed: int, floors: Floors) -> ResidualReply:
    """Counts of residuals of every fold's model on the units of that fold; `seed` deals units into folds."""
    ranges, edges, folds = request.ranges, request.edges, len(request.models)
    for bounds, most in ((ranges, MAX_RANGES), (edges, MAX_EDGES)):
        if bounds.ndim != 1 or len(bounds) > most or (np.diff(bounds) <= 0).any():
            raise MessageError(f"edges and ranges must be at most {MAX_EDGES} and {MAX_RANGES} increasing numbers")
    if not 2 <= folds <= MAX_FOLDS:
        raise MessageError(f"models of {folds} folds; there must be 2 to {MAX_FOLDS}")
    if len(np.unique(windows.unit)) < floors.rows:
        raise MessageError(f"fewer than {floors.rows} units to take residuals from")
    counts = np.zeros((len(ranges) + 1, len(edges) + 1), dtype=np.int64)
    present: list[set[int]] = [set() for _ in counts]
    for fold, model in enumerate(request.models):
        unseen = Fold(fold, folds).members(windows, seed)
        found = residuals(model.check("request"), windows.select(unseen), request.recipe)
        place = np.searchsorted(ranges, found.predictions, side="right")
        np.add.at(counts, (place, np.searchsorted(edges, found.scaled)), 1)
        for k, unit in zip(place.tolist(), found.unit.tolist(), strict=True):
            present[k].add(unit)
    return ResidualReply(*merge_small_bins(counts, present, floors.rows))
