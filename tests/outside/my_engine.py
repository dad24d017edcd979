"""Processes at the lowest priority, so that the machine stays usable while a long simulation runs."""

import multiprocessing
import os
from concurrent.futures import Executor, ProcessPoolExecutor

from fedprognos.experiment.engines import OwnProcesses


class PoliteProcesses(OwnProcesses):
    """As own processes; only the executor is another."""

    def start(self) -> Executor:
        return ProcessPoolExecutor(self.jobs, multiprocessing.get_context("spawn"), os.nice, (19,))
