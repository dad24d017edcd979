"""A column some time ahead, such as the capacity in 50 cycles: labels, baselines, and from a table to a prediction."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_end_of_life import cells
from test_front_door import init
from test_proposal import save

from command_line import fedprognos
from fedprognos.errors import ConfigError, DataError
from fedprognos.evaluation import baselines
from fedprognos.experiment import config
from fedprognos.features import Recipe, RecipeOptions, build_windows, recipe_for
from fedprognos.fleet import Fleet, read_table
from fedprognos.tables import Columns
from fedprognos.tables.proposal import propose
from refusals import refuses


def fleet(frame: pd.DataFrame, ahead: float = 50, **more: object) -> Fleet:
    options = {"unit": "cell", "time": "cycle", "task": "forecast", "health": "capacity", "ahead": ahead, **more}
    return Fleet.from_frame(frame, **options)  # type: ignore[arg-type]


def test_the_label_is_the_column_so_much_later() -> None:
    frame = cells()
    of_cells = fleet(frame)
    assert of_cells.schema.target == "capacity in 50 cycles"
    for unit in of_cells:
        rows = frame[frame["cell"] == unit.id]["capacity"].to_numpy()
        assert unit.rows == len(rows) - 50
        np.testing.assert_allclose(unit.labels(), rows[50:])


def test_a_gap_is_bridged_and_a_cycle_broken_off_is_no_label() -> None:
    frame = cells()
    frame = frame[frame["cycle"] != 70]
    frame.loc[frame["cycle"] == 90, "capacity"] = 0.1
    of_cells = fleet(frame, 10)
    unit = of_cells["c0"]
    label = dict(zip(unit.time, unit.labels(), strict=True))
    of_cycle = frame[frame["cell"] == "c0"].set_index("cycle")["capacity"]
    assert label[60] == pytest.approx((of_cycle[69] + of_cycle[71]) / 2)
    assert label[80] == pytest.approx((of_cycle[89] + of_cycle[91]) / 2)
    assert any(" 6 rows " in note for note in of_cells.notes)


def test_a_unit_watched_too_short_has_no_label_and_all_such_are_refused() -> None:
    of_cells = fleet(cells(last=5), 60)
    assert [unit.id for unit in of_cells if unit.labels() is None] == ["c5"]
    with refuses(DataError, "500", "data.ahead"):
        fleet(cells(), 500)


def test_what_belongs_together_is_asked_for_together() -> None:
    for wrong in ({"ahead": 5, "health": "x"}, {"task": "forecast", "health": "x"}, {"task": "forecast", "ahead": 5}):
        with refuses(ConfigError, "forecast", "ahead"):
            Columns.model_validate({"time": "cycle", **wrong})


def test_baselines_keep_the_value_or_follow_the_line() -> None:
    cycle = np.arange(1.0, 101.0)
    frames = [
        pd.DataFrame({"cell": c, "cycle": cycle, "capacity": 2 - s * cycle}) for c, s in (("a", 0.01), ("b", 0.005))
    ]
    of_cells = fleet(pd.concat(frames), 20)
    for history in (10, "life"):
        recipe = recipe_for(RecipeOptions(history=history), {"all": of_cells})
        windows = build_windows(recipe, of_cells)
        follows = baselines["extrapolation"].predict(windows, windows, recipe)
        assert follows is not None
        seen = np.concatenate([np.flatnonzero(windows.unit == u)[1:] for u in (0, 1)])  # a line needs two rows
        np.testing.assert_allclose(follows[seen], windows.labels[seen], atol=1e-5)
        stays = baselines["persistence"].predict(windows, windows, recipe)
        assert stays is not None
        slope = np.array([0.01, 0.005])[windows.unit]
        np.testing.assert_allclose(stays - windows.labels, 20 * slope, atol=1e-5)
        assert Recipe.from_json(recipe.to_json()) == recipe
    lives = Fleet.from_frame(cells(), unit="cell", time="cycle")
    recipe = recipe_for(RecipeOptions(history=10, cap=50), {"all": lives})
    windows = build_windows(recipe, lives)
    assert [baselines[name].predict(windows, windows, recipe) for name in ("persistence", "extrapolation")] == [
        None
    ] * 2


def test_init_takes_the_distance_and_the_column(tmp_path: Path) -> None:
    frame = cells().assign(plant=lambda f: f["cell"].map(lambda c: "AB"[int(c[1]) % 2]), heat=lambda f: f["cycle"] % 7)
    path = save(frame, tmp_path / "cells.csv")
    assert init(path, "--yes", "--ahead", "50").exit_code == 0
    data = config.load(tmp_path / "cells.toml")[1].data
    chosen = ("task", "health", "ahead", "time_measure", "site")
    assert [getattr(data, name) for name in chosen] == ["forecast", "capacity", 50.0, "cycles", "plant"]
    assert init(path, "--yes", "--force", "--ahead", "5", "--target", "heat").exit_code == 0
    assert config.load(tmp_path / "cells.toml")[1].data.health == "heat"  # type: ignore[attr-defined]
    for wrong, named in ((("--task", "forecast"), "--ahead"), (("--ahead", "9", "--target", "cycle"), "cycle")):
        with refuses((ConfigError, DataError), named):
            raise init(path, "--yes", "--force", *wrong).exception  # type: ignore[misc]


def rmse(run: Path, *methods: str) -> list[float]:
    """Test errors of methods, the lowest of each."""
    rows = json.loads((run / "results.json").read_text())["rows"]
    return [min(row["rmse"] for row in rows if row["method"] == method) for method in methods]


@pytest.mark.long
def test_from_a_table_to_a_prediction(tmp_path: Path) -> None:
    save(cells(), tmp_path / "cells.csv")
    assert fedprognos("init", "cells.csv", "--yes", "--ahead", "50", cwd=tmp_path).returncode == 0
    done = fedprognos("run", "cells.toml", "--quick", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    together, stays = rmse(tmp_path / "run", "absorb", "persistence")
    assert together < 0.5 * stays
    assert "capacity in 50 cycles" in (tmp_path / "run" / "report.html").read_text()
    for runtime in ("torch", "onnx"):
        model = ["run/bundle"] if runtime == "torch" else ["run/bundle", "--runtime", "onnx"]
        shown = fedprognos("predict", *model, "cells.csv", "--out", f"{runtime}.csv", cwd=tmp_path)
        assert shown.returncode == 0, shown.stderr
    healths = pd.read_csv(tmp_path / "torch.csv").set_index("unit")["value"]
    np.testing.assert_allclose(pd.read_csv(tmp_path / "onnx.csv").set_index("unit")["value"], healths, atol=1e-4)
    last = cells().groupby("cell")["capacity"].last()
    fade = 50 * 0.7 / cells().groupby("cell").size()
    assert np.abs(healths - (last - fade)).max() < 0.1


@pytest.mark.long
@pytest.mark.needs_data("nasa-battery")
def test_capacities_of_real_cells_ahead(tmp_path: Path, battery_folder: Path) -> None:
    whole = read_table(battery_folder, propose(battery_folder).columns)
    with refuses(DataError, "cycle"):
        propose(battery_folder, {"ahead": 20.0})
    frame = whole.to_frame().groupby(["unit", "cycle"]).mean(numeric_only=True).reset_index()
    save(frame, tmp_path / "cells.csv")
    assert fedprognos("init", "cells.csv", "--yes", "--ahead", "20", cwd=tmp_path).returncode == 0
    done = fedprognos("run", "cells.toml", "--quick", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    together, stays = rmse(tmp_path / "run", "absorb", "persistence")
    assert together < stays
    assert fedprognos("predict", "run/bundle", "cells.csv", cwd=tmp_path).returncode == 0
