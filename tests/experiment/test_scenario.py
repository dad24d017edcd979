"""Who trains: owners that have seen a unit fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedprognos.experiment import config
from fedprognos.experiment.scenario import deal_scenarios
from fedprognos.fleet import Fleet
from fedprognos.fleet.readers import Source
from small_fleets import series_fleet

EXPERIMENT = config.Experiment.model_validate(
    {"data": {"kind": "synthetic-engines"}, "partition": {"owners": {"by": "column", "column": "site"}}}
)


def owned_fleet(running: str) -> Fleet:
    """Four machines each of three owners; those of some owners still run."""
    fleet = series_fleet([40] * 12)
    units = [replace(unit, attributes={"site": "abc"[k % 3]}) for k, unit in enumerate(fleet)]
    still = [replace(u, rul_at_end=None, failed=False) if str(u.attributes["site"]) in running else u for u in units]
    return fleet.select(still)


def test_an_owner_whose_machines_all_run_is_left_out_by_name() -> None:
    fleet = owned_fleet(running="b")
    with pytest.warns(UserWarning, match="client b"):
        dealt = deal_scenarios(EXPERIMENT, Source(fleet, test_fraction=0.25))["owners"]
    assert set(dealt.clients) == set(dealt.tests) == set(dealt.whole) == {"a", "c"}


def test_test_units_of_an_owner_left_out_are_not_tested() -> None:
    with pytest.warns(UserWarning, match="client b"):
        dealt = deal_scenarios(EXPERIMENT, Source(owned_fleet(running="b"), test=owned_fleet(running="")))["owners"]
    assert set(dealt.clients) == set(dealt.tests) == {"a", "c"}
