"""How wide absorption leaves a network: who judges, and which width the kept-out engines choose."""

from __future__ import annotations

import pytest

from fedprognos.experiment.scenario import Scenario
from fedprognos.fleet.synthetic import synthetic_engines
from studies.absorb_widths import ALL, CONCAT, Cell, cells, chosen, page, without_judges


def entry(kept_out: float, judged: float, neurons: int) -> dict[str, float]:
    return {"kept out": kept_out, "judged": judged, "neurons": neurons}


@pytest.mark.parametrize(
    ("errors", "width"), [((10.05, 9.0, 8.0), "1.5"), ((10.2, 10.1, 9.0), "2.5"), ((10.2, 10.2, 10.2), ALL)]
)
def test_the_narrowest_width_as_good_as_all_neurons_is_chosen(errors: tuple[float, ...], width: str) -> None:
    tried = dict(zip(("1.5", "2.5", "4"), errors, strict=True))
    assert chosen({ALL: entry(10.0, 10.0, 640), **{w: entry(e, e, 64) for w, e in tried.items()}}) == width


def test_engines_that_judge_train_nobody_and_every_client_gives_some() -> None:
    fleet, _ = synthetic_engines(sites=1, units_per_site=16, seed=0)
    dealt = {"a": fleet.select(fleet.units[:8]), "b": fleet.select(fleet.units[8:])}
    scenario, judges = without_judges(Scenario("two", dealt, {}), seed=0)
    judging = {unit.id for unit in judges}
    for name, everything in dealt.items():
        training, ids = {unit.id for unit in scenario.clients[name]}, {unit.id for unit in everything}
        assert len(training) == 6
        assert training | (judging & ids) == ids
        assert not training & judging


def test_the_page_shows_the_choice_and_names_what_is_missing() -> None:
    first, *others = cells()
    results = {first.key: {CONCAT: entry(10, 10, 192), ALL: entry(10, 10, 192), "1.5": entry(11, 11, 96)}}
    text = page(results)
    assert "| **chosen**: all | 192 |" in text
    assert Cell(first.subset, first.scenario, 1).key in text
    assert all(cell.key in text for cell in others)
