"""How good predictions are: metrics, yardsticks, the results table."""

from fedprognos.evaluation.metrics import Scores, nasa_score, rmse, score
from fedprognos.evaluation.portrait import portrait
from fedprognos.evaluation.predictions import Prediction, read_predictions, write_predictions
from fedprognos.evaluation.results import HistoryRow, Results, Row, Summary, summarise
from fedprognos.evaluation.yardsticks import YARDSTICKS

__all__ = [
    "YARDSTICKS",
    "HistoryRow",
    "Prediction",
    "Results",
    "Row",
    "Scores",
    "Summary",
    "nasa_score",
    "portrait",
    "read_predictions",
    "rmse",
    "score",
    "summarise",
    "write_predictions",
]
