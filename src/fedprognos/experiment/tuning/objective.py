"""The objective of a search: whose error on which data is to become small."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedprognos.errors import ConfigError, unknown_name
from fedprognos.experiment import config
from fedprognos.experiment.run import data_digest
from fedprognos.experiment.scenario import Scenario
from fedprognos.experiment.tuning.space import Space
from fedprognos.experiment.tuning.trial_runner import judging_head
from fedprognos.federation.strategies import strategies


@dataclass(frozen=True)
class Objective:
    """A method in a scenario of an experiment, judged over some seeds."""

    name: str
    experiment: config.Experiment
    base: Path
    method: str
    scenario: str
    seeds: int
    seed: int

    @classmethod
    def of(
        cls,
        name: str,
        experiment: config.Experiment,
        base: Path,
        method: str | None,
        scenario: str | None,
        seeds: int,
        seed: int,
    ) -> Objective:
        federated = [m for m in experiment.federation.methods if strategies[m].federated]
        chosen = method or next(iter(federated), "central")
        where = scenario or next(iter(experiment.partition))
        strategies[chosen]
        if where not in experiment.partition:
            raise unknown_name("scenario", where, experiment.partition)
        if experiment.federation.start == "bundles":
            raise ConfigError(
                "federation.start = 'bundles': the models are there already, nothing is left to search",
                hint="set federation.start = 'train'",
            )
        return cls(name, experiment, base, chosen, where, seeds, seed)

    def identity(self, scenario: Scenario, space: Space) -> dict[str, Any]:
        """All that decides a trial's result. What is measured afterwards does not."""
        document = {k: v for k, v in self.experiment.dump().items() if k not in ("title", "evaluation")}
        digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
        return {
            "experiment": digest,
            "data": data_digest(scenario),
            "method": self.method,
            "scenario": self.scenario,
            "number of seeds": self.seeds,
            "seed": self.seed,
            "space": space,
        }

    def in_words(self, measure: str) -> str:
        """In words, what is made small."""
        head = judging_head(self.experiment)
        return f"validation RMSE in {measure} of {self.method} with the {head} head, scenario {self.scenario}"
