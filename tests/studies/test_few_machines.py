"""Few machines: how engines are drawn, and what the page shows."""

from __future__ import annotations

from fedprognos.experiment.scenario import Scenario
from fedprognos.fleet.synthetic import synthetic_engines
from studies.few_machines import (
    METHODS,
    OWNERS,
    PRESETS,
    SEEDS,
    UNITS,
    Cell,
    cells,
    clear_from,
    owners_of,
    page,
    picture,
)
from studies.samples import Sample


def test_larger_draws_hold_the_smaller_ones_and_no_engine_has_two_owners() -> None:
    fleet, _ = synthetic_engines(sites=1, units_per_site=12, seed=0)
    scenario = Scenario("all", {"everybody": fleet}, {"all": fleet})
    small, large = (owners_of(scenario, Cell("FD001", units, 0)).clients for units in (2, 5))
    assert len(large) == OWNERS
    for owner in large:
        assert {u.id for u in small[owner]} < {u.id for u in large[owner]}
    assert len({u.id for f in large.values() for u in f}) == 5 * OWNERS


def test_the_page_shows_what_was_measured_and_names_the_rest() -> None:
    results = {Cell("FD001", 5, 0).key: dict.fromkeys(METHODS, 12.5)}
    text = page(results)
    assert text.count("12.5") == len(METHODS)
    assert text.count("\n- FD00") == len(list(cells())) - 1
    assert picture(results) == picture(results)
    assert len(list(cells())) == len({cell.key for cell in cells()}) == SEEDS * len(PRESETS) * len(UNITS)


def test_the_rule_needs_a_clear_gain_at_every_larger_number() -> None:
    theirs = {units: Sample({0: 10.0, 1: 10.1, 2: 9.9}, {}) for units in UNITS}
    ours = {units: Sample({0: 8.0, 1: 8.1, 2: 7.9}, {}) for units in UNITS}
    assert clear_from(ours, theirs) == str(UNITS[0])
    assert clear_from({**ours, UNITS[2]: Sample({0: 5.0, 1: 12.0, 2: 8.0}, {})}, theirs) == str(UNITS[3])
    assert clear_from(theirs, ours) == clear_from({}, theirs) == "–"
