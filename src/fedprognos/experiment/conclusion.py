"""The end of a run: what its methods are called, whose model is the one to use, and the results in the folder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedprognos import __version__
from fedprognos.evaluation import Method, ResultRow, Results, baselines
from fedprognos.experiment.config import Experiment
from fedprognos.experiment.run_events import MEAN_OF_LOCALS, JobKey
from fedprognos.experiment.run_folder import JobRecord, RunFolder
from fedprognos.federation.strategies import Strategy, strategies
from fedprognos.files import write_json
from fedprognos.networks import Bundle


@dataclass(frozen=True)
class Published:
    """A method, and in one sentence why it was chosen."""

    method: str
    reason: str


def published(experiment: Experiment, records: Mapping[JobKey, JobRecord], scenario: str) -> Published:
    """The federated method with the lowest validation error in a scenario, mean over seeds.

    If training kept nothing out, or nothing federated was run, a federated method is preferred to central training, and
    that to local training; among equals the last in the strategies' order. Methods without records were refused by
    clients; the reason names them.
    """
    present = {key.method for key in records if key.scenario == scenario}
    methods = tuple(method for method in experiment.federation.methods if method in present)
    refused = [strategies[method].label for method in experiment.federation.methods if method not in present]
    method, reason = _best(experiment, records, scenario, methods)
    return Published(method, reason if not refused else f"{reason}. Clients' floors refused: {', '.join(refused)}")


def _best(
    experiment: Experiment, records: Mapping[JobKey, JobRecord], scenario: str, methods: tuple[str, ...]
) -> tuple[str, str]:
    """The method to publish, and why."""
    federated = [m for m in methods if strategies[m].federated]
    errors = {m: _validation(experiment, records, scenario, m) for m in federated}
    validated = {m: e for m, e in errors.items() if e is not None}
    if len(federated) == 1:
        return federated[0], "it is the only federated method of this run"
    if validated:
        best = min(validated, key=lambda m: (validated[m], -strategies[m].order))
        others = sorted((e, m) for m, e in validated.items() if m != best)
        against = f"; next is {strategies[others[0][1]].label} with {others[0][0]:.4g}" if others else ""
        return best, f"its validation error is the lowest: {validated[best]:.4g}{against}"
    reason = "training kept nothing out to choose by, so the experiment's preferred method is taken"
    return default_method(methods), reason


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
    errors: dict[int, list[float]] = defaultdict(list)
    for key, record in records.items():
        if key.scenario == scenario and key.method == method:
            for row in record.history:
                if row.epoch is None and row.head == head and row.validation_rmse is not None:
                    errors[key.seed].append(row.validation_rmse)
    return float(np.mean([min(rounds) for rounds in errors.values()])) if errors else None


def all_methods() -> dict[str, Method]:
    """Labels, order and kind of everything that can make rows, in order."""
    methods = {name: Method(label=b.label, order=b.order, kind="baseline") for name, b in baselines.items()}
    methods |= {name: _method(strategy) for name, strategy in strategies.items()}
    methods[MEAN_OF_LOCALS] = Method(label="Mean of locals", order=strategies["local"].order + 5, kind="local")
    return dict(sorted(methods.items(), key=lambda item: item[1].order))


def methods_of(rows: Iterable[ResultRow]) -> dict[str, Method]:
    """The methods that rows are about."""
    named = {row.method.partition("+")[0] for row in rows}
    return {name: method for name, method in all_methods().items() if name in named}


def _method(strategy: Strategy) -> Method:
    kind = "federated" if strategy.federated else "central" if strategy.pooled else "local"
    return Method(label=strategy.label, order=strategy.order, kind=kind)
