"""How good predictions are: one table of metrics, baselines, results."""

from fedprognos.evaluation.baselines import Baseline, baselines
from fedprognos.evaluation.fleet_summary import fleet_summary
from fedprognos.evaluation.metrics import Metric, Points, Sum, metrics
from fedprognos.evaluation.predictions import ClientPredictions, read_predictions, write_predictions
from fedprognos.evaluation.results import Method, Results
from fedprognos.evaluation.rows import HistoryRow, ResultRow
from fedprognos.evaluation.scores import Scores, ScoreSums, rmse, score, score_sums
from fedprognos.evaluation.summary import EVERYONE, OWN, SHARED, Summary, pooled, summarise, trained_on
from fedprognos.evaluation.trajectories import Trajectories, read_trajectories, write_trajectories

__all__ = [
    "EVERYONE",
    "OWN",
    "SHARED",
    "Baseline",
    "ClientPredictions",
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
    "fleet_summary",
    "metrics",
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
