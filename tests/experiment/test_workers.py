from __future__ import annotations

import atexit
import contextlib
import shutil
import signal
import tempfile
from pathlib import Path

import numpy as np
import psutil
import pytest

from fedprognos.experiment.engines import OwnProcesses
from fedprognos.experiment.local_clients import WorkerTransport
from fedprognos.experiment.worker_pool import Workers
from fedprognos.features import SurveyTerms
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.cohort import MessageCohort
from fedprognos.federation.exchanges import Failure
from fedprognos.federation.exchanges.fit import FitReply, FitRequest
from fedprognos.federation.exchanges.survey import SurveyReply, SurveyRequest
from fedprognos.fleet import Fleet
from fedprognos.networks import Epoch, NetworkSpec
from fedprognos.networks.model_options import Training
from small_fleets import recipe_of, series_fleet

FLEETS = {name: series_fleet([60, 50], seed=k, name=name) for k, name in enumerate(("a", "b", "c"))}
RECIPE = recipe_of(FLEETS["a"], window=10, cap=30)
SPEC = NetworkSpec(inputs=2, widths=(4,))


FOLDER = Path(tempfile.mkdtemp(prefix="fedprognos-test-sites-"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)


def fleets_of(names: tuple[str, ...] = ("a", "b", "c")) -> dict[str, tuple[str, Fleet, ClientFolder]]:
    return {f"x/{name}": (name, FLEETS[name], ClientFolder(FOLDER / name)) for name in names}


def cohort_of(workers: Workers, **options: object) -> MessageCohort:
    return MessageCohort(WorkerTransport(workers, {name: f"x/{name}" for name in FLEETS}, **options))  # type: ignore[arg-type]


def fit_request(epochs: int = 2) -> FitRequest:
    return FitRequest(RECIPE, Training(epochs=epochs, learning_rate=0.01), 0.3, seed=5, spec=SPEC)


def children() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended a moment ago
            if "spawn_main" in " ".join(process.cmdline()):
                found.append(process)
    return found


@pytest.mark.long
def test_the_number_of_workers_changes_no_byte() -> None:
    weights = []
    for engine in (None, OwnProcesses(2)):
        with Workers(fleets_of(), engine) as workers:
            replies = cohort_of(workers).ask(dict.fromkeys(FLEETS, fit_request()))
            weights.append({n: r.weights for n, r in replies.items() if isinstance(r, FitReply)})
    assert weights[0].keys() == weights[1].keys() == FLEETS.keys()
    for name, tensors in weights[0].items():
        for tensor, array in tensors.items():
            np.testing.assert_array_equal(array, weights[1][name][tensor])


@pytest.mark.long
def test_epochs_are_reported_and_nothing_is_left_behind() -> None:
    seen: list[tuple[str, int]] = []
    with Workers(fleets_of(), OwnProcesses(2)) as workers:
        store = workers._store

        def on_epoch(client: str, epoch: Epoch) -> None:
            seen.append((client, epoch.epoch))

        cohort_of(workers, on_epoch=on_epoch).ask(dict.fromkeys(FLEETS, fit_request()))
        assert children()
    assert sorted(seen) == [(f"x/{n}", e) for n in "abc" for e in (1, 2)]
    assert not children()
    assert not store.exists()


@pytest.mark.soak
def test_the_job_of_a_killed_worker_is_done_again() -> None:
    with Workers(fleets_of(), OwnProcesses(2)) as workers:
        running: set[str] = set()
        killed: list[int] = []

        def on_epoch(key: str, epoch: Epoch) -> None:
            running.add(key)
            if len(running) == 2 and not killed:  # both workers are at work
                victim = next(iter(children()))
                killed.append(victim.pid)
                victim.send_signal(signal.SIGKILL)

        request = fit_request(epochs=40)
        replies = cohort_of(workers, on_epoch=on_epoch, timeout_in_s=120.0).ask(dict.fromkeys(FLEETS, request))
        assert killed
    with Workers(fleets_of(), None) as alone:
        undisturbed = cohort_of(alone).ask(dict.fromkeys(FLEETS, request))
    for name, reply in replies.items():
        expected = undisturbed[name]
        assert isinstance(reply, FitReply)
        assert isinstance(expected, FitReply)
        for tensor, array in expected.weights.items():
            np.testing.assert_array_equal(array, reply.weights[tensor])


@pytest.mark.soak
def test_a_job_that_kills_its_worker_again_and_again_is_given_up() -> None:
    with Workers(fleets_of(), OwnProcesses(2)) as workers:

        def on_epoch(key: str, epoch: Epoch) -> None:
            for child in children():
                child.send_signal(signal.SIGKILL)

        lost = cohort_of(workers, on_epoch=on_epoch).ask({"a": fit_request(epochs=10_000)})["a"]
        assert isinstance(lost, Failure)
        assert lost.code == "worker"
        again = cohort_of(workers).ask(dict.fromkeys(FLEETS, fit_request()))
        assert all(isinstance(r, FitReply) for r in again.values())


@pytest.mark.soak
def test_a_client_that_takes_too_long_is_left_out() -> None:
    with Workers(fleets_of(), OwnProcesses(2)) as workers:
        cohort = cohort_of(workers, timeout_in_s=8.0)
        replies = cohort.ask({"a": fit_request(epochs=10_000), "b": fit_request()})
        assert isinstance(replies["a"], Failure)
        assert replies["a"].code == "worker"
        assert "8 s" in replies["a"].text
        assert isinstance(replies["b"], FitReply)


def test_a_failing_client_answers_with_a_failure() -> None:
    wrong = FitRequest(RECIPE.model_copy(update={"sensors": ("speed", "noise")}), Training(epochs=1), 0.2, 0, spec=SPEC)
    with Workers(fleets_of(), None) as workers:
        replies = cohort_of(workers).ask({"a": wrong, "b": fit_request()})
    assert isinstance(replies["a"], Failure)
    assert replies["a"].code == "recipe"
    assert isinstance(replies["b"], FitReply)


def test_a_request_cannot_lower_the_owners_floor() -> None:
    tiny = series_fleet([12], conditions=1, name="tiny")
    with Workers({"x/tiny": ("tiny", tiny, ClientFolder(FOLDER / "tiny"))}, None) as workers:
        cohort = MessageCohort(WorkerTransport(workers, {"tiny": "x/tiny"}))
        reply = cohort.ask({"tiny": SurveyRequest(SurveyTerms())})["tiny"]
    assert isinstance(reply, Failure)
    assert not isinstance(reply, SurveyReply)
