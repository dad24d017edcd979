"""What engines promise: the same bytes wherever jobs run, and an executor that can be stopped and started again."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fedprognos.checks.requirement import CheckError, require
from fedprognos.experiment import Engine, Workers
from fedprognos.features import SurveyTerms
from fedprognos.federation import ClientFolder, SurveyRequest, encode
from fedprognos.fleet.synthetic import synthetic_engines

PATIENCE_IN_S = 60.0
"""Longest time for a job that takes no time, on a busy machine."""
LONG_JOB_IN_S = 30.0
"""A job that `stop` must not wait for."""


def check_engine(make_engine: Callable[[], Engine]) -> None:
    """Check where the clients of a simulated run answer.

    - Its jobs give the bytes that a run in this process gives.
    - A future raises what its job raised.
    - `stop` ends an executor at once, also with a job under way, and `start` then gives a new one.
    - The future of a job whose process died raises one of `lost`.

    Parameters
    ----------
    make_engine
        Makes the engine, which the check closes.

    Raises
    ------
    CheckError
        The first promise that the engine breaks.

    Examples
    --------
    >>> import fedprognos as fp
    >>> from fedprognos.experiment.engines import OwnProcesses
    >>> fp.checks.check_engine(lambda: OwnProcesses(2))  # doctest: +SKIP
    """
    engine = make_engine()
    where = f"engine '{type(engine).__name__}'"
    try:
        require(engine.jobs >= 1, f"it runs {engine.jobs} jobs side by side", where=where)
        _check_bytes(engine, where)
        _check_failures(engine, where)
        _check_stop(engine, where)
    finally:
        engine.close()


def _check_bytes(engine: Engine, where: str) -> None:
    request = encode(SurveyRequest(SurveyTerms()))
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        fleets = {
            name: (name, synthetic_engines(sites=1, units_per_site=2, seed=k)[0], ClientFolder(folder / name))
            for k, name in enumerate("ab")
        }
        with Workers(fleets, None) as here:
            expected = here.answers(dict.fromkeys(fleets, request))
        with Workers(fleets, engine, place=folder) as workers:
            replies = workers.answers(dict.fromkeys(fleets, request), timeout_in_s=PATIENCE_IN_S)
    for name, reply in replies.items():
        at = f"{where}, client '{name}'"
        require(isinstance(reply, bytes), f"the job gives no reply: {reply!r}", where=at)
        require(reply == expected[name], "the reply has other bytes than in this process", where=at)


def _check_failures(engine: Engine, where: str) -> None:
    executor = engine.start()
    try:
        error = executor.submit(int, "no number").exception(PATIENCE_IN_S)
        require(isinstance(error, ValueError), f"a job raises ValueError, its future {error!r}", where=where)
        if executor.submit(os.getpid).result(PATIENCE_IN_S) == os.getpid():
            return  # jobs run in threads of this process, which must not die
        error = executor.submit(os._exit, 1).exception(PATIENCE_IN_S)
        require(
            isinstance(error, engine.lost),
            f"the process of a job dies, and its future gives {error!r}",
            where=where,
            hint="name its type in `lost`: then the job is done again",
        )
    except TimeoutError:
        raise CheckError(f"a job gives nothing within {PATIENCE_IN_S:g} s", where=where) from None
    finally:
        engine.stop(executor)


def _check_stop(engine: Engine, where: str) -> None:
    executor = engine.start()
    waiting = [executor.submit(time.sleep, LONG_JOB_IN_S) for _ in range(engine.jobs + 1)]
    began = time.monotonic()
    engine.stop(executor)
    took_in_s = time.monotonic() - began
    require(took_in_s < LONG_JOB_IN_S / 2, f"`stop` takes {took_in_s:.0f} s with a job under way", where=where)
    finished = [future for future in waiting if future.done() and not future.cancelled() and not future.exception()]
    require(not finished, "a job ended well although it was stopped", where=where)
    executor = engine.start()
    try:
        result = executor.submit(abs, -1).result(PATIENCE_IN_S)
    except Exception as error:
        raise CheckError(f"a new executor gives no result after `stop`: {error!r}", where=where) from None
    finally:
        engine.stop(executor)
    require(result == 1, "a new executor gives another result after `stop`", where=where)
