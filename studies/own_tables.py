"""Own tables: C-MAPSS as a user would bring it, taken through `init`, `run` and the published model untouched.

A sub-set becomes a plain CSV with German column names and an owner a row. The experiment that `init` writes is run as
it stands. NASA's test engines, labels capped at 125, judge the published model; nothing is chosen on them. Gradient
boosting on rolling features stands beside it: what somebody writes by hand in an hour, with all data in one place.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fedprognos.experiment.experiment_run import run
from fedprognos.files import read_json, write_json
from fedprognos.fleet import Fleet, catalog
from fedprognos.networks import Bundle
from fedprognos.prognosis import Predictor
from fedprognos.tables.experiment_file import write_experiment
from fedprognos.tables.proposal import propose

CAP = 125.0
"""What published tables cap labels at."""
LATE = 30.0
"""Remaining cycles from which on an error matters most."""
LOTS = (0.38, 0.29, 0.22, 0.11)
"""Shares of the engines that four owners have."""
ROLLING = 20
"""Rows that boosting looks back."""
HEADER = ("maschine", "zyklus", "hoehe", "machzahl", "hebel", *(f"messstelle_{k:02d}" for k in range(1, 22)))
RESULTS = Path("docs/results/own-tables.json")


@dataclass(frozen=True)
class Case:
    """A sub-set and how its engines are dealt out: by lot, by size (each owner has twice as many as the next), or by
    lifespan."""

    subset: str
    by: str
    owners: int

    @property
    def name(self) -> str:
        return f"{self.subset} by {self.by}, {self.owners} owners"


CASES = (
    Case("FD001", "lot", 4),
    Case("FD004", "lot", 4),
    Case("FD001", "lifespan", 3),
    Case("FD004", "lifespan", 3),
    Case("FD001", "lot", 10),
    Case("FD001", "size", 4),
    Case("FD001", "lot", 30),
    Case("FD004", "lot", 30),
)
"""In the order of what they say."""


def write_own_tables(data_dir: Path | None, runs: Path, workers: int | None = None) -> Path:
    """Run every case that is not in the results yet, and write them."""
    results = read_json(RESULTS) if RESULTS.is_file() else {}
    for case in CASES:
        if case.name not in results:
            results[case.name] = measure(case, data_dir, runs / case.name.replace(", ", " ").replace(" ", "-"), workers)
            write_json(RESULTS, results)
    return RESULTS


def measure(case: Case, data_dir: Path | None, folder: Path, workers: int | None) -> dict[str, object]:
    """The error of the published model on NASA's test engines, and what the run itself said."""
    source = catalog.find("cmapss", data_dir)
    folder.mkdir(parents=True, exist_ok=True)
    table(source / f"train_{case.subset}.txt", case).to_csv(folder / "fleet.csv", index=False)
    experiment = write_experiment(propose(folder / "fleet.csv"), folder / "fleet.toml", force=True)
    began = time.monotonic()
    finished = run(experiment, out=folder / "run", workers=workers)
    seconds = time.monotonic() - began
    rul = np.loadtxt(source / f"RUL_{case.subset}.txt")
    engines = table(source / f"test_{case.subset}.txt", case)
    return {
        **errors(predicted(finished.bundle, engines), rul),
        "boosting": errors(boosted(table(source / f"train_{case.subset}.txt", case), engines), rul),
        "method": finished.results.published,
        "sensors": list(finished.bundle.recipe.sensors),
        "choices": {o: c["kind"] for o, c in finished.bundle.provenance.get("choices", {}).items()},
        "seconds": round(seconds),
    }


def table(path: Path, case: Case) -> pd.DataFrame:
    """The rows of a C-MAPSS file under other names, with an owner each."""
    frame = pd.DataFrame(np.loadtxt(path), columns=list(HEADER))
    frame["maschine"] = frame["maschine"].astype(int).map("M{:03d}".format)
    frame["zyklus"] = frame["zyklus"].astype(int)
    lives = frame.groupby("maschine").size()
    if case.by == "lot":
        order = np.random.default_rng(0).permutation(lives.index.to_numpy())
        shares = LOTS if case.owners == len(LOTS) else [1 / case.owners] * case.owners
        parts = np.split(order, np.round(np.cumsum(shares)[:-1] * len(order)).astype(int))
    elif case.by == "size":
        order = np.random.default_rng(0).permutation(lives.index.to_numpy())
        halves = 2.0 ** -np.arange(case.owners)
        parts = np.split(order, np.round(np.cumsum(halves / halves.sum())[:-1] * len(order)).astype(int))
    else:
        parts = np.array_split(lives.sort_values(kind="stable").index.to_numpy(), case.owners)
    owner = {unit: f"werk-{k + 1:02d}" for k, part in enumerate(parts) for unit in part}
    return frame.assign(betreiber=frame["maschine"].map(owner))


def predicted(bundle: Bundle, engines: pd.DataFrame) -> np.ndarray:
    """Remaining life at the last row of every engine."""
    recipe = bundle.recipe
    fleet = Fleet.from_frame(
        engines,
        unit="maschine",
        time="zyklus",
        time_measure=recipe.time_measure,
        sensors=list(recipe.sensors),
        settings=list(recipe.settings),
        require_labels=False,
    )
    health = {h.unit: float(h.value or 0.0) for h in Predictor.from_bundle(bundle).predict(fleet)}
    return np.array([health[unit] for unit in engines["maschine"].drop_duplicates()])


def boosted(train: pd.DataFrame, engines: pd.DataFrame) -> np.ndarray:
    """The same by gradient boosting on the latest row, rolling means and deviations of every column, and the age."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    def features(frame: pd.DataFrame) -> pd.DataFrame:
        columns = list(HEADER[2:])
        rolling = frame.groupby("maschine", sort=False)[columns].rolling(ROLLING, min_periods=1)
        parts = [frame[[*HEADER[1:]]], rolling.mean().droplevel(0).add_suffix("_mean")]
        return pd.concat([*parts, rolling.std().fillna(0.0).droplevel(0).add_suffix("_std")], axis=1)

    last = train.groupby("maschine")["zyklus"].transform("max")
    model = HistGradientBoostingRegressor(random_state=0).fit(features(train), (last - train["zyklus"]).clip(upper=CAP))
    latest = engines.groupby("maschine", sort=False)["zyklus"].idxmax()
    return np.asarray(model.predict(features(engines).loc[latest]))


def errors(prediction: np.ndarray, rul: np.ndarray) -> dict[str, float]:
    """RMSE and NASA's score, labels capped."""
    error = np.minimum(prediction, CAP) - np.minimum(rul, CAP)
    score = np.where(error < 0, np.exp(-error / 13), np.exp(error / 10)) - 1
    return {
        "rmse_capped": round(float(np.sqrt(np.mean(error**2))), 3),
        "rmse_capped_at_rul_30_or_less": round(float(np.sqrt(np.mean(error[rul <= LATE] ** 2))), 3),
        "bias": round(float(error.mean()), 3),
        "nasa_score_capped": round(float(score.sum()), 1),
    }
