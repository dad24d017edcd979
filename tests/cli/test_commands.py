"""The commands as a user gives them: from a table to a report, and what is said about mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pytest
import typer

from command_line import fedprognos
from fedprognos.cli import app
from fedprognos.errors import ConfigError
from fedprognos.experiment import config
from fedprognos.experiment.events_in_words import matched_words
from fedprognos.experiment.run_events import JobKey, LayerMatched
from fedprognos.fleet.synthetic import synthetic_batteries, synthetic_engines
from refusals import refuses

CHANGES = (
    "model.widths=[6]",
    "search=0",
    "train.steps=2",
    "recipe.stride=10",
    "federation.fedavg={rounds=1, epochs=1}",
    "federation.fedprox={rounds=1, epochs=1}",
    "federation.fedma={rounds=1}",
)
SMALL = (*(word for change in CHANGES for word in ("--set", change)), "--seeds", "1", "--workers", "1")


def engines_csv(path: Path) -> Path:
    train, _ = synthetic_engines(sites=2, units_per_site=5, conditions=2, seed=3)
    frames = []
    for unit in train:
        frame = pd.DataFrame(unit.sensors[:, :5], columns=list(train.schema.sensors[:5]))
        frame.insert(0, "machine", unit.id)
        frame.insert(1, "cycle", unit.time.astype(int))
        for k, name in enumerate(train.schema.settings):
            frame[name] = unit.settings[:, k]
        frame["plant"] = unit.attributes["site"]
        frames.append(frame)
    pd.concat(frames).to_csv(path, index=False)
    return path


def test_a_csv_goes_from_init_to_a_report_and_a_model(tmp_path: Path) -> None:
    engines_csv(tmp_path / "fleet.csv")
    done = fedprognos("init", "fleet.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "fedprognos run" in done.stdout
    done = fedprognos("run", "fleet.toml", *SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "plant-a" in done.stdout
    assert "\x1b[" not in done.stdout  # plain when not a terminal
    out = tmp_path / "runs" / "fleet"
    assert (out / "report.html").stat().st_size > 100_000
    rows = json.loads((out / "results.json").read_text())["rows"]
    assert {"local", "central", "absorb"} <= {r["method"] for r in rows}
    assert (out / "bundle" / "weights.safetensors").is_file()


@pytest.mark.long
def test_a_battery_csv_works_too(tmp_path: Path) -> None:
    fleet = synthetic_batteries(sites=2, units_per_site=2, cycles=40, samples=40)
    frames = []
    for unit in fleet:
        numbers = np.repeat(unit.cycle_numbers, np.diff(unit.cycles))  # type: ignore[arg-type]
        frame = pd.DataFrame(unit.sensors, columns=list(fleet.schema.sensors))
        frame.insert(0, "cell", unit.id)
        frame.insert(1, "cycle", numbers)
        frame.insert(2, "time_in_s", unit.time)
        frame["capacity"] = unit.target[numbers - 1]  # type: ignore[index]
        frame["site"] = unit.attributes["site"]
        frames.append(frame)
    pd.concat(frames).to_csv(tmp_path / "cells.csv", index=False)
    assert fedprognos("init", "cells.csv", cwd=tmp_path).returncode == 0
    done = fedprognos("run", "cells.toml", *SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "runs" / "cells" / "results.json").read_text())["rows"]
    assert {"constant", "last", "ridge", "local", "central", "absorb"} <= {r["method"] for r in rows}


@pytest.mark.parametrize(
    ("arguments", "code", "names"),
    [
        (("run", "turbofn"), 2, ("'turbofn'", "'turbofan'")),
        (("run", "missing.toml"), 2, ("missing.toml",)),
        (("run", "plants", "--set", "train.epoch=3"), 2, ("train.epoch", "'epochs'")),
        (("run", "plants", "--set", "recipe.cap=-5"), 2, ("recipe.cap", "-5")),
        (("run", "plants", "--set", "nonsense"), 2, ("nonsense", "section.key=value")),
        (("run", "turbofan", "--data-dir", "nowhere"), 3, ("nowhere", "data get cmapss")),
        (("report", "nowhere"), 3, ("nowhere",)),
        (("demo", "--fleet", "trains"), 2, ("trains", "engines")),
        (("run", "plants", "--set", "model.widths=5"), 2, ("model.widths", "[5]")),
        (("init", "nothing.csv"), 3, ("nothing.csv",)),
    ],
)
def test_mistakes_are_explained_by_name(
    tmp_path: Path, arguments: tuple[str, ...], code: int, names: tuple[str, ...]
) -> None:
    done = fedprognos(*arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert [name for name in names if name not in " ".join(done.stderr.split())] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_mistake_ends_a_process_without_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fedprognos", "run", "turbofn"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert "'turbofan'" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.long
def test_json_and_quiet(tmp_path: Path) -> None:
    sizes = ("data.units_per_site=4", "data.test_units_per_site=2", "federation.methods=['local', 'fedma']")
    small = ("run", "plants", *SMALL, *(word for size in sizes for word in ("--set", size)), "--out", "x")
    done = fedprognos(*small, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((tmp_path / "x" / "results.json").read_text())
    done = fedprognos(*small, "--quiet", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    before = (tmp_path / "x" / "report.html").read_bytes()
    (tmp_path / "x" / "report.html").unlink()
    assert fedprognos("report", "x", cwd=tmp_path).returncode == 0
    assert (tmp_path / "x" / "report.html").read_bytes() == before


def test_presets_list_themselves_and_all_are_valid() -> None:
    done = fedprognos("presets")
    for name in config.presets():
        assert name in done.stdout
        config.load(name)


CMAPSS = "[data]\nkind = 'cmapss'\n"
UNITS = CMAPSS + "[partition]\nby = 'unit'\n"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[data]\nkind = 'boat'\n[partition]\nby = 'unit'", ("data", "boat")),
        (CMAPSS, ("partition",)),
        (CMAPSS + "[partition]\nby = 'lifespan'", ("partition.edges",)),
        (UNITS + "clients = 3", ("partition.clients",)),
        (UNITS + "[trian]\nepochs = 3", ("trian", "'train'")),
        (UNITS + "[model]\nwidths = []", ("model.widths",)),
        (UNITS + "[train]\nvalidation_fraction = 0\npatience = 3", ("patience",)),
        ("not toml", ("TOML",)),
    ],
)
def test_wrong_experiment_files_name_section_and_key(tmp_path: Path, text: str, names: tuple[str, ...]) -> None:
    file = tmp_path / "x.toml"
    file.write_text(text)
    with refuses(ConfigError, "x.toml", *names):
        config.load(file)


def test_several_settings_are_sub_tables(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(CMAPSS + "[partition.one]\nby = 'unit'\n[partition.two]\nby = 'random'\nclients = 2")
    assert list(config.load(file)[1].partition) == ["one", "two"]


def loaded(code: str) -> set[str]:
    """Which of the slow packages a fresh interpreter has loaded after this code."""
    slow = ("torch", "pandas", "numpy", "scipy", "pydantic", "plotly", "flwr")
    told = f"{code}\nimport sys; print('LOADED', *(name for name in {slow} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    return set(done.stdout.split("LOADED")[1].split())


HELP = "import sys; from fedprognos.cli import app\nsys.argv[1:] = {}\ntry: app()\nexcept SystemExit: pass"


@pytest.mark.parametrize("command", [[], ["run"], ["init"], ["data"], ["deploy", "site"], ["predict"], ["serve"]])
def test_help_loads_nothing_slow(command: list[str]) -> None:
    assert loaded(HELP.format([*command, "--help"])) == set()


def test_the_front_door_opens_before_anything_slow_is_loaded() -> None:
    assert loaded("from fedprognos import run, absorb") == set()


def commands(group: click.Group, name: str = "fedprognos") -> Iterator[tuple[str, click.Command]]:
    """All commands of a group and of the groups in it, with their whole names."""
    for word, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {word}")
        else:
            yield f"{name} {word}", command


def test_every_command_shows_an_example_of_itself() -> None:
    found = dict(commands(typer.main.get_command(app)))  # type: ignore[arg-type]
    assert len(found) > 15
    assert [name for name, command in found.items() if f"Example: {name}" not in (command.help or "")] == []


def test_a_misspelt_command_is_corrected_once() -> None:
    assert fedprognos("rum").stderr.count("Did you mean") == 1


def test_arguments_are_explained() -> None:
    assert "See `fedprognos presets`" in " ".join(fedprognos("run", "--help").stdout.split())


def matched(width: int, everyone: int, singletons: dict[str, int], absorbing: str) -> str:
    job = JobKey("all", "fedma", 0)
    return matched_words(LayerMatched(job, 1, "recurrent.0", width, everyone / width, singletons, absorbing))


def test_what_was_matched_adds_up_and_advice_follows_where_nothing_was() -> None:
    some = matched(40, 10, {"a": 12, "b": 12}, "neither")
    assert some == "recurrent.0 matched to 40 neurons: 10 shared by all, 6 by some, 24 held by one client"
    none = matched(64, 0, {"a": 32, "b": 32}, "all kept")
    assert "0 shared by all, 0 by some, 64 held by one client. Nothing was merged; raise federation.fedma.noise" in none
    assert "single client has nothing to match" in matched(32, 32, {"a": 32}, "all kept")
