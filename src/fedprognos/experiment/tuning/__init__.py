"""Searching hyper-parameters on what training keeps out: nothing here ever sees a test unit."""

from fedprognos.experiment.tuning.search import Search, tune

__all__ = ["Search", "tune"]
