from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedprognos.fleet import Fleet
from fedprognos.fleet.data_remarks import quality_notes


def pumps() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = []
    for k in range(6):
        hours = np.arange(1, 101)
        heat = 20 + 0.1 * hours + rng.normal(size=100)
        rows.append(pd.DataFrame({"pump": f"p{k}", "hour": hours, "heat": heat, "flow": rng.normal(size=100)}))
    return pd.concat(rows, ignore_index=True)


def read(frame: pd.DataFrame) -> Fleet:
    return Fleet.from_frame(frame, unit="pump", time="hour")


def test_sound_data_is_not_remarked_on() -> None:
    assert quality_notes(read(pumps())) == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda f: f.assign(heat=f["heat"].where(f["pump"] != "p1", 21.0)), ("'heat'", "never", "p1")),
        (
            lambda f: f.assign(heat=f["heat"].mask((f["pump"] == "p2") & f["hour"].between(40, 80), 21.0)),
            ("'heat'", "one value", "p2"),
        ),
        (lambda f: f.assign(flow=f["flow"].mask(f["hour"] == 1, 500.0)), ("first row", "flow", "6 of 6")),
        (lambda f: f[(f["pump"] != "p3") | ~f["hour"].between(50, 70)], ("1 gap", "p3")),
        (lambda f: f[(f["pump"] != "p4") | (f["hour"] < 15)], ("1 of 6", "p4")),
    ],
)
def test_each_fault_is_one_sentence_that_names_the_units(fault, words) -> None:  # type: ignore[no-untyped-def]
    fleet = read(fault(pumps()).reset_index(drop=True))
    (note,) = quality_notes(fleet)
    assert all(word in note for word in words), note
    assert note in fleet.notes
