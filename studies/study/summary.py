"""From measurements to lines: errors over seeds, and differences that are paired engine by engine."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedprognos.arrays import BoolArray, FloatArray
from fedprognos.evaluation.comparison import RESAMPLES, Difference, change_by_unit
from fedprognos.experiment import config
from fedprognos.files import write_json
from studies.study.measure import MEASURED, PRESET, TESTS, read_measured

DESCRIBED = ("width", "parameters", "bytes", "alone")
"""Numbers of a model that are means over seeds."""
Key = tuple[Any, ...]
KEYS = ("part", "scenario", "change", "method", "newcomer", "share", "round")
"""What lines are told apart by."""


@dataclass(frozen=True, eq=False)
class Lines:
    """Squared errors of every line: (seeds, engines), labels capped or raw."""

    kinds: tuple[str, ...]
    capped: Mapping[Key, FloatArray]
    raw: Mapping[Key, FloatArray]
    facts: Mapping[Key, Mapping[str, float]]

    @classmethod
    def from_entries(cls, entries: Iterable[Mapping[str, Any]], tests: Mapping[str, Any]) -> Lines:
        """Measurements of the same thing with different seeds become one line."""
        truth = np.array(tests["truth"])
        predictions: dict[Key, dict[int, list[FloatArray]]] = defaultdict(lambda: defaultdict(list))
        facts: dict[Key, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        seen: dict[Key, int] = defaultdict(int)
        for entry in entries:
            key = tuple(entry.get(name) for name in KEYS)
            if entry["method"] == "alone" and entry["part"] == "one exchange":
                place = 0
            else:
                place = seen[entry["task"], key]
                seen[entry["task"], key] += 1
            predictions[*key, place][entry["seed"]].append(np.array(entry["said"]))
            for name in DESCRIBED:
                if entry.get(name) is not None:
                    facts[*key, place][name].append(float(entry[name]))
        cap = tests["cap"]
        capped = {k: _squares(v, np.minimum(truth, cap)) for k, v in predictions.items()}
        raw = {k: _squares(v, truth) for k, v in predictions.items()}
        means = {k: {name: float(np.mean(v)) for name, v in rows.items()} for k, rows in facts.items()}
        return cls(tuple(tests["kind"]), capped, raw, means)

    def line(self, key: Key, against: Key | None = None, kind: str | None = None) -> dict[str, Any]:
        """A line of a table: error, spread over seeds, and the paired difference to another line."""
        chosen: BoolArray = np.array([kind is None or k == kind for k in self.kinds])
        squares = self.capped[key][:, chosen]
        each = np.sqrt(squares.mean(axis=1))
        rows: dict[str, Any] = {
            **{name: value for name, value in zip((*KEYS, "place"), key, strict=True) if value not in (None, "")},
            **{name: round(value, 1) for name, value in self.facts.get(key, {}).items()},
            "rmse": _four(np.sqrt(squares.mean())),
            "spread": _four(each.std(ddof=1)) if len(each) > 1 else None,
            "rmse_raw": _four(np.sqrt(self.raw[key][:, chosen].mean())),
            "seeds": len(each),
            "engines": int(chosen.sum()),
        }
        if against is not None and against in self.capped:
            rows["difference"] = _in_percent(change_by_unit(squares, self.capped[against][:, chosen]))
        return rows

    def keys(self, **wanted: Any) -> list[Key]:
        """Lines with these values."""
        places = {name: k for k, name in enumerate((*KEYS, "place"))}
        return [key for key in self.capped if all(key[places[name]] == value for name, value in wanted.items())]


def _squares(predictions: Mapping[int, Sequence[FloatArray]], truth: FloatArray) -> FloatArray:
    """Squared errors by seed; where one seed has several models, their mean."""
    by_seed = [models for _, models in sorted(predictions.items())]
    return np.array([np.mean([(model - truth) ** 2 for model in models], axis=0) for models in by_seed])


def _in_percent(difference: Difference) -> list[float]:
    return [round(100 * share, 2) for share in (difference.mean, difference.low or 0.0, difference.high or 0.0)]


def _four(value: float) -> float:
    return float(f"{value:.4g}")


def write_summary(folder: Path, out: Path, preset: str = PRESET) -> list[Path]:
    """One JSON file a part, from the measurements there are.

    Lines of scenarios that were not measured in this folder stay as they were, if the settings are the same.
    """
    tests = json.loads((folder / TESTS).read_text("utf-8"))
    measured = read_measured(folder / MEASURED)
    lines = Lines.from_entries([entry for entry in measured if "said" in entry], tests)
    experiment = config.load(preset)[1].dump()
    about = {
        "preset": preset,
        **{section: experiment[section] for section in ("model", "train")},
        "cap": tests["cap"],
        "engines": len(tests["truth"]),
        "resamples": RESAMPLES,
    }
    parts = {
        "one-exchange": _against(lines, "one exchange", "concat"),
        "rounds": _rounds(lines),
        "newcomers": _newcomers(lines),
        "recipe": _recipe(lines),
        "different-widths": _against(lines, "different widths", "concat"),
    }
    for name, rows in parts.items():
        if rows:
            every = [*rows, *_measured_elsewhere(out / f"{name}.json", about, rows)]
            seeds = max(line["seeds"] for line in every)
            write_json(out / f"{name}.json", {"about": {**about, "seeds": seeds}, "lines": every})
    return [out / f"{name}.json" for name, rows in parts.items() if rows]


def _measured_elsewhere(path: Path, about: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Earlier lines of the same settings, of scenarios that are not among those found."""
    if not path.is_file():
        return []
    earlier = json.loads(path.read_text("utf-8"))
    if any(earlier["about"].get(key) != json.loads(json.dumps(value)) for key, value in about.items()):
        return []
    here = {(line["part"], line.get("scenario")) for line in rows}
    return [line for line in earlier["lines"] if (line["part"], line.get("scenario")) not in here]


def _against(lines: Lines, part: str, method: str) -> list[dict[str, Any]]:
    """Every line of a part beside what a method gives in the same scenario; central training and the reservoir too."""
    rows = []
    for scenario in dict.fromkeys(key[1] for key in lines.keys(part=part)):
        other = next(iter(lines.keys(part=part, scenario=scenario, method=method)), None)
        rows += [lines.line(key, other) for key in lines.keys(part=part, scenario=scenario)]
    if part == "one exchange":
        other = next(iter(lines.keys(part=part, scenario="lifespan-3", method=method)), None)
        rows += [lines.line(key, other) for p in ("central", "reservoir") for key in lines.keys(part=p)]
    return rows


def _rounds(lines: Lines) -> list[dict[str, Any]]:
    """Every round of every course, beside absorption in one exchange."""
    other = next(iter(lines.keys(part="rounds", method="Absorb, one exchange")), None)
    return [lines.line(key, other) for key in lines.keys(part="rounds")]


def _newcomers(lines: Lines) -> list[dict[str, Any]]:
    """On engines of the newcomer's own kind: beside never taking part. On every kind: without a client, beside all."""
    rows = []
    everybody = next(iter(lines.keys(part="newcomers", method="everybody")), None)
    names = list(dict.fromkeys(key[4] for key in lines.keys(part="newcomers") if key[4]))
    for name in names:
        others = next(iter(lines.keys(part="newcomers", method="others", newcomer=name)))
        rows += [{**lines.line(k, others, name), "kind": name} for k in lines.keys(part="newcomers", newcomer=name)]
        if everybody is not None:
            rows += [
                {**lines.line(others, everybody, kind), "kind": kind, "method": "without"} for kind in (*names, None)
            ]
    return rows


def _recipe(lines: Lines) -> list[dict[str, Any]]:
    """Every change beside the recipe as it is, method by method."""
    rows = []
    for key in lines.keys(part="recipe"):
        other = lines.keys(part="recipe", change="as it is", method=key[3])
        rows.append(lines.line(key, other[0] if other else None))
    plain = next(iter(lines.keys(part="recipe", change="as it is", method="absorb")), None)
    for key in lines.keys(part="beside"):
        central = next(iter(lines.keys(part="beside central", method=key[3].replace("absorb", "central"))), None)
        rows.append(lines.line(key, plain))
        if central is not None:
            rows.append({**lines.line(key, central), "part": "beside central", "central": lines.line(central)["rmse"]})
    return rows
