from __future__ import annotations

import csv
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from searches import SMALL, SPACE, arguments, small
from typer.testing import CliRunner

from fedprognos.cli import app
from fedprognos.errors import ConfigError, DataError, FederationError, MissingExtraError, OutputError
from fedprognos.experiment import config, tuning
from fedprognos.experiment.experiment_run import load_fleets, run
from fedprognos.experiment.run_events import SearchEvent, TrialDone, TrialRound, TrialStarted
from fedprognos.experiment.scenario import scenarios, training_scenario
from fedprognos.features import windows as window_building
from fedprognos.files import holding
from fedprognos.fleet import Unit
from fedprognos.fleet.readers.cmapss import locate
from refusals import refuses
from small_fleets import recipe_of, series_fleet


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search of six trials in one go."""
    out = tmp_path_factory.mktemp("whole") / "search"
    small(out, 6)
    return out


@pytest.mark.long
def test_the_best_trial_is_a_file_to_run(whole: Path) -> None:
    with (whole / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["trial"] for row in rows] == [str(k) for k in range(1, 7)]
    best = min((r for r in rows if r["state"] == "complete"), key=lambda r: float(r["validation_rmse"]))
    _, loaded, _ = config.load(whole / "best.toml")
    _, experiment, _ = config.load("plants", SMALL)
    assert loaded.recipe.window == int(best["recipe.window"])
    assert loaded.model.widths == (int(best["neurons"]),)
    assert loaded.train.learning_rate == float(best["train.learning_rate"])
    assert loaded.federation.fedavg.epochs == int(best["federation.fedavg.epochs"])
    assert (loaded.data, loaded.partition, loaded.evaluation) == (
        experiment.data,
        experiment.partition,
        experiment.evaluation,
    )
    head = (whole / "best.toml").read_text().splitlines()[1]
    assert head.endswith(f"{float(best['validation_rmse']):.6g}")


@pytest.mark.long
def test_a_search_goes_on_where_it_was_and_ends_the_same(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "search"
    small(out, 1)

    def killed_in_mid_trial(event: SearchEvent) -> None:
        if isinstance(event, TrialRound) and event.number == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small(out, 6, observers=(killed_in_mid_trial,))
    assert len((out / "trials.csv").read_text().splitlines()) == 3  # a head and two trials
    config.load(out / "best.toml")
    _leave_a_running_trial(out)
    seen: list[SearchEvent] = []
    found = small(out, 6, observers=(seen.append,))
    assert {e.number for e in seen if isinstance(e, TrialStarted)} <= set(range(3, 7))
    assert sum(isinstance(e, TrialDone) for e in seen) == 4
    for name in ("trials.csv", "best.toml"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()
    assert len(found.trials) == 6
    assert small(out, 3).trials == found.trials  # nothing is left to do


def _leave_a_running_trial(out: Path) -> None:
    """What kill -9 leaves behind: a trial that nobody works on."""
    import optuna

    optuna.load_study(storage=f"sqlite:///{out / 'study.db'}", study_name="fedprognos").ask()


def test_equal_values_are_trained_once(tmp_path: Path) -> None:
    space = ("recipe.window=[6]", "layers=[1]", "neurons=[3]", "train.learning_rate=[0.01]", "train.optimizer=['adam']")
    seen: list[SearchEvent] = []
    found = small(tmp_path / "x", 3, space=(*space, "federation.fedavg.epochs=[1]"), observers=(seen.append,))
    assert sum(isinstance(e, TrialStarted) for e in seen) == 1
    assert len({trial.error for trial in found.trials}) == 1 and found.importances == {}


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"method": "local", "space": SPACE[:-1]}, "method"),
        ({"overrides": (*SMALL, "train.batch_size=32")}, "experiment"),
        ({"overrides": (*SMALL, "data.seed=1")}, "data"),
        ({"space": (*SPACE, "neurons=[3, 6]")}, "space"),
        ({"seeds": 2}, "number of seeds"),
        ({"seed": 1}, "seed"),
    ],
)
def test_the_search_of_something_else_is_refused(whole: Path, change: dict[str, object], word: str) -> None:
    before = (whole / "trials.csv").read_bytes()
    with refuses(OutputError, word):
        small(whole, 9, **change)
    assert (whole / "trials.csv").read_bytes() == before


def test_other_folders_and_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with refuses(OutputError, str(tmp_path)):
        small(tmp_path, 1)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "study.db").write_text("not a database, though it is long enough to look like one" * 10)
    with refuses(OutputError, "study.db"):
        small(tmp_path / "x", 1)


def test_two_searches_in_one_folder_do_not_meet(whole: Path) -> None:
    with holding(whole / tuning.LOCK), refuses(OutputError, str(whole)):
        small(whole, 9)


def test_no_test_unit_is_ever_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = load_fleets("plants", overrides=SMALL)
    seen: set[str] = set()
    real = window_building.health_labels

    def spy(unit: Unit, relative: bool) -> object:
        seen.add(unit.id)
        return real(unit, relative)

    monkeypatch.setattr(window_building, "health_labels", spy)
    small(tmp_path / "x", 1)
    assert seen == set(train.ids) and not seen & set(test.ids)


def test_the_file_of_test_units_need_not_even_exist(tmp_path: Path) -> None:
    fleet = series_fleet([60, 70, 65, 58, 62, 66], seed=2)
    lines = ["unit,cycle,pressure,temperature,site"]
    for k, unit in enumerate(fleet):
        rows = zip(unit.time, unit.sensors.tolist(), strict=True)
        lines += [f"{unit.id},{t:g},{p!r},{c!r},{'ab'[k % 2]}" for t, (p, c) in rows]
    (tmp_path / "fleet.csv").write_text("\n".join(lines))
    (tmp_path / "fleet.toml").write_text(
        "[data]\nkind = 'table'\npath = 'fleet.csv'\ntest_path = 'nowhere.csv'\nunit = 'unit'\ntime = 'cycle'\n"
        "sensors = ['pressure', 'temperature']\nsite = 'site'\n[partition]\nby = 'column'\ncolumn = 'site'\n"
        "[recipe]\nwindow = 12\n[train]\nepochs = 2\nvalidation_fraction = 0\n"
        "[federation.fedavg]\nrounds = 2\n"
    )
    told: list[str] = []

    def listen(event: SearchEvent) -> None:
        told.append(getattr(event, "text", ""))

    found = small(tmp_path / "x", 1, source=tmp_path / "fleet.toml", overrides=(), observers=(listen,))
    assert found.best is not None
    assert any("0.2" in text for text in told)
    _, best, base = config.load(tmp_path / "x" / "best.toml")
    assert best.train.validation_fraction == 0
    assert (base / best.data.path).resolve() == (tmp_path / "fleet.csv").resolve()  # type: ignore[union-attr]
    training_scenario(best, "all", None, base)


@pytest.mark.needs_data("cmapss")
def test_nasas_test_files_are_not_opened(cmapss_folder: Path, tmp_path: Path) -> None:
    for kind in ("train", "test", "RUL"):
        real = locate(cmapss_folder, f"{kind}_FD001.txt")
        (tmp_path / real.name).write_bytes(real.read_bytes() if kind == "train" else b"poison")
    _, experiment, base = config.load("turbofan-fd001")
    assert sum(len(fleet) for fleet in training_scenario(experiment, "all", tmp_path, base).clients.values()) == 100
    with pytest.raises(DataError):
        scenarios(experiment, tmp_path, base)


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("fedavg", ()),
        ("central", ()),
        ("ensemble", ()),
        ("fedavg", ("federation.wire='float16'", "recipe.columns='wear'", "federation.mode='masked'", "data.sites=3")),
    ],
)
def test_a_trial_is_judged_by_the_very_error_a_run_tells(tmp_path: Path, method: str, changes: tuple[str, ...]) -> None:
    values = {"recipe.window": 12, "neurons": 4, "train.learning_rate": 0.02}
    space = [f"{name}=[{value}]" for name, value in values.items()]
    space += ["layers=[1]", "train.optimizer=['adam']", *(["federation.fedavg.epochs=[2]"] * (method == "fedavg"))]
    found = small(tmp_path / "search", 1, method=method, space=space, seeds=2, overrides=(*SMALL, *changes))
    only = (f"federation.methods=['{method}']", "evaluation.baselines=[]")
    finished = run(tmp_path / "search" / "best.toml", out=tmp_path / "run", seeds=2, overrides=only, workers=1)
    told = {
        seed: min(h.validation_rmse for h in finished.results.history if (h.head, h.seed) == ("exact", seed))
        for seed in (0, 1)
    }
    assert found.best is not None and found.best.error == pytest.approx(np.mean(list(told.values())), rel=1e-12)


@pytest.mark.parametrize("short", ["exclude", "pad"])
def test_windows_of_any_length_are_judged_at_the_same_points(short: str) -> None:
    fleet = series_fleet([60, 18, 25, 9, 70], seed=4)
    points = []
    for length in (5, 13, 20):
        windows = window_building.build_windows(
            recipe_of(fleet, window=length, stride=3, short=short), tuning._later(fleet, 20 - length)
        )
        names = np.array(windows.unit_ids)[windows.unit]
        points.append([*zip(names.tolist(), windows.position.tolist(), windows.labels.tolist(), strict=True)])
    assert points[0] == points[1] == points[2]
    assert len({name for name, *_ in points[0]}) == (3 if short == "exclude" else 5)


@pytest.mark.long
@pytest.mark.parametrize("method", ["local", "central", "fedprox", "concat", "fedma"])
def test_every_method_can_be_searched(tmp_path: Path, method: str) -> None:
    space = tuple(s for s in SPACE if "fedavg" not in s)
    if method in ("fedprox", "fedma"):
        space = (*space, f"federation.{method}.epochs=[1]")
    rounds = (*SMALL, "federation.fedprox.rounds=1")
    found = small(tmp_path / "x", 1, method=method, space=space, overrides=rounds, seeds=2 if method == "local" else 1)
    assert found.best is not None and found.best.error is not None and 1 < found.best.error < 200


def test_values_that_cannot_be_trained_with_are_noted_and_hopeless_searches_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(access: object, method: str, experiment: config.Experiment, *_: object) -> list[float]:
        if experiment.model.widths == (3,):
            raise FederationError("the loss is no longer a number")
        return [30.0]

    monkeypatch.setattr(tuning, "validation_errors", broken)
    found = small(tmp_path / "x", 5)
    assert {t.state for t in found.trials if t.values["neurons"] == 3} == {"failed"}
    assert {t.state for t in found.trials if t.values["neurons"] == 5} == {"complete"}
    with pytest.raises(FederationError):
        small(tmp_path / "y", 10, space=(*SPACE, "neurons=[3]"))
    assert len((tmp_path / "y" / "trials.csv").read_text().splitlines()) == tuning.HOPELESS


def test_bad_trials_are_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def rounds(access: object, method: str, experiment: config.Experiment, *_: object) -> object:
        for k in range(4):
            asked.append(k)
            yield (90.0 if experiment.model.widths == (3,) else 30.0) - k

    monkeypatch.setattr(tuning, "validation_errors", rounds)
    found = small(tmp_path / "x", 12)
    pruned = [t for t in found.trials if t.state == "pruned"]
    assert pruned and {t.values["neurons"] for t in pruned} == {3}
    assert found.best is not None and found.best.error == 27.0
    assert found.importances and max(found.importances, key=lambda name: found.importances[name]) == "neurons"


def test_what_is_missing_or_unknown_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refuses(ConfigError, "fedmagic"):
        small(tmp_path / "x", 1, method="fedmagic")
    with refuses(ConfigError, "nowhere"):
        small(tmp_path / "x", 1, scenario="nowhere")
    with refuses(FederationError, "windows"):
        small(tmp_path / "y", 3, overrides=(*SMALL, "recipe.stride=200"))
    monkeypatch.setattr(tuning, "find_spec", lambda name: None)
    with refuses(MissingExtraError, "fedprognos[tune]"):
        small(tmp_path / "z", 1)
    assert not (tmp_path / "x").exists() and not (tmp_path / "z").exists()


@pytest.mark.long
def test_results_do_not_depend_on_the_number_of_workers(whole: Path, tmp_path: Path) -> None:
    small(tmp_path / "x", 1, workers=2)
    assert (tmp_path / "x" / "trials.csv").read_text().splitlines() == (
        (whole / "trials.csv").read_text().splitlines()[:2]
    )


def test_the_command_shows_the_best_trials_and_where_they_are(whole: Path) -> None:
    shown = CliRunner().invoke(app, arguments(whole, trials=6))
    assert shown.exit_code == 0, shown.output
    _, best, _ = config.load(whole / "best.toml")
    first = shown.output.rpartition("─")[2].split()  # trial, error, window, layers, neurons of the first line
    assert first[2:5] == [str(best.recipe.window), "1", str(best.model.widths[0])]
    for words in ("Best of 6 trials", "validation RMSE in cycles", "6 trials were done before", "best.toml"):
        assert words in shown.output


@pytest.mark.soak
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_process_leaves_a_search_that_ends_as_if_nothing_had_been(
    whole: Path, tmp_path: Path, sign: signal.Signals
) -> None:
    out = tmp_path / "search"
    command = [sys.executable, "-m", "fedprognos", *arguments(out, trials=6, workers=2)]
    for wanted in (2, 4):  # lines of the table at which to stop it, in the midst of the next trial
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        table = out / "trials.csv"
        while process.poll() is None and not (table.is_file() and table.read_text().count("\n") >= wanted):
            time.sleep(0.02)
        process.send_signal(sign)
        _, said = process.communicate(timeout=300)
        assert process.returncode == (-sign if sign == signal.SIGKILL else 130), said
        config.load(out / "best.toml")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in ("trials.csv", "best.toml"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()


def test_every_preset_can_be_written_and_read_again(tmp_path: Path) -> None:
    for name in config.presets():
        _, experiment, base = config.load(name)
        config.write(tmp_path / f"{name}.toml", experiment, ["remark"], base)
        assert config.load(tmp_path / f"{name}.toml")[1] == experiment.model_copy(update={"scale": ""})
