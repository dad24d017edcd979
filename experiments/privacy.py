"""What differential privacy costs: the error of heads solved from noised sums, for several epsilons, on FD004."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.poisoning import write_between
from fedprognos.arrays import FloatArray
from fedprognos.evaluation import EVERYONE
from fedprognos.experiment import config
from fedprognos.experiment.assess import errors, evaluation_windows
from fedprognos.experiment.job import plan_of
from fedprognos.experiment.scenario import Scenario, scenarios
from fedprognos.features import Recipe, WindowSet, build_windows, recipe_for
from fedprognos.federation.privacy import Privacy, PrivacyOptions, epsilon_of
from fedprognos.federation.privacy.statistics import ada_ssp, add_noise, clipped_sums
from fedprognos.federation.strategies import strategies
from fedprognos.files import write_json
from fedprognos.networks import Network
from fedprognos.networks.head import add_all, head_statistics, solve_head
from fedprognos.networks.running import pieces
from fedprognos.networks.threads import one_torch_thread

PRESET = "study-privacy"
PAGE, JSON = Path("docs/privacy.md"), Path("docs/results/privacy.json")
EPSILONS = (1.0, 3.0, 10.0, 30.0, 100.0)
DRAWS = 5
"""Noise is drawn so many times; the table has the mean."""


@dataclass(frozen=True)
class _Names:
    """A cohort of which strategies that train nothing need the names only."""

    clients: tuple[str, ...]


def write_privacy(
    data_dir: Path | None = None,
    *,
    out: Path = JSON,
    page: Path = PAGE,
    overrides: tuple[str, ...] = (),
    tell: Callable[[str], None] = print,
) -> Path:
    """Measure, and write the JSON and the table of the page anew."""
    _, experiment, base = config.load(PRESET, overrides)
    (scenario,) = scenarios(experiment, data_dir, base).values()
    recipe = recipe_for(experiment.recipe, scenario.clients)
    found: dict[str, Any] = {}
    with one_torch_thread():
        windows = {name: build_windows(recipe, fleet) for name, fleet in sorted(scenario.clients.items())}
        for method in experiment.federation.methods:
            plan = plan_of(experiment, recipe, 0)
            (round_,) = strategies[method].run(_Names(tuple(windows)), plan)  # type: ignore[arg-type]
            (network,) = round_.models.values()
            found[method] = _measured(experiment, scenario, recipe, network, windows)
            tell(f"{method}: {json.dumps(found[method])}")
    write_json(out, found)
    if page.is_file():
        write_between(page, "privacy", table(found))
    return out


def _measured(
    experiment: config.Experiment,
    scenario: Scenario,
    recipe: Recipe,
    network: Network,
    windows: Mapping[str, WindowSet],
) -> dict[str, Any]:
    """Capped and raw test RMSE without noise, and for every epsilon per unit and per row."""
    tests = evaluation_windows(scenario, recipe, experiment.evaluation)
    seen = {id(w): _features(network, w) for w in tests.scored.values()}

    def rmse(head: FloatArray) -> tuple[float, float]:
        def predictor(points: WindowSet, _: str) -> FloatArray:
            return recipe.decode(seen[id(points)] @ head)

        raw, capped = errors(tests, tests.clients, predictor)[EVERYONE]
        return raw, raw if capped is None else capped

    columns = network.spec.features + 1
    plain = add_all(head_statistics(network, points, recipe) for points in windows.values())
    raw, capped = rmse(solve_head(plain, experiment.federation.ridge))
    found: dict[str, Any] = {"columns": columns, "none": {"rmse": round(raw, 2), "rmse_capped": round(capped, 2)}}
    for per in ("unit", "row"):
        options = (experiment.federation.privacy or PrivacyOptions(epsilon=1.0)).model_copy(update={"per": per})
        sums = [clipped_sums(network, w, recipe, Privacy.of(options, recipe, columns, 1)) for w in windows.values()]
        for epsilon in EPSILONS:
            privacy = Privacy.of(options.model_copy(update={"epsilon": epsilon}), recipe, columns, 1)
            drawn = []
            for draw in range(DRAWS):
                noised = [add_noise(one, privacy, 1000 * draw + k) for k, one in enumerate(sums)]
                drawn.append(rmse(ada_ssp(add_all(noised), privacy, len(noised))))
            raw, capped = np.mean(drawn, axis=0)
            spent = epsilon_of(privacy.noise, 1, options.delta)
            found[f"{per} {epsilon:g}"] = {
                "rmse": round(float(raw), 2),
                "rmse_capped": round(float(capped), 2),
                "noise": round(privacy.noise, 4),
                "epsilon": round(spent, 3),
            }
    return found


def _features(network: Network, windows: WindowSet) -> FloatArray:
    """All that the head sees of every point, with a column of ones last."""
    found = np.ones((len(windows), network.spec.features + 1))
    module = network.module().eval()
    with module.in_blocks():
        for piece in pieces(module, windows):
            found[piece.index, :-1] = piece.features()
    return found


def table(found: Mapping[str, Any]) -> str:
    """Capped RMSE by method and epsilon."""
    heads = ["none", *(f"{per} {epsilon:g}" for per in ("row", "unit") for epsilon in EPSILONS)]
    names = ["no noise", *(f"{h.split()[0]}, ε = {h.split()[1]}" for h in heads[1:])]
    lines = ["| | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for method, one in found.items():
        cells = " | ".join(f"{one[head]['rmse_capped']:.1f}" for head in heads)
        lines.append(f"| {strategies[method].label}, {one['columns']} columns | {cells} |")
    return "\n".join(lines) + "\n"
