"""Where a life ends by a threshold of health, and cycles that were broken off."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.io
from test_front_door import init
from test_init import fleet_of
from test_proposal import battery_table, save

from fedprognos.errors import ConfigError, DataError
from fedprognos.experiment import config
from fedprognos.features import Recipe
from fedprognos.fleet import Fleet
from fedprognos.prognosis import HealthModel, Stream
from fedprognos.service.fleet_view import status_of
from fedprognos.tables import Columns, TableLayout, broken_off, end_of_life
from fedprognos.tables.proposal import propose
from refusals import refuses


def cells(last: int = 6) -> pd.DataFrame:
    """Six cells that fade to 65 % of 2 Ah and go on to the end of their campaign; those from `last` on stop early."""
    rng = np.random.default_rng(0)
    frames = []
    for k in range(6):
        cycle = np.arange(1, 121 + 10 * k)
        capacity = 2.0 - 0.7 * cycle / len(cycle) + rng.normal(0, 0.002, len(cycle))
        frame = pd.DataFrame({"cell": f"c{k}", "cycle": cycle, "capacity": capacity})
        frames.append(frame if k < last else frame[: len(frame) // 3])
    return pd.concat(frames, ignore_index=True)


def test_a_table_of_capacities_asks_for_the_life_until_80_percent(tmp_path: Path) -> None:
    proposal = propose(save(cells(last=4), tmp_path / "cells.csv"))
    columns = proposal.columns
    assert (columns.task, columns.health, columns.end_of_life, proposal.worn) == ("rul", "capacity", 0.8, 4)
    assert columns.sensors == ("capacity",)
    _, clients = fleet_of(tmp_path / "cells.csv")
    units = {unit.id: unit for fleet in clients.values() for unit in fleet}
    for unit in units.values():
        capacity = unit.sensors[:, 0]
        if unit.labels() is None:
            assert unit.id in ("c4", "c5")
            assert not unit.failed
        else:
            assert unit.labels()[-1] == 0
            assert capacity[-1] < 0.8 * capacity[0] + 0.01
            assert (capacity[:-3] > 0.8 * capacity[0] - 0.01).all()


def test_the_end_may_be_chosen(tmp_path: Path) -> None:
    path = save(cells(), tmp_path / "cells.csv")
    assert init(path, "--yes", "--end-of-life", "90%").exit_code == 0
    assert config.load(tmp_path / "cells.toml")[1].data.end_of_life == 0.9  # type: ignore[attr-defined]
    assert init(path, "--yes", "--force", "--end-of-life", "-").exit_code == 0
    assert config.load(tmp_path / "cells.toml")[1].data.health is None  # type: ignore[attr-defined]
    with refuses(ConfigError, "plenty"):
        raise init(path, "--yes", "--force", "--end-of-life", "plenty").exception  # type: ignore[misc]


def test_a_fleet_that_never_gets_there_has_no_labels() -> None:
    frame = cells().query("cycle < 40")
    with refuses(DataError, "capacity", "80%", "end_of_life"):
        Fleet.from_frame(frame, unit="cell", time="cycle", health="capacity")
    with refuses(ConfigError, "health", "target"):
        Columns(unit="cell", time="cycle", health="capacity", target="rul")


def test_one_low_value_is_no_end() -> None:
    health = np.linspace(1.0, 0.7, 32)
    end = end_of_life(health, 0.8)
    assert end == 21
    dipped = health.copy()
    dipped[10] = 0.2
    assert broken_off(dipped).tolist() == [k == 10 for k in range(32)]
    assert end_of_life(dipped, 0.8) == end


def test_cycles_that_were_broken_off_are_left_out_and_counted(tmp_path: Path) -> None:
    frame = battery_table()
    short = (frame["Battery"] == "B1") & (frame["cycle_no"] == 7) & (frame["time_in_s"] > 60)
    frame = frame[~short].reset_index(drop=True)
    frame.loc[(frame["Battery"] == "B2") & (frame["cycle_no"] == 3), "capacity_in_Ah"] = np.nan
    frame.loc[(frame["Battery"] == "B2") & (frame["cycle_no"] == 1), "capacity_in_Ah"] /= 4
    path = save(frame, tmp_path / "b.csv")
    proposal = propose(path)
    assert (proposal.columns.task, proposal.lengths.shortest_cycle) == ("soh", 2590.0)
    result = init(path, "--yes")
    assert result.exit_code == 0
    assert "1 cycles" in result.stdout
    _, clients = fleet_of(path)
    numbers = {unit.id: unit.cycle_numbers.tolist() for fleet in clients.values() for unit in fleet}
    assert 7 not in numbers["B1"]
    assert not {1, 3} & set(numbers["B2"])
    assert 7 in numbers["B0"]


@pytest.mark.parametrize("cells", [1, 3])
def test_a_folder_of_mat_files_is_a_table(tmp_path: Path, cells: int) -> None:
    for cell in range(cells):
        cycles = []
        for k in range(1, 21):
            time = np.arange(0.0, 3000.0 - 20 * k if k != 5 else 40.0, 10.0)
            samples = {
                "Voltage_measured": np.linspace(4.2, 2.4, len(time)),
                "Current_measured": np.full(len(time), -2.0) + 0.01 * np.sin(time),
                "Temperature_measured": 24 + time / 300,
                "Time": time,
                "Capacity": 2.0 - 0.01 * k,
            }
            cycles.append({"type": "discharge", "ambient_temperature": 24.0, "data": samples})
        records = np.empty((1, len(cycles)), dtype=[(name, object) for name in cycles[0]])
        for k, cycle in enumerate(cycles):
            records[0, k] = tuple(cycle.values())
        scipy.io.savemat(tmp_path / f"B000{cell}.mat", {f"B000{cell}": {"cycle": records}})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = init(tmp_path, "--yes", "--out", tmp_path / "cells.toml")
    assert result.exit_code == 0, result.exception
    data = config.load(tmp_path / "cells.toml")[1].data
    assert (data.task, data.target, data.cycle) == ("soh", "capacity_in_Ah", "cycle")  # type: ignore[attr-defined]
    assert propose(tmp_path).lengths.shortest_cycle == 2590.0


def worn_model() -> HealthModel:
    """A model of lives that end at 80 % of the first capacity; it says 40 cycles whatever it sees."""
    recipe = Recipe(task="rul", sensors=("capacity",), window=2, mean=((1.7,),), std=((0.2,),), label_mean=40.0)
    layout = TableLayout(unit="cell", time="cycle", health="capacity")
    return HealthModel(recipe, lambda batch: np.zeros(len(batch)), None, layout)


def test_a_unit_past_its_threshold_is_worn_and_stays_so() -> None:
    stream = Stream(worn_model())
    capacity = [*np.linspace(2.0, 1.4, 61), 1.7, 1.7, 1.7, 1.7, 1.7]
    healths = [stream.feed("c1", k + 1, {"capacity": value}).health for k, value in enumerate(capacity)]
    worn = [k for k, health in enumerate(healths) if health is not None and "worn" in health.flags]
    end = end_of_life(np.array(capacity), 0.8)
    assert end is not None
    assert worn == list(range(end + 2, len(capacity)))  # the two rows after it confirm the end
    assert {(healths[k].value, healths[k].low, healths[k].high) for k in worn} == {(0.0, None, None)}  # type: ignore[union-attr]
    assert {health.value for health in healths[1 : end + 2]} == {40.0}  # type: ignore[union-attr]
    assert status_of(healths[-1], threshold=None) == "due"


def test_low_values_that_stand_alone_and_blanks_do_not_wear_a_unit_out(tmp_path: Path) -> None:
    stream = Stream(worn_model())
    capacity = [2.0, 2.0, 2.0, 0.1, 2.0, 2.0, None, 0.1, 2.0, 1.9]
    healths = [stream.feed("c1", k + 1, {"capacity": value}).health for k, value in enumerate(capacity)]
    assert not any("worn" in health.flags for health in healths if health is not None)
    for k in range(3):
        stream.feed("c1", 20 + k, {"capacity": 1.5})
    stream.snapshot(tmp_path / "stream")
    other = Stream(worn_model())
    other.restore(tmp_path / "stream")
    later = [s.feed("c1", 30, {"capacity": 1.5}).health for s in (stream, other)]
    assert later[0] == later[1]
    assert later[0] is not None
    assert later[0].flags == ("worn",)
