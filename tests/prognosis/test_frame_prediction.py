"""Data frames are predicted as files are: with the columns, lives and dates of the training table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from small_models import bundle_of

import fedprognos as fp
from fedprognos.errors import ConfigError, DataError
from fedprognos.prognosis.table_prediction import predict_files
from fedprognos.tables.columns import TableLayout
from refusals import refuses
from small_fleets import recipe_of, series_fleet

FLEET = series_fleet([60, 50, 40])
BUNDLE = bundle_of(recipe_of(FLEET, cap=40))


def table() -> pd.DataFrame:
    """Rows of all units, their columns called in a way that nobody guesses."""
    frames = [
        pd.DataFrame(unit.sensors, columns=list(FLEET.schema.sensors)).assign(who=unit.id, when=unit.time)
        for unit in FLEET
    ]
    settings = np.concatenate([unit.settings for unit in FLEET])
    return pd.concat(frames, ignore_index=True).assign(**dict(zip(FLEET.schema.settings, settings.T, strict=True)))


def predictor(**layout: object) -> fp.Predictor:
    return fp.Predictor.from_bundle(replace(BUNDLE, table=TableLayout(unit="who", time="when", **layout)))  # type: ignore[arg-type]


def test_a_frame_needs_no_options_and_gives_what_its_file_gives(tmp_path: Path) -> None:
    table().to_csv(tmp_path / "rows.csv", index=False)
    found = predictor().predict(table())
    expected = predict_files(predictor(), tmp_path / "rows.csv").now
    assert found["unit"].tolist() == [health.unit for health in expected]
    np.testing.assert_allclose(found["value"], [health.value for health in expected], rtol=1e-6)
    offline = fp.Predictor.from_bundle(BUNDLE).predict(FLEET, last=False)
    every = predictor().predict(table(), last=False)
    np.testing.assert_allclose(every["value"], [health.value for health in offline], rtol=1e-6)


def test_dates_are_told_as_dates() -> None:
    when = pd.Timestamp("2026-01-01") + pd.to_timedelta(table()["when"], unit="h")
    hours = fp.Predictor.from_bundle(
        replace(bundle_of(BUNDLE.recipe.model_copy(update={"time_measure": "hours"})), table=predictor().table)
    )
    found = hours.predict(table().assign(when=when))
    assert found["at"].tolist()[0] == "2026-01-03T12:00:00"
    assert all(found["until"] > found["at"])


def test_of_a_repaired_machine_the_latest_life_is_told() -> None:
    rows = table()
    rows["who"] = rows["who"].replace({FLEET.ids[1]: FLEET.ids[0]})
    assert predictor(new_life="time").predict(rows)["unit"].tolist() == [f"{FLEET.ids[0]}#2", FLEET.ids[2]]


def test_a_unit_of_one_row_is_answered() -> None:
    found = predictor().predict(table().groupby("who").head(1))
    assert found["state"].tolist() == ["warming-up"] * 3


def test_what_cannot_be_predicted_is_said() -> None:
    with refuses(DataError, "frame", "row 1", f"unit {FLEET.ids[-1]}"):
        predictor().predict(table().iloc[::-1])
    with refuses(DataError, "frame", "rows"):
        predictor().predict(table().head(0))
    with refuses(DataError, "list"):
        predictor().predict([1, 2])  # type: ignore[call-overload]
    with refuses(DataError, 'time="..."', "who, when"):
        fp.Predictor.from_bundle(BUNDLE).predict(table())
    with refuses(ConfigError, "'trian'", "'train'"):
        fp.run("demo", trian={"steps": 1})
