"""The page of own tables shows what was measured, and names what was not run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from studies.own_tables import CASES, HEADER, Case, boosted, errors, fleet_table, page


def engines(path: Path, count: int = 12) -> Path:
    """A file in the layout of C-MAPSS whose first sensor rises towards failure."""
    rng, rows = np.random.default_rng(0), []
    for unit in range(1, count + 1):
        life = int(rng.integers(30, 60))
        lines = ([unit, k, 0, 0, 100, (k / life) ** 2 * 50, *rng.normal(size=20)] for k in range(1, life + 1))
        rows.extend(lines)
    np.savetxt(path, np.array(rows))
    return path


def test_engines_are_dealt_out_by_lot_by_size_and_by_lifespan(tmp_path: Path) -> None:
    path = engines(tmp_path / "train.txt")
    sizes = {}
    for by in ("lot", "size", "lifespan"):
        frame = fleet_table(path, Case("FD001", by, 3))
        assert list(frame.columns) == [*HEADER, "betreiber"]
        sizes[by] = sorted(frame.groupby("betreiber")["maschine"].nunique())
    assert sizes == {"lot": [4, 4, 4], "size": [2, 3, 7], "lifespan": [4, 4, 4]}


def test_boosting_learns_from_rolling_features(tmp_path: Path) -> None:
    frame = fleet_table(engines(tmp_path / "train.txt"), Case("FD001", "lot", 3))
    cut = pd.concat([life.iloc[:-15] for _, life in frame.groupby("maschine")], ignore_index=True)
    assert errors(boosted(frame, cut), np.full(12, 15.0))["rmse_capped"] < 5


def test_the_page_names_cases_that_were_not_run() -> None:
    held = {"covered": 0.91, "covered_by_third": [0.9, 0.92, 0.9], "width_at_rul_50_or_less": 15.2, "largest_jump": 2.0}
    measured = {"rmse_capped": 10.5, "rmse_capped_at_rul_30_or_less": 3.1, "method": "concat", "seconds": 600,
                "boosting": {"rmse_capped": 15.0}, "intervals": held}  # fmt: skip
    text = page({CASES[0].name: measured})
    assert text.count("not run") == len(CASES) - 1
    assert "30\u00a0%" in text
    assert "90 / 92 / 90" in text
