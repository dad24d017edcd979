"""How good predictions are: metrics, yardsticks, the results table."""

from fedprognos.evaluation.lives import Lives, read_lives, write_lives
from fedprognos.evaluation.metrics import Scores, nasa_score, rmse, score
from fedprognos.evaluation.portrait import portrait
from fedprognos.evaluation.predictions import Prediction, read_predictions, write_predictions
from fedprognos.evaluation.results import HistoryRow, Results, Row, Summary, summarise
from fedprognos.evaluation.sums import ScoreSums, score_sums
from fedprognos.evaluation.yardsticks import YARDSTICKS

__all__ = [
    "YARDSTICKS",
    "HistoryRow",
    "Lives",
    "Prediction",
    "Results",
    "Row",
    "ScoreSums",
    "Scores",
    "Summary",
    "nasa_score",
    "portrait",
    "read_lives",
    "read_predictions",
    "rmse",
    "score",
    "score_sums",
    "summarise",
    "write_lives",
    "write_predictions",
]
