"""What every run on this machine stands on: its very data, a recipe all clients share, one torch thread."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from fedprognos.errors import FederationError
from fedprognos.experiment.events import Notice
from fedprognos.experiment.scenario import Scenario
from fedprognos.features import Recipe, make_recipe
from fedprognos.features.options import RecipeOptions
from fedprognos.federation.client_folder import Site
from fedprognos.federation.cohort import Cohort, gather
from fedprognos.federation.messages import Failure, SurveyReply, SurveyRequest


def data_digest(scenario: Scenario) -> str:
    """A digest of all data of a setting: results of other data must not be taken for these."""
    found = hashlib.blake2b(scenario.setting.encode(), digest_size=16)
    for name, fleet in (*sorted(scenario.clients.items()), *sorted(scenario.tests.items())):
        found.update(name.encode())
        for unit in fleet:
            found.update(f"{unit.id} {unit.failed} {unit.rul_at_end}".encode())
            for array in (unit.time, unit.sensors, unit.settings, unit.target, unit.cycles):
                if array is not None:
                    found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def surveyed_recipe(section: RecipeOptions, cohort: Cohort, sites: Mapping[str, Site]) -> Recipe:
    """The common recipe, from the moments every client tells; an error is shown in full, for all data is here."""

    def left_out(failure: Failure) -> None:
        raise FederationError(sites[failure.client].last_error() or failure.text, where=f"client {failure.client}")

    surveys = gather(cohort, dict.fromkeys(cohort.clients, SurveyRequest(section)), SurveyReply, None, left_out)
    return make_recipe(section, {name: reply.survey for name, reply in surveys.items()})


@contextmanager
def one_thread() -> Iterator[None]:
    """Work on one torch thread, whatever the machine: results must not depend on it."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def warnings_as_notices(tell: Callable[[Notice], None]) -> Iterator[None]:
    """Show each distinct warning about the data once, where the user looks."""
    seen: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        if str(message) not in seen and issubclass(category, UserWarning):
            seen.add(str(message))
            tell(Notice(str(message)))

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield
