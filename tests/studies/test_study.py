"""The study: differences are paired, conclusions follow the numbers, and what was measured is not measured again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedprognos.experiment import config
from studies.study.measure import MEASURED, TESTS, measure, read_measured, tasks
from studies.study.page import page
from studies.study.parts import Model, Task
from studies.study.summary import write_summary

TRUTH = [100.0, 60.0, 150.0, 20.0]


def entry(method: str, seed: int, off: float, **more: Any) -> dict[str, Any]:
    """A model that is off by so many cycles on every engine."""
    said = [min(t, 130.0) + off for t in TRUTH]
    facts = {"part": "one exchange", "scenario": "lifespan-3", "change": "", "width": 96, "bytes": 2_000_000}
    return {"task": f"t{seed}{more}", "method": method, "seed": seed, "said": said, "parameters": 1000, **facts, **more}


def written(folder: Path, entries: list[dict[str, Any]]) -> str:
    kinds = ["life-under-200", "life-200-350", "life-over-350", "life-under-200"]
    tests = {"truth": TRUTH, "kind": kinds, "cap": 130, "measure": "cycles"}
    (folder / TESTS).write_text(json.dumps(tests), "utf-8")
    (folder / MEASURED).write_text(json.dumps({"all": entries}), "utf-8")
    out = folder / "study"
    out.mkdir()
    write_summary(folder, out)
    return page(out)


@pytest.mark.parametrize(
    ("off", "verdict"),
    [(8.0, "is better than"), (12.0, "is worse than"), (10.0, "is not clearly different from")],
)
def test_conclusions_follow_the_numbers_whichever_sign(off: float, verdict: str, tmp_path: Path) -> None:
    text = written(tmp_path, [entry(m, s, e) for s in range(3) for m, e in (("absorb", off), ("concat", 10.0))])
    percent = f"{10 * off - 100:+.1f} %".replace("-", "−")
    assert f"3 clients by lifespan: absorbing to 96 neurons {verdict} keeping them all ({percent}" in text
    assert f"| absorb | 96 | 1,000 | 2.0 | {off:.2f} ± 0.00 |" in text


@pytest.mark.parametrize(("off", "listed"), [(10.0, "+0.0 %? (3"), (12.0, "+20.0 % (3")])
def test_a_listed_difference_that_is_not_clear_has_a_question_mark(off: float, listed: str, tmp_path: Path) -> None:
    models = (("best single body", off), ("concat", 10.0))
    text = written(tmp_path, [entry(m, s, e, width=96) for s in range(3) for m, e in models])
    assert f"Best single body, against keeping them all: {listed}" in text


def test_what_was_measured_elsewhere_stays_on_the_page(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
    written(old, [entry("absorb", 0, 5.0), entry("absorb", 0, 6.0, scenario="lifespan-10")])
    shutil.copytree(old / "study", new / "kept")
    written(new, [entry("absorb", s, 7.0, scenario="lifespan-10") for s in (0, 1)])
    write_summary(new, new / "kept")
    lines = json.loads((new / "kept" / "one-exchange.json").read_text())["lines"]
    assert {(line["scenario"], line["rmse"], line["seeds"]) for line in lines} == {
        ("lifespan-3", 5.0, 1),
        ("lifespan-10", 7.0, 2),
    }
    path = new / "kept" / "one-exchange.json"
    path.write_text(path.read_text().replace('"cap": 130', '"cap": 125'))
    write_summary(new, new / "kept")
    assert {line["scenario"] for line in json.loads(path.read_text())["lines"]} == {"lifespan-10"}


def test_newcomers_are_judged_on_their_own_kind(tmp_path: Path) -> None:
    def told(method: str, off: float, **more: Any) -> dict[str, Any]:
        return entry(method, 0, off, part="newcomers", **more)

    new = {"newcomer": "life-over-350"}
    text = written(
        tmp_path,
        [
            told("everybody", 5.0, newcomer=""),
            told("others", 10.0, share=0.0, **new),
            told("alone", 20.0, share=0.1, **new),
            told("joined", 8.0, share=0.1, **new),
        ],
    )
    assert "### life-over-350 (1 test engines of that kind)" in text
    assert "| 10 % |  | 20.00 +100.0 % (+100.0 % to +100.0 %) |  | 8.00 −20.0 % (−20.0 % to −20.0 %) |" in text
    assert "| life-over-350 | +100.0 % (+100.0 % to +100.0 %) |" in text  # left out: twice the error of everybody


def test_every_task_has_a_name_of_its_own_and_a_scenario_of_the_preset() -> None:
    every = list(tasks())
    assert len({task.key for task in every}) == len(every)
    assert {task.scenario for task in every} <= set(config.load("study-clients")[1].partition)
    for task in every:
        config.load("study-clients", task.overrides)


@pytest.mark.needs_data
def test_what_was_measured_is_kept_and_not_measured_again(tmp_path: Path) -> None:
    calls: list[int] = []

    def part(bench: Any) -> Any:
        calls.append(bench.seed)
        yield Model("nothing", np.zeros(len(bench.tests)))

    every = [Task("one exchange", "lifespan-3", part, seed) for seed in range(2)]
    for _ in range(2):
        measure(folder=tmp_path, wanted=iter(every), tell=lambda text: None)
    assert calls == [0, 1]
    assert [e["seed"] for e in read_measured(tmp_path / MEASURED)] == [0, 1]
    assert len(json.loads((tmp_path / TESTS).read_text("utf-8"))["truth"]) == 228


@pytest.mark.long
@pytest.mark.needs_data
@pytest.mark.parametrize("part", ["one exchange", "rounds", "newcomers", "recipe", "beside", "different widths"])
def test_every_part_runs_on_real_engines(part: str, tmp_path: Path) -> None:
    task = next(task for task in tasks() if task.part == part)
    small = ("model.widths=[8]", "train.steps=6")
    measure(folder=tmp_path, wanted=iter([Task(task.part, task.scenario, task.run, 0, small)]), tell=lambda text: None)
    found = read_measured(tmp_path / MEASURED)
    assert len(found) >= 2
    assert all(np.isfinite(e["said"]).all() and len(e["said"]) == 228 for e in found)
