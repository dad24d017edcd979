"""Files to predict are read as files to learn from are: any separator and decimal mark, Excel, dates."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from fedprognos.features import Recipe
from fedprognos.prognosis.frames import chunks, find_columns

RECIPE = Recipe(
    task="rul", sensors=("heat", "flow"), time_measure="hours", window=2, mean=((0.0, 0.0),), std=((1.0, 1.0),)
)
FRAME = pd.DataFrame(
    {"pump": ["a", "b", "a", "b"], "hour": [1, 1, 2, 3], "heat": [0.5, 1.5, 2.25, 3], "flow": [4, 5, 6, 7]}
)


def save(frame: pd.DataFrame, folder: Path, way: str) -> Path:
    if way == "excel":
        frame.to_excel(folder / "rows.xlsx", index=False)
        return folder / "rows.xlsx"
    marks = {"plain": {}, "semicolon": {"sep": ";", "decimal": ","}, "cp1252": {"encoding": "cp1252"}}[way]
    frame.to_csv(folder / "rows.csv", index=False, **marks)  # type: ignore[call-overload]
    return folder / "rows.csv"


@pytest.mark.parametrize("way", ["plain", "semicolon", "cp1252", "excel"])
@pytest.mark.parametrize("rows", [1, 3, 100])
def test_every_way_to_write_a_file_gives_the_same_rows(tmp_path: Path, way: str, rows: int) -> None:
    frame = FRAME.assign(pump=FRAME["pump"].replace("b", "Süd")) if way == "cp1252" else FRAME
    path = save(frame, tmp_path, way)
    read = list(chunks(path, find_columns(path, RECIPE), RECIPE, rows))
    assert [u for chunk in read for u in chunk.rows.units] == frame["pump"].tolist()
    assert [p for chunk in read for p in chunk.rows.positions] == [1, 1, 2, 3]
    assert [row for chunk in read for row in chunk.rows.sensors.tolist()] == FRAME[["heat", "flow"]].to_numpy().tolist()
    assert read[-1].done == 1


def test_dates_are_time_since_the_first_row_of_a_unit(tmp_path: Path) -> None:
    when = pd.Timestamp("2024-05-01") + pd.to_timedelta(FRAME["hour"], unit="h")
    path = save(FRAME.assign(hour=when).rename(columns={"hour": "date"}), tmp_path, "plain")
    read = list(chunks(path, find_columns(path, RECIPE), RECIPE, 1))
    assert [p for chunk in read for p in chunk.rows.positions] == pytest.approx([0, 0, 1, 2])
