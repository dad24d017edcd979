"""Tables from small records, against numbers worked out by hand."""

from __future__ import annotations

import math

from small_records import battery_record, turbofan_record

from studies.lines import Column, comparisons
from studies.markdown import BLANK
from studies.paper import paper
from studies.samples import Sample, paired
from studies.tables_bars import bars_table
from studies.tables_comparison import comparison_table, differences_table
from studies.tables_paper import battery_table, turbofan_table


def cells(text: str) -> list[list[str]]:
    plain = text.replace(BLANK, " ").replace("<br>", "; ")
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in plain.splitlines()[2:]]


def found(text: str, *begins: str) -> list[str]:
    return next(c for c in cells(text) if c[: len(begins)] == list(begins))


def test_every_row_of_the_papers_battery_table_is_there_and_fedavg_on_its_pairs() -> None:
    rows = cells(battery_table(paper().battery, None, None))
    printed = [r for r in rows if r[3] != "–"]
    assert len(printed) == 15
    assert [(r[0], r[1]) for r in rows if r[3] == "–"] == [
        ("B0006", "B0006, B0018"),
        ("B0007", "B0006, B0007"),
        ("B0018", "B0006, B0018"),
    ]


def test_battery_cells_hold_mean_spread_rounds_and_improvement() -> None:
    table = battery_table(paper().battery, battery_record(), battery_record("battery-tuned"))
    spread = f"{math.sqrt(0.0002):.4f}"  # of 0.04 and 0.06
    local = found(table, "B0006", "B0006", "Local")
    error = f"0.0500 ± {spread}"
    assert local[3:] == ["0.04979", error, error, error]
    fedavg = found(table, "B0006", "all three", "FedAvg")
    assert fedavg[3] == "0.04588; round 4, IMP 7.9 %"
    # The best rounds on the test are 2 and 1: 0.04 and 0.02, mean 0.03, 40 % below training alone.
    assert fedavg[4] == f"0.0300 ± {spread}; round 1–2, IMP 40.0 %"
    # What was chosen without the test is the last round: 0.05 and 0.03.
    assert fedavg[5:] == [f"0.0400 ± {spread}; round 3, IMP 20.0 %"] * 2


def test_turbofan_improvement_is_that_of_fedma_over_the_rows_own_model() -> None:
    table = turbofan_table(paper().turbofan, None, turbofan_record())
    under = found(table, "heterogeneous", "life-under-200; (HT1)", "Local")
    # (40.2 - 20.2) / 40.2
    assert under[3:] == ["39.26; IMP 30.7 %", "–", "–", "raw 40.20 ± 0.16; capped 30.00 ± 0.00; IMP 49.8 %"]
    assert found(table, "heterogeneous", "all three", "Central")[-1].endswith("IMP −1.0 %")
    assert found(table, "heterogeneous", "all three", "FedMA")[3:] == [
        "27.22; round 4",
        "–",
        "–",
        "raw 20.20 ± 0.00; capped 13.86 ± 0.00; round 1",
    ]


def test_equal_heads_are_compared_with_what_they_cost() -> None:
    table = comparison_table(comparisons(battery_record())[0])
    local = found(table, "mean", "Local", "own")
    # Pooled over three tests of ten points: sqrt((0.04² + 0.02² + 0.02²) / 3) and sqrt((0.06² + 0.04² + 0.02²) / 3).
    each = [math.sqrt((0.0016 + 0.0004 + 0.0004) / 3), math.sqrt((0.0036 + 0.0016 + 0.0004) / 3)]
    assert local[6].startswith(f"{sum(each) / 2:.4f} ± ")
    fedma = found(table, "mean", "FedMA", "all")
    assert fedma[3] == "**0.0250 ± 0.0071**"
    assert fedma[7:] == ["12", "300", "5", "5 MB", "2"]
    assert found(table, "–", "Ridge", "own")[3] == "0.0300"


def test_differences_are_paired_over_seeds() -> None:
    table = differences_table(comparisons(turbofan_record())[0])
    assert table is not None
    # FedMA minus concat: 0.2, 0.1, 0, -0.1, -0.2; mean 0, t(4) = 2.776, deviation 0.158: 2.776 * 0.158 / sqrt(5).
    assert found(table, "exact", "Concat")[2] == "0.00 [−0.20, +0.20]"
    assert found(table, "exact", "Central")[2:] == ["**+0.20** [+0.20, +0.20]", "**−0.14** [−0.14, −0.14]"]


def test_only_seeds_that_both_have_are_paired() -> None:
    assert paired(Sample({0: 1.0}, {}), Sample({1: 1.0}, {})) is None
    gap = paired(Sample({0: 5.0, 1: 1.0}, {}), Sample({1: 0.5, 2: 7.0}, {}))
    assert gap is not None
    assert (gap.mean, gap.low, gap.high) == (0.5, None, None)


def test_bars_are_judged_by_the_mean_over_enough_seeds() -> None:
    table = bars_table(paper(), {"turbofan-tuned": turbofan_record()})
    assert found(table, "FD004 heterogeneous, windows, raw", "FedMA")[6:] == ["20.20 ± 0.00", "yes", "yes"]
    assert found(table, "FD004 heterogeneous, windows, capped", "FedMA")[6:] == ["13.86 ± 0.00", "yes", "**no**"]
    against = found(table, "FD004 heterogeneous, windows, raw: against our Central", "FedMA")
    assert against[3:] == ["+1.8 %", "+2 %", "0 %, one round", "+1.0 %", "yes", "**no**"]
    capped = found(table, "FD004 heterogeneous, windows, capped: against our Central", "FedMA")
    assert capped[6:] == ["−1.0 %", "yes", "yes"]
    assert found(table, "B0006", "Linear head")[6:] == ["–", "–", "–"]
    few = bars_table(paper(), {"turbofan-tuned": turbofan_record(seeds=2)})
    assert found(few, "FD004 heterogeneous, windows, raw", "FedMA")[7] == "yes, on 2 of 5 seeds"


def test_an_error_must_be_below_its_bar_and_below_the_paper() -> None:
    limits = {bar.case: bar.limit for bar in paper().bars.errors}
    assert limits["B0006"] == 0.0145
    assert limits["FD004 heterogeneous, windows, raw"] == 22.8


def test_the_round_that_is_best_on_the_test_is_chosen_for_each_test_and_seed() -> None:
    place = comparisons(battery_record())[0]
    best = place.best_on_test("fedma", "mean", "B0006")
    assert best is not None
    assert (best.by_seed, best.rounds) == ({0: 0.01, 1: 0.03}, {0: 3, 1: 2})
    assert place.best_on_test("fedma", "mean", "B0007") is None
    line = place.line("fedma", "mean")
    assert line is not None
    chosen = line.sample(Column("", "B0006", "rmse"))
    assert chosen is not None
    assert chosen.rounds == {0: 2, 1: 2}
