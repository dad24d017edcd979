"""Who trains: owners that have seen a unit fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedprognos.evaluation import Baseline, EvaluationOptions, baselines
from fedprognos.experiment import config
from fedprognos.experiment.evaluator import assess_baselines, evaluation_windows
from fedprognos.experiment.scenario import deal_scenarios
from fedprognos.fleet import Fleet
from fedprognos.fleet.readers import Source
from refusals import warns
from small_fleets import recipe_of, series_fleet

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
    with warns("client b"):
        dealt = deal_scenarios(EXPERIMENT, Source(fleet, test_fraction=0.25))["owners"]
    assert set(dealt.clients) == set(dealt.tests) == set(dealt.whole) == {"a", "c"}


def test_test_units_of_an_owner_left_out_are_not_tested() -> None:
    with warns("client b"):
        dealt = deal_scenarios(EXPERIMENT, Source(owned_fleet(running="b"), test=owned_fleet(running="")))["owners"]
    assert set(dealt.clients) == set(dealt.tests) == {"a", "c"}


@pytest.mark.parametrize(("most", "fits"), [(2, 1), (3, 4), (None, 4)])
def test_a_dear_baseline_is_fitted_to_each_owner_only_where_they_are_few(most: int | None, fits: int) -> None:
    trained: list[int] = []
    dear = Baseline("dear", "Dear", 9, lambda train, recipe: trained.append(len(train)), most_owners=most)
    dealt = deal_scenarios(EXPERIMENT, Source(owned_fleet(running=""), test_fraction=0.25))["owners"]
    recipe = recipe_of(owned_fleet(running=""), window=5)
    with baselines.including([dear]):
        assess_baselines(evaluation_windows(dealt, recipe, EvaluationOptions()), dealt, ["dear"])
    assert len(trained) == fits
    assert max(trained) == sum(len(fleet) * (40 - 4) for fleet in dealt.clients.values())
