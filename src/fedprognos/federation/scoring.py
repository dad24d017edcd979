"""A model's errors on a client's own units: sums and histograms, none of too few windows or units."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedprognos.errors import MessageError
from fedprognos.evaluation import Points, ScoreSums, score_sums
from fedprognos.evaluation.metrics import SQUARED
from fedprognos.evaluation.scores import moments_scored
from fedprognos.features import WindowSet, build_windows
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.dealing import reserved
from fedprognos.federation.floors import Floors
from fedprognos.federation.score_messages import ResidualReply, ResidualRequest, ScoreReply, ScoreRequest
from fedprognos.fleet import Fleet
from fedprognos.networks import predict
from fedprognos.networks.residuals import residuals

MAX_EDGES, MAX_RANGES, MAX_STRETCH = 400, 20, 100.0


def score_reply(
    request: ScoreRequest, folder: ClientFolder, test: Fleet | None, held: WindowSet | None, floors: Floors
) -> ScoreReply:
    """Sums over the test units and over the part kept out of training."""
    network = request.network.check("request")
    if request.head:
        network = network.with_head(folder.load_head(request.head))
        held = None  # it helped to make this head

    def sums(windows: WindowSet | None) -> ScoreSums | None:
        if windows is None or not floors.enough(windows):
            return None
        said = predict(network, windows, request.recipe)
        bounds = None if request.calibration is None else request.calibration.interval(said, request.coverage)
        recipe = request.recipe
        points = Points(windows.labels, said, windows.unit, task=recipe.task, cap=recipe.cap, bounds=bounds)
        found = score_sums(points, floors.leverage)
        return found if SQUARED.name in found.sums else None

    tested = None
    if test is not None:
        tested = build_windows(request.recipe, test, points=moments_scored([test], request.score_at))
    return ScoreReply(sums(tested), sums(held))


def residual_reply(
    request: ResidualRequest, windows: WindowSet, parts: Sequence[WindowSet], seed: int, floors: Floors
) -> ResidualReply:
    """Counts of residuals by range of the prediction.

    Parameters
    ----------
    parts
        The same windows as the head's statistics were made of them.
    seed
        Deals the reserve.
    """
    ranges, edges, network = request.ranges, request.edges, request.network.check("request")
    for bounds, most in ((ranges, MAX_RANGES), (edges, MAX_EDGES)):
        if bounds.ndim != 1 or len(bounds) > most or (np.diff(bounds) <= 0).any():
            raise MessageError(f"edges and ranges must be at most {MAX_EDGES} and {MAX_RANGES} increasing numbers")
    if not 1 <= request.stretch <= MAX_STRETCH or (request.sums is not None and not 0 < request.sums.share <= 1):
        raise MessageError(f"errors stretched by a factor outside 1 to {MAX_STRETCH}, or a share outside 0 to 1")
    if request.only_reserve:
        windows = windows.select(reserved(windows, seed, floors))
    else:
        floors.check(windows)
    found = residuals(network, windows, request.recipe, request.sums, parts, request.stretch)
    counts = floors.histogram(found, ranges, edges)
    return ResidualReply(*counts, found.squared)
