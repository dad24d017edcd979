"""The recipe is found on training units kept out: within a budget of steps, recorded, and the same when repeated."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedprognos.errors import ConfigError
from fedprognos.experiment import Run, config
from fedprognos.experiment.experiment_run import run
from fedprognos.experiment.recipe_search import CHOSEN_FILE, FILE, SearchRecord, Trial, candidates, changed
from fedprognos.experiment.run_events import EpochDone, Event, RecipeTried
from fedprognos.files import read_json
from fedprognos.report import read_run
from fedprognos.report.sections import sections


def fleet(path: Path, noise: float) -> Path:
    rng = np.random.default_rng(0)
    lives = []
    for k in range(24):
        rows = int(rng.integers(30, 50))
        wear = (np.arange(rows) / rows) ** 2
        heat = 30 * wear + noise * rng.normal(size=rows)
        life = {"machine": f"m{k:02d}", "hour": np.arange(1, rows + 1), "heat": heat,
                "strain": -wear + 0.1 * noise * rng.normal(size=rows), "noise": rng.normal(size=rows),
                "plant": f"plant-{k % 2}"}  # fmt: skip
        lives.append(pd.DataFrame(life))
    pd.concat(lives).to_csv(path, index=False)
    return path


def experiment(folder: Path, noise: float = 1.0, **more: object) -> dict[str, object]:
    return {
        "data": {"kind": "table", "path": str(fleet(folder / "fleet.csv", noise)), "unit": "machine", "time": "hour",
                 "sensors": ["heat", "strain", "noise"], "site": "plant"},
        "partition": {"by": "column", "column": "site"},
        "recipe": {"history": "life", "cap": 25.0, "columns": "wear"},
        "model": {"widths": [4]},
        "train": {"steps": 8, "validation_fraction": 0.25},
        "federation": {"methods": ["local", "concat"], "heads": ["exact"]},
        "evaluation": {"seeds": 1, "bootstrap": 0, "intervals": "none"},
        **more,
    }  # fmt: skip


def test_columns_without_wear_are_left_out_and_nothing_else_is_searched(tmp_path: Path) -> None:
    finished = run(experiment(tmp_path), out=tmp_path / "run", workers=1)
    assert finished.bundle.recipe.sensors == ("heat", "strain")
    assert not (finished.folder / FILE).exists()


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, object], Run, int]:
    """An experiment with a search, its run, and the epochs that were trained."""
    folder, trained = tmp_path_factory.mktemp("searched"), []
    document = experiment(folder, search=400)

    def count(event: Event) -> None:
        trained.append(isinstance(event, EpochDone))

    return document, run(document, out=folder / "run", workers=1, observers=[count]), sum(trained)


@pytest.mark.long
def test_a_search_stays_in_its_budget_and_can_be_repeated(
    tmp_path: Path, searched: tuple[dict[str, object], Run, int]
) -> None:
    document, first, _ = searched
    runs = [first, run(document, out=tmp_path / "again", workers=1)]
    records = [SearchRecord.from_dict(read_json(finished.folder / FILE)) for finished in runs]
    assert records[0] == records[1]
    record = records[0]
    assert record.budget_in_steps == 400
    assert {trial.label for trial in record.trials} > {"as proposed", "all columns"}
    assert sum(2 * trial.steps for trial in record.trials) <= 400
    assert record.trials[0].steps == 2
    assert all((a.folder / "results.json").read_bytes() == (b.folder / "results.json").read_bytes()
               for a, b in [tuple(runs)])  # fmt: skip
    assert runs[0].results.config["train"]["steps"] == record.steps
    frozen = config.load(runs[0].folder / CHOSEN_FILE)[1]
    assert frozen.search == 0
    frozen_run = run(runs[0].folder / CHOSEN_FILE, out=tmp_path / "frozen", workers=1)
    assert frozen_run.results.rows == runs[0].results.rows


class KilledError(Exception):
    """The process was killed."""


@pytest.mark.long
def test_a_search_that_was_killed_goes_on(tmp_path: Path, searched: tuple[dict[str, object], Run, int]) -> None:
    trained: list[EpochDone] = []

    def killed_at_third(event: Event) -> None:
        if isinstance(event, RecipeTried) and event.text.startswith("less noise"):
            raise KilledError

    def count(event: Event) -> None:
        if isinstance(event, EpochDone):
            trained.append(event)

    document, whole, epochs = searched
    with pytest.raises(KilledError):
        run(document, out=tmp_path / "killed", workers=1, observers=[killed_at_third])
    resumed = run(document, out=tmp_path / "killed", workers=1, observers=[count])
    assert len(trained) < epochs
    for name in (FILE, "results.json"):
        assert (resumed.folder / name).read_bytes() == (whole.folder / name).read_bytes()


@pytest.mark.long
def test_a_poor_recipe_is_left_for_a_better_one(tmp_path: Path) -> None:
    """Two noisy rows say little of wear; longer histories say more, and the search takes them."""
    recipe, train = {"history": 2, "cap": 25.0}, {"steps": 60, "learning_rate": 0.01, "validation_fraction": 0.25}
    runs = [
        run(
            experiment(tmp_path, 8.0, search=budget, recipe=recipe, train=train),
            out=tmp_path / str(budget),
            workers=1,
        )
        for budget in (0, 8000)
    ]
    record = SearchRecord.from_dict(read_json(runs[1].folder / FILE))
    trials = {trial.label: trial for trial in record.trials}
    assert trials[record.chosen].beats(trials["as proposed"])
    assert set(trials[record.chosen].votes) == {"plant-0", "plant-1"}
    errors = [next(row.scores["rmse_capped"] for row in finished.results.rows
                   if row.method == "concat" and row.test_client == "all") for finished in runs]  # fmt: skip
    assert errors[0] is not None and errors[1] is not None
    assert errors[1] < 0.95 * errors[0]
    shown = sections["search"].build(read_run(runs[1].folder)[0])
    assert record.chosen in shown.lead
    assert [line.name for line in shown.tables[0].lines] == [trial.label for trial in record.trials]
    assert not sections["search"].applies(read_run(runs[0].folder)[0])


def test_a_change_needs_more_than_chance_and_more_sites_than_not() -> None:
    proposed = Trial("as proposed", 10, 10.0, {"a": 10.0, "b": 10.0, "c": 10.0})
    assert Trial("x", 10, 9.0, {"a": 9.0, "b": 9.0, "c": 11.0}).beats(proposed)
    assert not Trial("x", 10, 9.9, {"a": 9.0, "b": 9.0, "c": 11.0}).beats(proposed)
    assert not Trial("x", 10, 9.0, {"a": 1.0, "b": 11.0, "c": 11.0}).beats(proposed)
    assert not Trial("x", 10, None).beats(proposed)


def test_minutes_become_steps_that_a_resumed_run_keeps(tmp_path: Path) -> None:
    finished = run(experiment(tmp_path, search="2s"), out=tmp_path / "run", workers=1)
    steps = finished.results.config["search"]
    assert isinstance(steps, int)
    assert steps >= 1
    again = run(experiment(tmp_path, search="2s"), out=tmp_path / "run", workers=1)
    assert again.results.config["search"] == steps


def test_a_budget_that_tries_nothing_says_so(tmp_path: Path) -> None:
    finished = run(experiment(tmp_path, search=1), out=tmp_path / "run", workers=1)
    record = SearchRecord.from_dict(read_json(finished.folder / FILE))
    assert {trial.label for trial in record.trials} == {"as proposed"}
    assert "--budget" in sections["search"].build(read_run(finished.folder)[0]).lead


def test_a_busy_machine_searches_as_much_as_an_idle_one(tmp_path: Path) -> None:
    document, tried = experiment(tmp_path, search="2s"), list[Event]()

    def someone_else_works(event: Event) -> None:
        if isinstance(event, RecipeTried):
            tried.append(event)
        elif isinstance(event, EpochDone) and not tried:
            time.sleep(0.5)

    idle = run(document, out=tmp_path / "idle", workers=1)
    busy = run(document, out=tmp_path / "busy", workers=1, observers=[someone_else_works])
    assert busy.results.config["search"] > 0.4 * idle.results.config["search"]


def test_every_candidate_is_a_valid_experiment(tmp_path: Path) -> None:
    for history in ("life", 10):
        document = experiment(tmp_path, recipe={"history": history, "cap": 25.0, "columns": "wear"})
        written = config.load(document)[1]
        for candidate in candidates(written):
            assert changed(written, candidate.changes, 5).train.steps == 5


@pytest.mark.parametrize("written", [True, False])
def test_machines_that_still_run_are_tried_the_other_way(tmp_path: Path, written: bool) -> None:
    document = experiment(tmp_path, recipe={"history": "life", "cap": 25.0}, train={"running": written})
    base = config.load(document)[1]
    tried = [changed(base, candidate.changes, 5).train.running for candidate in candidates(base, running=True)]
    assert tried.count(not written) == 1
    assert all(changed(base, c.changes, 5).train.running is written for c in candidates(base, running=False))


@pytest.mark.parametrize("search", ["ten minutes", "10 minutes", -1])
def test_a_budget_is_a_time_or_a_number_of_steps(tmp_path: Path, search: object) -> None:
    with pytest.raises(ConfigError):
        config.load(experiment(tmp_path, search=search))


def test_a_search_needs_units_kept_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        config.load(experiment(tmp_path, search="1m", train={"validation_fraction": 0.0}))
