"""What differential privacy costs: the error of heads solved from noised sums, for several epsilons, on FD004."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.evaluation import EVERYONE
from fedprognos.experiment import config
from fedprognos.experiment.evaluator import errors, evaluation_windows, network_predictor
from fedprognos.experiment.scenario import Scenario, scenarios
from fedprognos.features import Recipe, WindowSet, build_windows, recipe_for
from fedprognos.federation.heads import judged_rounds
from fedprognos.federation.strategies import strategies
from fedprognos.files import write_json
from fedprognos.networks import Network
from fedprognos.networks.head import add_all, head_statistics, solve_head
from fedprognos.networks.torch_threads import one_torch_thread
from fedprognos.privacy.differential_privacy import Privacy, PrivacyOptions
from fedprognos.privacy.noise_mechanisms import Account
from fedprognos.privacy.noised_statistics import ada_ssp, add_noise, clipped_sums
from studies.poisoning import write_between
from studies.study.bench import Bench, scope_of

PRESET = "study-privacy"
PAGE, JSON = Path("docs/privacy.md"), Path("docs/results/privacy.json")
EPSILONS = (1.0, 3.0, 10.0, 30.0, 100.0)
DRAWS, SEEDS = 5, 3
"""Noise is drawn so many times for heads that are solved, and networks are trained so often; the table has the mean."""
RUNS = Path("build/privacy")
TRAINED = ("recipe.stride=50",)
"""Methods that train see fewer windows: every step takes the gradient of each."""


def write_privacy(
    data_dir: Path | None = None,
    *,
    out: Path = JSON,
    page: Path = PAGE,
    overrides: tuple[str, ...] = (),
    tell: Callable[[str], None] = print,
) -> Path:
    """Measure what the JSON lacks, and write it and the table of the page anew."""
    _, experiment, base = config.load(PRESET, overrides)
    measured: dict[str, Any] = json.loads(out.read_text("utf-8")) if out.is_file() else {}
    with one_torch_thread():
        for method in experiment.federation.methods:
            errors_by_rule = measured.setdefault(method, {})
            changes = (*overrides, *TRAINED) if strategies[method].trains else overrides
            _, changed, _ = config.load(PRESET, changes)
            (scenario,) = scenarios(changed, data_dir, base).values()
            recipe = recipe_for(changed.recipe, scenario.clients)
            if strategies[method].trains:
                for name, cell in _trained(changed, scenario, recipe, method, errors_by_rule):
                    errors_by_rule[name] = cell
                    tell(f"{method}, {name}: {cell}")
                    write_json(out, measured)
            elif not errors_by_rule:
                windows = {name: build_windows(recipe, fleet) for name, fleet in sorted(scenario.clients.items())}
                bench = Bench(changed, scenario, 0, RUNS, scope_of(scenario), agreed=recipe)
                (round_,) = strategies[method].run(bench.cohort(), bench.plan())
                (network,) = round_.models.values()
                errors_by_rule |= _measured(changed, scenario, recipe, network, windows)
                tell(f"{method}: {json.dumps(errors_by_rule)}")
                write_json(out, measured)
    if page.is_file():
        write_between(page, "privacy", table(measured))
    return out


def _trained(
    experiment: config.Experiment, scenario: Scenario, recipe: Recipe, method: str, known: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Mean errors over seeds of a method that trains, without noise and for every epsilon that is not known yet."""
    tests = evaluation_windows(scenario, recipe, experiment.evaluation)
    options = experiment.federation.privacy or PrivacyOptions(epsilon=1.0)
    rules: dict[str, PrivacyOptions | None] = {"none": None}
    for per, epsilon in product(("unit", "row"), EPSILONS):
        rules[f"{per} {epsilon:g}"] = options.model_copy(update={"per": per, "epsilon": epsilon})
    for name, rule in rules.items():
        if name in known:
            continue
        drawn, account = [], None
        for seed in range(SEEDS):
            federation = experiment.federation.model_copy(
                update={"privacy": rule, "methods": (method,), "heads": ("mean",)}
            )
            changed = experiment.model_copy(update={"federation": federation})
            bench = Bench(changed, scenario, seed, RUNS, scope_of(scenario), agreed=recipe)
            account = None if rule is None else rule.account(bench.plan().releases, masked=False)
            *_, last = judged_rounds(strategies[method], bench.cohort(), bench.plan())
            (heads,) = last.judged.values()
            raw, capped = errors(tests, tests.clients, network_predictor(heads["mean"].network, recipe))[EVERYONE]
            drawn.append((raw, raw if capped is None else capped))
        yield name, _cell(drawn, account)


def _cell(drawn: Sequence[tuple[float, float]], account: Account | None) -> dict[str, float]:
    raw, capped = np.mean(drawn, axis=0)
    cell = {"rmse": round(float(raw), 2), "rmse_capped": round(float(capped), 2)}
    if account is not None:
        spent = {"noise": round(account.noise, 4), "epsilon": round(account.epsilon, 3), "releases": account.releases}
        cell |= spent
    return cell


def _measured(
    experiment: config.Experiment,
    scenario: Scenario,
    recipe: Recipe,
    network: Network,
    windows: Mapping[str, WindowSet],
) -> dict[str, Any]:
    """Capped and raw test RMSE without noise, and for every epsilon per unit and per row."""
    tests = evaluation_windows(scenario, recipe, experiment.evaluation)

    def rmse(head: FloatArray) -> tuple[float, float]:
        predictor = network_predictor(network.with_head(head), recipe)
        raw, capped = errors(tests, tests.clients, predictor)[EVERYONE]
        return raw, raw if capped is None else capped

    columns = network.spec.features + 1
    plain = add_all(head_statistics(network, points, recipe) for points in windows.values())
    measured: dict[str, Any] = {
        "columns": columns,
        "none": _cell([rmse(solve_head(plain, experiment.federation.ridge))], None),
    }
    for per in ("unit", "row"):
        options = (experiment.federation.privacy or PrivacyOptions(epsilon=1.0)).model_copy(update={"per": per})
        bounds = Privacy.for_statistics(options, recipe, columns, 1)
        sums = [clipped_sums(network, w, recipe, bounds) for w in windows.values()]
        for epsilon in EPSILONS:
            privacy = Privacy.for_statistics(options.model_copy(update={"epsilon": epsilon}), recipe, columns, 1)
            drawn = []
            for draw in range(DRAWS):
                noised = [add_noise(errors_by_rule, privacy, 1000 * draw + k) for k, errors_by_rule in enumerate(sums)]
                drawn.append(rmse(ada_ssp(add_all(noised), privacy, len(noised))))
            account = options.model_copy(update={"epsilon": epsilon}).account(1, masked=False)
            measured[f"{per} {epsilon:g}"] = _cell(drawn, account)
    return measured


def table(measured: Mapping[str, Any]) -> str:
    """Capped RMSE by epsilon, one line a method and what is hidden."""
    names = [*(f"{epsilon:g}" for epsilon in EPSILONS), "∞"]
    lines = ["| | hidden | " + " | ".join(f"ε = {name}" for name in names) + " |", "|---|---|" + "---|" * len(names)]
    for method, errors_by_rule in measured.items():
        columns = f", {errors_by_rule['columns']} columns" if "columns" in errors_by_rule else ""
        for per in ("unit", "row"):
            keys = [*(f"{per} {epsilon:g}" for epsilon in EPSILONS), "none"]
            cells = [f"{errors_by_rule[key]['rmse_capped']:.1f}" if key in errors_by_rule else "" for key in keys]
            lines.append(f"| {strategies[method].label}{columns} | {per} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
