"""Whether the sensor that was broken is among the first three that explain a health, and what an explanation costs.

Sensors that are flagged, or at odds with the others, come first. What effects alone would say is shown beside it.

Uses the model, the kept-out engines and the faults of `benchmarks/fault_lives.py`, one broken copy of each engine, at
the end of its life. Writes build/benchmarks/explanations.json.

    python benchmarks/explanations.py
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
from fault_lives import DATA, deviations, kept_out, trained, with_fault

from fedprognos.fleet.readers.cmapss import read_cmapss_train
from fedprognos.prognosis import explain
from fedprognos.prognosis.predictor import table_of

OUT = Path("build/benchmarks/explanations.json")
FAULTS = ("offset 1", "offset 2", "offset 3", "drift 0.02", "drift 0.05", "frozen", "dither", "dead")


def main() -> None:
    fleet = read_cmapss_train(DATA / "train_FD001.txt", "FD001")
    predictor, others = trained(fleet, "FD001", 0, 400), kept_out(fleet, 0)
    columns = predictor.recipe.check(fleet.schema, "benchmark")
    results: dict[str, float] = {}
    explaining, predicting = 0.0, 0.0
    explain(predictor, table_of(fleet.units[0], columns))  # the first one loads SciPy
    for fault in FAULTS:
        named, by_effect = [], []
        for k, unit in enumerate(unit for unit in fleet if unit.id in others):
            broken, _ = with_fault(unit, columns[0], deviations(predictor, unit, columns[1]), fault, k)
            (changed,) = np.flatnonzero((broken.sensors != unit.sensors).any(axis=0))
            started = time.process_time()
            explained = explain(predictor, table_of(broken, columns))
            between = time.process_time()
            predictor.predict(fleet.select([broken]))
            predicting += time.process_time() - between
            explaining += between - started
            effects = sorted(explained.causes, key=lambda cause: -abs(cause.effect))
            for hits, causes in ((named, explained.causes), (by_effect, effects)):
                hits.append(fleet.schema.sensors[changed] in [cause.sensor for cause in causes[:3]])
        results[fault], results[f"{fault}, by effect alone"] = float(np.mean(named)), float(np.mean(by_effect))
        print(
            f"{fault:12} the broken sensor is among the first three: {results[fault]:.0%}, "
            f"by effect alone {np.mean(by_effect):.0%}",
            flush=True,
        )
    results["time of predictions"] = explaining / predicting
    print(f"an explanation takes {explaining / predicting:.2f} times as long as a prediction")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
