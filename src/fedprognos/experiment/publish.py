"""The end of a run: which method's model is the one to use, and its results in a folder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedprognos import __version__
from fedprognos.evaluation import Results
from fedprognos.experiment.config import Experiment
from fedprognos.experiment.events import JobKey
from fedprognos.experiment.methods import methods_of
from fedprognos.experiment.run_folder import JobRecord, RunFolder
from fedprognos.federation.strategies import strategies
from fedprognos.files import write_json
from fedprognos.networks import Bundle


@dataclass(frozen=True)
class Published:
    """A method, and in one sentence why it was chosen."""

    method: str
    reason: str


def published(experiment: Experiment, records: Mapping[JobKey, JobRecord], scenario: str) -> Published:
    """The federated method with the lowest validation error in a scenario, mean over seeds.

    Where training kept nothing out, or nothing federated was run, the last in the strategies' order is taken: federated
    before central, central before local.
    """
    methods = experiment.federation.methods
    federated = [m for m in methods if strategies[m].federated]
    errors = {m: _validation(experiment, records, scenario, m) for m in federated}
    known = {m: e for m, e in errors.items() if e is not None}
    if len(federated) == 1:
        return Published(federated[0], "it is the only federated method of this run")
    if known:
        best = min(known, key=lambda m: (known[m], -strategies[m].order))
        others = sorted((e, m) for m, e in known.items() if m != best)
        against = f"; next is {strategies[others[0][1]].label} with {others[0][0]:.4g}" if others else ""
        return Published(best, f"its validation error is the lowest: {known[best]:.4g}{against}")
    first = default_method(methods)
    return Published(first, "training kept nothing out to choose by, so the experiment's preferred method is taken")


def conclude(
    folder: RunFolder,
    name: str,
    experiment: Experiment,
    records: Mapping[JobKey, JobRecord],
    chosen: Published,
    clients: Mapping[str, Sequence[str]],
) -> tuple[Results, Bundle]:
    """Write `results.json` and the bundle to use: everybody's, or the first client's own where nothing is shared."""
    rows = tuple(row for record in records.values() for row in record.rows)
    history = tuple(row for record in records.values() for row in record.history)
    about = (methods_of(rows), chosen.method, chosen.reason)
    results = Results(name, __version__, experiment.dump(), rows, history, *about)
    scenario = next(iter(clients))
    owner = None if strategies[chosen.method].shared else min(clients[scenario])
    bundle = folder.publish(folder.bundle(JobKey(scenario, chosen.method, 0), owner))
    write_json(folder.path / "results.json", results.as_dict())
    return results, Bundle.load(bundle)


def default_method(methods: tuple[str, ...]) -> str:
    """The method to use where no error can decide."""
    return max((strategies[m] for m in methods), key=lambda s: (s.federated, s.shared, s.order)).name


def _validation(
    experiment: Experiment, records: Mapping[JobKey, JobRecord], scenario: str, method: str
) -> float | None:
    """Validation error of the round that was kept, with the first head, mean over seeds."""
    wanted = experiment.federation.heads[0]
    head = "exact" if wanted == "personal" else wanted
    found: dict[int, list[float]] = defaultdict(list)
    for key, record in records.items():
        if key.scenario == scenario and key.method == method:
            for row in record.history:
                if row.epoch is None and row.head == head and row.validation_rmse is not None:
                    found[key.seed].append(row.validation_rmse)
    return float(np.mean([min(errors) for errors in found.values()])) if found else None
