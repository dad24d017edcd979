"""`fedprognos init` on tables as people have them: what it writes can be run as it stands."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedprognos.experiment import config
from fedprognos.experiment.scenario import scenarios
from fedprognos.fleet import Fleet
from fedprognos.tables.experiment_file import write_experiment
from fedprognos.tables.proposal import propose


def pumps(time: str = "cycle", step: float = 1.0, owner: str = "plant", lives: int = 1) -> pd.DataFrame:
    """Eight pumps of three owners that get hotter until they fail."""
    rng = np.random.default_rng(0)
    frames = []
    for k in range(8):
        for life in range(1, lives + 1):
            n = int(rng.integers(40, 60))
            frames.append(
                pd.DataFrame(
                    {
                        "machine": f"p{k}",
                        time: np.arange(1, n + 1) * step,
                        "heat": 20 + 30 * (np.arange(n) / n) ** 2 + rng.normal(size=n),
                        "noise": rng.normal(size=n) + 4 * np.arange(n) / n,
                        owner: ["north", "south", "west"][k % 3],
                        "life": life,
                    }
                )
            )
    frame = pd.concat(frames, ignore_index=True)
    return frame if lives > 1 else frame.drop(columns="life")


def fleet_of(path: Path) -> tuple[config.Experiment, dict[str, Fleet]]:
    """The experiment that is written for a table, and its clients."""
    target = write_experiment(propose(path), path.with_name("experiment.toml"))
    _, experiment, folder = config.load(target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (found,) = scenarios(experiment, None, folder).values()
    return experiment, dict(found.clients)


def owners(clients: dict[str, Fleet]) -> list[str]:
    return sorted(clients)


def test_semicolons_with_decimal_commas(tmp_path: Path) -> None:
    pumps().to_csv(tmp_path / "p.csv", sep=";", decimal=",", index=False)
    experiment, clients = fleet_of(tmp_path / "p.csv")
    assert experiment.data.sensors == ("heat", "noise")  # type: ignore[attr-defined]
    assert owners(clients) == ["north", "south", "west"]
    expected = pumps()
    unit = clients["north"].units[0]
    assert unit.sensors[:, 0].tolist() == expected.loc[expected["machine"] == unit.id, "heat"].tolist()
    assert "decimal commas" in (tmp_path / "experiment.toml").read_text()


@pytest.mark.parametrize(("every", "measure"), [("1D", "days"), ("1h", "hours"), ("1min", "minutes")])
def test_timestamps(tmp_path: Path, every: str, measure: str) -> None:
    frame = pumps(time="when")
    frame["when"] = pd.Timestamp("2024-03-01") + (frame["when"] - 1).to_numpy() * pd.Timedelta(every)
    frame.to_csv(tmp_path / "p.csv", index=False)
    experiment, clients = fleet_of(tmp_path / "p.csv")
    assert (experiment.data.time, experiment.data.time_measure) == ("when", measure)  # type: ignore[attr-defined]
    unit = clients["south"].units[0]
    assert clients["south"].schema.target_measure == measure
    assert unit.labels().tolist() == pytest.approx(list(range(unit.rows))[::-1])
    assert unit.attributes["start"] == "2024-03-01T00:00:00"


def test_blanks(tmp_path: Path) -> None:
    frame = pumps()
    frame.loc[[5, 6, 90, 200], "heat"] = np.nan
    frame.to_csv(tmp_path / "p.csv", index=False)
    experiment, clients = fleet_of(tmp_path / "p.csv")
    assert experiment.data.sensors == ("heat", "noise")  # type: ignore[attr-defined]
    assert "heat: 4 of" in clients["north"].notes[0]


@pytest.mark.parametrize("how", ["life", "restart", "failed"])
def test_repaired_machines(tmp_path: Path, how: str) -> None:
    frame = pumps(time="hours", lives=2)
    if how == "failed":
        last = ~frame.duplicated(["machine", "life"], keep="last")
        frame = frame.assign(hours=frame.groupby("machine").cumcount() + 1, failed=last.astype(int))
    frame = frame if how == "life" else frame.drop(columns="life")
    frame.to_csv(tmp_path / "p.csv", index=False)
    experiment, clients = fleet_of(tmp_path / "p.csv")
    data = experiment.data
    assert (data.life, data.new_life) == {  # type: ignore[attr-defined]
        "life": ("life", None),
        "restart": (None, "time"),
        "failed": (None, "failed"),
    }[how]
    units = [u for fleet in clients.values() for u in fleet]
    assert max(u.lifespan for u in units) < 60
    assert all(u.labels()[-1] == 0 for u in units)
    for fleet in clients.values():  # lives of one machine are all learnt from, or all tested on
        assert len({u.attributes["machine"] for u in fleet}) * 2 == len(fleet)


def test_excel(tmp_path: Path) -> None:
    pumps().to_excel(tmp_path / "p.xlsx", index=False)
    _, clients = fleet_of(tmp_path / "p.xlsx")
    assert owners(clients) == ["north", "south", "west"]


def test_hours(tmp_path: Path) -> None:
    pumps(time="operating_hours", step=10.0).to_csv(tmp_path / "p.csv", index=False)
    experiment, clients = fleet_of(tmp_path / "p.csv")
    assert clients["west"].schema.target_measure == "hours"
    assert "hours" in (tmp_path / "experiment.toml").read_text()
    assert 200 < experiment.recipe.cap < 400  # type: ignore[operator]


def test_an_odd_owner_column(tmp_path: Path) -> None:
    pumps(owner="airline").to_csv(tmp_path / "p.csv", index=False)
    experiment, clients = fleet_of(tmp_path / "p.csv")
    assert experiment.data.site == "airline"  # type: ignore[attr-defined]
    assert owners(clients) == ["north", "south", "west"]


def test_several_owner_columns_are_all_told(tmp_path: Path) -> None:
    pumps(owner="airline").assign(maker=lambda f: np.where(f["machine"] < "p4", "A", "B")).to_csv(
        tmp_path / "p.csv", index=False
    )
    guess = propose(tmp_path / "p.csv")
    assert guess.owners == ("airline", "maker")
    write_experiment(guess, tmp_path / "p.toml")
    comments = [line for line in (tmp_path / "p.toml").read_text().splitlines() if line.startswith("#")]
    assert any("maker" in comment for comment in comments)


def test_a_folder_of_sites_and_a_folder_of_units(tmp_path: Path) -> None:
    frame = pumps()
    for name, key in (("sites", "plant"), ("units", "machine")):
        (tmp_path / name).mkdir()
        for value, part in frame.groupby(key):
            part.drop(columns=["plant", *(["machine"] if key == "machine" else [])]).to_csv(
                tmp_path / name / f"{value}.csv", index=False
            )
    sites = propose(tmp_path / "sites")
    assert (sites.columns.unit, sites.sites, sites.units) == ("machine", ("north", "south", "west"), 8)
    _, clients = fleet_of(tmp_path / "sites")
    assert owners(clients) == ["north", "south", "west"]
    units = propose(tmp_path / "units")
    assert (units.columns.unit, units.units, units.columns.time) == (None, 8, "cycle")


def test_small_fleets_get_small_batches_and_enough_epochs(tmp_path: Path) -> None:
    late = pumps().assign(
        cycle=lambda f: f["cycle"] + 100
    )  # not watched from new: windows, which are trained in epochs
    late.to_csv(tmp_path / "p.csv", index=False)
    small = fleet_of(tmp_path / "p.csv")[0].train
    many = pd.concat([late.assign(machine=lambda f, k=k: f["machine"] + str(k)) for k in range(60)])
    many.to_csv(tmp_path / "p.csv", index=False)
    (tmp_path / "experiment.toml").unlink()
    large = fleet_of(tmp_path / "p.csv")[0].train
    assert (small.batch_size, large.batch_size) == (8, 128)
    assert small.epochs > 150 > 3 * large.epochs


def answered(folder: Path, *answers: str) -> str:
    """What `fedprognos init p.csv` says in a terminal where a person types these answers."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "dumb", "COLUMNS": "200"}
    command = [sys.executable, "-m", "fedprognos", "init", "p.csv"]
    child = subprocess.Popen(command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    os.write(ours, "".join(f"{answer}\n" for answer in answers).encode())
    said = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the terminal closes with the program
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    assert child.wait() == 0, said.decode()
    return said.decode()


def test_a_person_in_a_terminal_is_asked(tmp_path: Path) -> None:
    pumps(owner="airline").assign(maker="A").assign(maker=lambda f: np.where(f["machine"] < "p4", "A", "B")).to_csv(
        tmp_path / "p.csv", index=False
    )
    said = answered(tmp_path, "", "", "flights", "makr", "maker", "")
    assert "'makr'" in said and "'maker'" in said
    data = config.load(tmp_path / "p.toml")[1].data
    assert (data.site, data.time_measure, data.unit) == ("maker", "flights", "machine")  # type: ignore[attr-defined]


def test_records_that_begin_when_units_are_new_are_read_whole(tmp_path: Path) -> None:
    new = pumps()
    new.to_csv(tmp_path / "new.csv", index=False)
    experiment, _ = fleet_of(tmp_path / "new.csv")
    assert experiment.recipe.history == "life"
    assert (experiment.model.widths, experiment.train.forget_bias, experiment.train.steps) == ((64,), 3, 1000)
    assert experiment.evaluation.intervals == "published"
    (tmp_path / "experiment.toml").unlink()
    late = new[(new["machine"] != "p3") | (new["cycle"] > 20)]
    late[late["machine"] != "p5"].assign(cycle=lambda f: f["cycle"] + 100).to_csv(tmp_path / "late.csv", index=False)
    experiment, _ = fleet_of(tmp_path / "late.csv")
    assert isinstance(experiment.recipe.history, int)
    assert "absorb" in experiment.federation.methods
