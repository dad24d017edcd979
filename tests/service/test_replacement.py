"""The best moment to replace: against a search by hand, and where there is none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from services import rows_of, running, small_bundle

from fedprognos.errors import ConfigError
from fedprognos.networks import Calibration
from fedprognos.prognosis import Health
from fedprognos.service import ServiceOptions
from fedprognos.service.forecasts import Clock, Costs, best_replacement
from small_fleets import cyclic_fleet, series_fleet

EVEN = Calibration(
    ranges=(), edges=(-0.5, 0.0, 0.5), counts=((0, 500, 500, 0),), units=(50,), unit=20.0, growing=False, cap=125.0
)
"""The true value is anywhere within 10 of the prediction, each as likely."""
CLOCK = Clock(100.0, 1.8e9, 10 / 86400)


def health(value: float, *flags: str) -> Health:
    return Health("pump", 100.0, value, flags=flags)


@given(st.floats(15, 100), st.floats(1.1, 100))
def test_the_best_moment_costs_least_per_cycle(value: float, ratio: float) -> None:
    answer = best_replacement(Costs(ratio, 1.0), EVEN, health(value), 0.0, CLOCK)
    assert answer is not None
    ahead = np.linspace(0, min(value + 40, 125), 20001)
    failed = np.clip((ahead - value + 10) / 20, 0, 1)
    lived = 100 + np.concatenate([[0], np.cumsum(1 - (failed[1:] + failed[:-1]) / 2) * ahead[1]])
    rates = (1 + (ratio - 1) * failed) / lived
    assert answer.cost_rate == pytest.approx(rates.min(), rel=5e-3)
    if answer.best is not None:
        assert answer.best.cost == pytest.approx(0, abs=1e-9)
        assert np.interp(answer.best.position - 100, ahead, rates) == pytest.approx(rates.min(), rel=5e-3)
        assert answer.best.breakdown == pytest.approx(np.interp(answer.best.position - 100, ahead, failed), abs=1e-6)
    assert all(moment.cost >= 0 for moment in answer.waiting)


def test_dearer_breakdowns_are_met_earlier() -> None:
    answers = [best_replacement(Costs(cost, 1.0), EVEN, health(40), 0.0, CLOCK) for cost in (1.05, 2.0, 10.0)]
    places = [answer.best.position for answer in answers if answer is not None and answer.best is not None]
    assert len(places) == 3 and places == sorted(places, reverse=True) and places[0] > places[-1]
    assert places[-1] == pytest.approx(130, abs=1)  # before that nothing can break


@pytest.mark.parametrize("flag", ["at-cap", "mid-life", "stuck", "unknown-wear"])
def test_no_moment_where_the_value_does_not_give_one(flag: str) -> None:
    assert best_replacement(Costs(5, 1), EVEN, health(40, flag), 0.0, CLOCK) is None
    assert best_replacement(Costs(5, 1), EVEN, None, 0.0, CLOCK) is None


@pytest.mark.parametrize(("breakdown", "replacement"), [(5.0, None), (None, 1.0), (1.0, 5.0), (5.0, 0.0)])
def test_costs_that_make_no_sense_are_refused(breakdown: float | None, replacement: float | None) -> None:
    with pytest.raises(ConfigError):
        ServiceOptions(breakdown_cost=breakdown, replacement_cost=replacement).check()


def test_the_service_says_it_where_the_model_has_intervals() -> None:
    fleet = series_fleet([60, 40])
    bundle = small_bundle(fleet)
    costs = {"breakdown_cost": 10.0, "replacement_cost": 1.0}
    for other in (bundle, small_bundle(cyclic_fleet())):
        with pytest.raises(ConfigError), running(other, **costs):
            pass
    calibrated = type(bundle)(bundle.recipe, bundle.network, calibration=EVEN)
    rows = rows_of(fleet["engines-0"], fleet)
    with running(calibrated, **costs) as client:
        client.post("/v1/rows", json=rows)
        answer = client.get("/v1/units/engines-0").json()
        best = answer["replacement"]["best"]
        assert answer["position"] <= best["position"] <= answer["position"] + answer["health"]["value"]
        assert best["cost"] == pytest.approx(0) and len(answer["replacement"]["waiting"]) == 11
    with running(calibrated) as client:
        client.post("/v1/rows", json=rows)
        assert client.get("/v1/units/engines-0").json()["replacement"] is None
