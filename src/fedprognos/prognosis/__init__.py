"""The model at work: from raw rows to health now, from files, streams or requests."""

from fedprognos.prognosis.health import Health, Row, Update, Verdict
from fedprognos.prognosis.predictor import Predictor
from fedprognos.prognosis.stream import Stream

__all__ = ["Health", "Predictor", "Row", "Stream", "Update", "Verdict"]
