"""How good predictions are: one table of metrics, baselines, results."""

from fedprognos.evaluation.baselines import Baseline, baselines
from fedprognos.evaluation.comparison import Comparison, Difference, change_by_unit, difference_by_seed
from fedprognos.evaluation.evaluation_options import EvaluationOptions
from fedprognos.evaluation.fleet_summary import fleet_summary
from fedprognos.evaluation.metrics import Metric, Points, Sum, metrics
from fedprognos.evaluation.predictions import (
    ClientPredictions,
    Trajectories,
    read_predictions,
    read_trajectories,
    write_predictions,
    write_trajectories,
)
from fedprognos.evaluation.results import (
    EVERYONE,
    OWN,
    SHARED,
    HistoryRow,
    Method,
    ResultRow,
    Results,
    Summary,
    pooled,
    summarise,
    trained_on,
)
from fedprognos.evaluation.scores import Scores, ScoreSums, moments_scored, rmse, score, score_sums

__all__ = [
    "EVERYONE",
    "OWN",
    "SHARED",
    "Baseline",
    "ClientPredictions",
    "Comparison",
    "Difference",
    "EvaluationOptions",
    "HistoryRow",
    "Method",
    "Metric",
    "Points",
    "ResultRow",
    "Results",
    "ScoreSums",
    "Scores",
    "Sum",
    "Summary",
    "Trajectories",
    "baselines",
    "change_by_unit",
    "difference_by_seed",
    "fleet_summary",
    "metrics",
    "moments_scored",
    "pooled",
    "read_predictions",
    "read_trajectories",
    "rmse",
    "score",
    "score_sums",
    "summarise",
    "trained_on",
    "write_predictions",
    "write_trajectories",
]
