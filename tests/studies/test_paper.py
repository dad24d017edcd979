"""The paper's numbers agree with each other."""

from __future__ import annotations

import pytest

from studies.paper import PaperRow, paper
from studies.samples import improvement


def test_battery_improvements_follow_from_the_errors() -> None:
    rows = paper().battery.rows
    local = {row.test: row.rmse for row in rows if row.method == "local"}
    checked = [row for row in rows if row.imp is not None]
    assert len(checked) == 9
    for row in checked:
        assert row.rmse is not None
        alone = local[row.test]
        assert alone is not None
        assert 100 * improvement(alone, row.rmse) == pytest.approx(row.imp, abs=0.06), row


def test_turbofan_improvements_follow_from_the_errors() -> None:
    rows = paper().turbofan.rows
    federated = {row.scenario: row for row in rows if row.method == "fedma"}
    for row in rows:
        if row.imp is not None:
            assert row.rmse is not None
            assert 100 * improvement(row.rmse, _error(federated[row.scenario])) == pytest.approx(row.imp, abs=0.06), row


def test_only_federated_rows_have_a_best_round() -> None:
    for table in (paper().battery, paper().turbofan):
        for row in table.rows:
            assert (row.round is not None) == (row.method in ("fedavg", "fedma") and row.rmse is not None), row


def _error(row: PaperRow) -> float:
    assert row.rmse is not None
    return row.rmse
