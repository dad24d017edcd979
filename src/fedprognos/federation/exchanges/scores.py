"""Scores: sums of a finished model's errors on test units that a client holds itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fedprognos.evaluation import SQUARED, Points, ScoreSums, moments_scored, score_sums, sums_of
from fedprognos.features import Recipe, WindowSet, build_windows
from fedprognos.federation.exchanges import Cost, Exchange, OnEpoch, Words, exchanges, network_below_head
from fedprognos.federation.limits import run_cost
from fedprognos.federation.plausible import MOST_ROWS, check_count
from fedprognos.fleet import Fleet
from fedprognos.networks import Calibration, Network, predict

if TYPE_CHECKING:
    from fedprognos.federation.client import Client

TEST_POINTS_A_POINT = 10
"""Test points that a client may have for each of its labelled training points."""


@dataclass(frozen=True, eq=False)
class ScoreRequest:
    """Send sums of this model's errors on your test units, and on the part that training kept out.

    Parameters
    ----------
    score_at
        Score each test unit at its last row or at all; auto = last where test units end before failure.
    head
        Name of a personal head made earlier, to be evaluated on the test units instead of the model's own.
    calibration, coverage
        Also count the labels inside these intervals.
    """

    recipe: Recipe
    network: Network
    seed: int
    validation_fraction: float
    score_at: Literal["auto", "last", "all"] = "auto"
    head: str = ""
    calibration: Calibration | None = None
    coverage: float = 0.9


@dataclass(frozen=True)
class ScoreReply:
    """Sums of both parts; None where there are none, or too few windows to send anything of."""

    test: ScoreSums | None
    validation: ScoreSums | None


def answer(client: Client, request: ScoreRequest, on_epoch: OnEpoch | None) -> ScoreReply:
    """Sums over the test units and over the part kept out of training."""
    held = client.parts(request.recipe, request.seed, request.validation_fraction)[1]
    network, recipe = request.network.check("request"), request.recipe
    if request.head:
        network = network.with_head(client.folder.load_head(request.head))
        held = None  # it helped to make this head, so its errors are too small

    def sums(windows: WindowSet | None) -> ScoreSums | None:
        if windows is None or not client.floors.enough(windows):
            return None
        predictions = predict(network, windows, recipe)
        bounds = None if request.calibration is None else request.calibration.interval(predictions, request.coverage)
        points = Points(windows.labels, predictions, windows.unit, task=recipe.task, cap=recipe.cap, bounds=bounds)
        scores = score_sums(points, client.floors.leverage)
        return scores if SQUARED.name in scores.sums else None

    tested = None
    if client.test is not None:
        tested = build_windows(recipe, client.test, points=moments_scored([client.test], request.score_at))
    return ScoreReply(sums(tested), sums(held))


def cost(request: ScoreRequest, fleet: Fleet) -> Cost:
    """Two passes: test units and what training kept out."""
    return run_cost(request.recipe, request.network.spec, fleet, passes=2.0, squares=False)


def check(request: ScoreRequest, reply: ScoreReply, most_points: int) -> None:
    """Sums over possible numbers of points."""
    for part, most in ((reply.test, TEST_POINTS_A_POINT * most_points), (reply.validation, most_points)):
        if part is not None:
            check_count(part.n, min(most, MOST_ROWS))


def template(request: ScoreRequest) -> ScoreReply:
    """Both parts, with every sum that the metrics of this task need."""
    scores = ScoreSums(1, 1, dict.fromkeys(sums_of(request.recipe.task), 0.0))
    return ScoreReply(scores, scores)


exchanges.add(
    Exchange(
        ScoreRequest,
        ScoreReply,
        90,
        Words("scoring", "sums of errors of a finished model", "how well the model does here"),
        answer,
        cost,
        check,
        template=template,
        only_masked=True,
        about=network_below_head,
    )
)
