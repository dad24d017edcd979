"""How strongly battery heads should be held back, judged on training cycles alone.

The capacity of the test cycles is an extrapolation, so the judge is one too: networks and heads learn from the first
part of each battery's training cycles and predict the rest of them. No test cycle is read. The strength with the
lowest root mean square over batteries, cuts and seeds is the one to put into the preset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from experiments.places import RIDGE, Places
from fedprognos.experiment import config
from fedprognos.experiment.scenario import scenarios
from fedprognos.features import Recipe, WindowSet, build_windows, recipe_for
from fedprognos.files import write_json
from fedprognos.fleet import Fleet, split
from fedprognos.networks import Network, NetworkSpec, fit
from fedprognos.networks.head import HeadStatistics, mean_squared_error, own_level, solve_within

PRESET = "battery-tuned"
CUTS = (0.75, 0.9)
"""Share of the training cycles that is learnt from."""
STRENGTHS = tuple(10.0 ** (k / 2) for k in range(-14, -3))
SEEDS = 4


def write_ridge(where: Places, data_dir: Path | None = None, tell: Callable[[str], None] = print) -> float:
    """Measure every strength, write the table, return the best one."""
    (preset,) = (p for p in where.presets if p.startswith(PRESET))
    _, experiment, folder = config.load(preset)
    torch.set_num_threads(1)
    fleets = scenarios(experiment, data_dir, folder)["all"].clients
    errors: dict[str, list[float]] = {f"{s:.2e}": [] for s in STRENGTHS}
    for cut in CUTS:
        for seed in range(min(SEEDS, experiment.evaluation.seeds)):
            for strength, found in _errors(experiment, fleets, cut, seed).items():
                errors[f"{strength:.2e}"] += found
            tell(f"first {cut:.0%} of the training cycles, seed {seed}: done")
    table = {strength: float(np.sqrt(np.mean(np.square(found)))) for strength, found in errors.items()}
    best = min(table, key=lambda strength: table[strength])
    write_json(where.folder / RIDGE, {"cuts": list(CUTS), "rmse_by_strength": table, "best": best})
    return float(best)


def _errors(
    experiment: config.Experiment, fleets: Mapping[str, Fleet], cut: float, seed: int
) -> dict[float, list[float]]:
    """RMSE of each battery's later training cycles, by strength, in Ah."""
    parts = {name: split.split_cycles(fleet, cut) for name, fleet in fleets.items()}
    recipe = recipe_for(experiment.recipe, {name: early for name, (early, _) in parts.items()})
    early = [build_windows(recipe, parts[name][0]) for name in sorted(parts)]
    late = [build_windows(recipe, parts[name][1]) for name in sorted(parts)]
    bodies = [_body(experiment, recipe, windows, 1000 * seed + k) for k, windows in enumerate(early)]
    learnt = [_side_by_side(bodies, windows, recipe) for windows in early]
    judged = [_side_by_side(bodies, windows, recipe) for windows in late]
    found = {}
    for strength in STRENGTHS:
        shared = solve_within(learnt, strength)
        squares = [mean_squared_error(j, own_level(e, shared)) for e, j in zip(learnt, judged, strict=True)]
        found[strength] = [float(np.sqrt(s)) * recipe.label_std for s in squares]
    return found


def _body(experiment: config.Experiment, recipe: Recipe, windows: WindowSet, seed: int) -> Network:
    section = experiment.model
    spec = NetworkSpec(
        inputs=recipe.channels, widths=section.widths, cell=section.cell, input_width=section.input_width
    )
    start = Network.seeded(spec, seed, float(recipe.encode(windows.labels).mean()))
    return fit(start, windows, None, recipe, experiment.train.training(), seed=seed).network


def _side_by_side(bodies: Sequence[Network], windows: WindowSet, recipe: Recipe) -> HeadStatistics:
    """Head statistics of several networks' features in one, as `concat` has them."""
    with torch.no_grad():
        inputs = torch.from_numpy(windows.batch(np.arange(len(windows))))
        features = [b.module().run(inputs, 0, b.spec.layers - 1).numpy().astype(np.float64) for b in bodies]
    h = np.concatenate([*features, np.ones((len(windows), 1))], axis=1)
    y = recipe.encode(windows.labels)
    return HeadStatistics(len(y), float(y @ y), h.T @ h, h.T @ y)
