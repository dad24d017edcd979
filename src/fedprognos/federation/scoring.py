"""A model's errors on a client's own units: sums, none of too few windows."""

from __future__ import annotations

import re

from fedprognos.errors import MessageError
from fedprognos.evaluation import ScoreSums, score_sums
from fedprognos.evaluation.score_at import moments_scored
from fedprognos.features import WindowSet, build_windows
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.score_messages import ScoreReply, ScoreRequest
from fedprognos.fleet import Fleet
from fedprognos.networks import predict


def score_reply(
    request: ScoreRequest, folder: ClientFolder, test: Fleet | None, held: WindowSet | None, min_count: int
) -> ScoreReply:
    """Sums over the test units and over the part kept out of training."""
    network = request.network.check("request")
    if request.head:
        if not re.fullmatch("[0-9a-f]{32}", request.head):
            raise MessageError("not the name of a personal head")
        network = network.with_head(folder.load_head(request.head))
        held = None  # it helped to make this head

    def sums(windows: WindowSet | None) -> ScoreSums | None:
        if windows is None or len(windows) < min_count:
            return None
        said = predict(network, windows, request.recipe)
        bounds = None if request.calibration is None else request.calibration.interval(said, request.coverage)
        recipe = request.recipe
        return score_sums(windows.labels, said, windows.unit, task=recipe.task, cap=recipe.cap, bounds=bounds)

    tested = None
    if test is not None:
        tested = build_windows(request.recipe, test, points=moments_scored([test], request.score_at))
    return ScoreReply(sums(tested), sums(held))
