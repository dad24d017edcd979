"""Machines that still run: how engines are cut off and dealt, and what the page shows."""

from __future__ import annotations

import pytest

from fedprognos.experiment.scenario import Scenario
from fedprognos.fleet.synthetic import synthetic_engines
from studies.few_machines import OWNERS
from studies.still_running import CUTS, METHODS, SEEDS, Cell, Cut, owners_of, page, tasks


@pytest.mark.parametrize("failures", [None, 5])
def test_every_owner_has_engines_that_failed_and_others_stop_early(failures: int | None) -> None:
    fleet, _ = synthetic_engines(sites=1, units_per_site=20, seed=0)
    scenario = Scenario("all", {"everybody": fleet}, {"all": fleet})
    cell = Cell("FD001", Cut("some", None, failures), 0)
    clients, whole = (owners_of(scenario, cell, cut_off).clients for cut_off in (True, False))
    assert len(clients) == OWNERS
    assert all(any(unit.failed for unit in owner) for owner in clients.values())
    assert sum(unit.failed for owner in clients.values() for unit in owner) == 5
    for name, owner in clients.items():
        assert [unit.id for unit in owner] == [unit.id for unit in whole[name]]
        for unit in owner:
            rows = fleet[unit.id].rows
            assert unit.rows == rows if unit.failed else 0.15 * rows < unit.rows < 0.95 * rows
            assert (unit.labels() is None) is not unit.failed


def test_the_page_shows_what_was_measured_and_names_the_rest() -> None:
    results = {Cell("FD001", CUTS[0], seed).key: dict.fromkeys(METHODS, 12.5) for seed in range(SEEDS)}
    text = page(results)
    assert text.count("12.5") == len(METHODS)
    assert text.count("0 % (0 % to 0 %)".replace(" %", "\u00a0%")) == 4  # pairs of methods
    assert text.count("\n- FD00") == sum(cell.key not in results for cell, _ in tasks())
