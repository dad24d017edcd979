"""Prediction intervals on engines that nobody trained on, over draws of engines and owners.

Three quarters of a sub-set's training engines go through `init` and `run` (without the search, to save time); the rest
judge. NASA's test engines have no part in it, so that what intervals do could be chosen here.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedprognos.experiment.experiment_run import run
from fedprognos.features import build_windows
from fedprognos.fleet import Fleet, catalog
from fedprognos.networks import predict
from fedprognos.networks.calibration import USUAL_STRETCH
from fedprognos.tables.experiment_file import write_experiment
from fedprognos.tables.proposal import propose
from studies.cells import measure_missing, not_measured
from studies.markdown import number, table
from studies.own_tables import HEADER, NEAR, Case, fleet_table

RESULTS = Path("docs/results/intervals.json")
KEPT_OUT = 0.25
"""Share of the engines that judge."""
FROM_ROW, MOST_RUL = 30, 150
"""Moments that judge: NASA's test engines were cut off at such ones."""
COVERAGE = 0.9
PAGE = """\
# Intervals on engines that nobody trained on

Three quarters of the training engines of a sub-set, drawn by lot, are dealt to owners and taken through `fedprognos
init` and `fedprognos run` without the search. The other quarter judges, at every row after the first {first} with at
most {most} cycles left, each engine alike; labels are capped as in training. Nominal 90 %. A third of the predicted
range rests on 25 engines with FD001 and 62 with FD004. Jump: by how much a bound moves where the prediction moves by
one cycle. How far a measured stretch is drawn to what is usual was chosen on draws of this kind; NASA's test engines
(own-tables.md) had no part in it. Draws with another usual stretch than {usual} are those that it was chosen on: they
covered too much, and it was lowered.

`python -m studies intervals` measures what is missing and makes this page."""


@dataclass(frozen=True)
class Draw:
    """A draw of the engines that judge, and of the owners of the others."""

    subset: str
    by: str
    owners: int
    seed: int

    @property
    def key(self) -> str:
        return f"{self.subset} by {self.by}, {self.owners} owners, draw {self.seed}"


DRAWS = (
    *(Draw("FD001", "lot", 4, seed) for seed in range(4)),
    Draw("FD001", "size", 4, 4),
    Draw("FD001", "lifespan", 3, 5),
    Draw("FD001", "lot", 10, 6),
    *(Draw("FD004", "lot", 4, seed) for seed in range(2)),
    Draw("FD004", "size", 4, 2),
    Draw("FD004", "lifespan", 3, 3),
)


def write_intervals(data_dir: Path | None, runs: Path) -> Path:
    """Measure what is missing, and write the results and their page."""
    return measure_missing(RESULTS, DRAWS, lambda draw: measure(draw, data_dir, runs / draw.key), page)


def measure(draw: Draw, data_dir: Path | None, folder: Path) -> dict[str, Any]:
    """How the published model's intervals do on the engines kept out."""
    rng = np.random.default_rng([draw.seed, 7])
    source = catalog.find("cmapss", data_dir)
    frame = fleet_table(source / f"train_{draw.subset}.txt", Case(draw.subset, draw.by, draw.owners))
    engines = rng.permutation(frame["maschine"].unique())
    judges = frame["maschine"].isin(engines[: round(KEPT_OUT * len(engines))])
    folder.mkdir(parents=True, exist_ok=True)
    frame[~judges].to_csv(folder / "fleet.csv", index=False)
    document = tomllib.loads(
        write_experiment(propose(folder / "fleet.csv"), folder / "fleet.toml", force=True).read_text()
    )
    document["data"]["path"] = str((folder / "fleet.csv").resolve())
    document["federation"]["methods"], document["search"] = ["concat"], 0
    bundle = run(document, out=folder / "run", workers=1).bundle
    recipe, calibration = bundle.recipe, bundle.calibration
    if calibration is None or recipe.cap is None:
        return {"no_intervals": bundle.provenance.get("no_intervals", "no cap")}
    fleet = Fleet.from_frame(
        frame[judges],
        unit=HEADER[0],
        time=HEADER[1],
        time_measure=recipe.time_measure,
        sensors=list(recipe.sensors),
        settings=list(recipe.settings),
    )
    windows = build_windows(recipe, fleet, points="all")
    near_enough = np.flatnonzero((windows.position >= FROM_ROW) & (windows.labels <= MOST_RUL))
    windows = windows.select(near_enough)
    return scores(calibration, predict(bundle.network, windows, recipe), windows.labels, windows.unit, recipe.cap)


def scores(calibration: Any, prediction: Any, rul: Any, unit: Any, cap: float) -> dict[str, Any]:
    """Shares of labels inside, over all and by third of the predictions, and how wide the intervals are."""
    weight = 1 / np.bincount(unit)[unit]
    label = np.minimum(rul, cap)
    low, high = calibration.interval(prediction, COVERAGE)
    inside, order = (low <= label) & (label <= high), np.argsort(prediction, kind="stable")
    thirds = np.split(order, np.searchsorted(np.cumsum(weight[order]) / weight.sum(), [1 / 3, 2 / 3]))
    bounds = [np.minimum(ends, cap) for ends in calibration.interval(np.arange(0.0, cap + 1), COVERAGE)]
    near = rul <= NEAR
    return {
        "usual_stretch": USUAL_STRETCH,
        "covered": round(float(np.average(inside, weights=weight)), 3),
        "covered_by_third": [round(float(np.average(inside[k], weights=weight[k])), 3) for k in thirds],
        "width_at_rul_50_or_less": round(
            float(np.average((np.minimum(high, cap) - low)[near], weights=weight[near])), 2
        ),
        "largest_jump": round(max(float(np.abs(np.diff(ends)).max()) for ends in bounds), 2),
    }


def page(results: Mapping[str, Mapping[str, Any]]) -> str:
    """A row a draw, and the means of each sub-set."""
    rows = []
    for subset in dict.fromkeys(draw.subset for draw in DRAWS):
        of_subset = [(d, results[d.key]) for d in DRAWS if d.subset == subset and "covered" in results.get(d.key, {})]
        for draw, found in of_subset:
            rows.append(_row(draw.key, found["covered"], found["covered_by_third"], found))
        if of_subset:
            covered = float(np.mean([found["covered"] for _, found in of_subset]))
            thirds = np.mean([found["covered_by_third"] for _, found in of_subset], axis=0).tolist()
            keys = ("usual_stretch", "width_at_rul_50_or_less", "largest_jump")
            means = {key: float(np.mean([found[key] for _, found in of_subset])) for key in keys}
            rows.append(_row(f"**{subset}, mean of {len(of_subset)}**", covered, thirds, means))
    header = [
        "draw",
        "usual stretch",
        "covered, %",
        "by third of the prediction, %",
        "width at RUL 50 or less",
        "largest jump",
    ]
    missing = not_measured((draw.key for draw in DRAWS), results)
    text = PAGE.format(first=FROM_ROW, most=MOST_RUL, usual=USUAL_STRETCH)
    return "\n\n".join([text, table(header, rows), *missing]) + "\n"


def _row(name: str, covered: float, thirds: list[float], found: Mapping[str, float]) -> list[str]:
    shares = " / ".join(f"{100 * share:.0f}" for share in thirds)
    width, jump = number(found["width_at_rul_50_or_less"], 1), number(found["largest_jump"], 1)
    return [name, f"{found['usual_stretch']:g}", f"{100 * covered:.1f}", shares, width, jump]
