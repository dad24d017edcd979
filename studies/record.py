"""The committed form of a run: rows, rounds and a few curves, small and one line a row, so that changes can be read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedprognos.errors import ConfigError, DataError
from fedprognos.evaluation import HistoryRow, ResultRow, Results
from fedprognos.experiment import config
from fedprognos.experiment.conclusion import methods_of
from fedprognos.federation.strategies import strategies
from fedprognos.files import write_text

DIGITS = 7
"""Significant digits of numbers in rows."""
HISTORY_DIGITS = 5
SHARED = ("scenario", "method", "head", "client", "seed")
"""Fields of history that rounds of one course have in common."""
PER_ROUND = ("round", "rmse", "rmse_capped", "validation_rmse", "width", "bytes")


@dataclass(frozen=True, eq=False)
class Record:
    """A finished preset.

    Parameters
    ----------
    versions
        Python and the packages the numbers came from.
    finished
        The day on which the run ended; known where its times lie beside it.
    pictures
        What figures need besides rows and history: see :mod:`studies.recording`.
    """

    results: Results
    versions: Mapping[str, str]
    pictures: Mapping[str, Any]
    finished: str = ""

    @property
    def preset(self) -> str:
        return self.results.experiment

    @property
    def heads(self) -> tuple[str, ...]:
        """Heads in the order the experiment asks for them; the first is the one it publishes."""
        return tuple(self.results.config["federation"]["heads"])


def changed_options(record: Record) -> list[str]:
    """Options that today's preset of that name has otherwise than the run had: its numbers are then not the preset's.

    Options that one of the two does not know are not compared, nor are those of methods that the run did not have, nor
    the list of baselines: one more of them changes no other number.
    """
    try:
        today = config.load(record.preset)[1].dump()
    except ConfigError:
        return ["the preset itself"]
    then = {k: v for k, v in record.results.config.items() if k != "title"}
    unused = set(strategies) - set(then.get("federation", {}).get("methods", ()))
    then["federation"] = {k: v for k, v in then.get("federation", {}).items() if k not in unused}
    for experiment in (then, today):  # what is not said is what the cost takes by default
        fedma = experiment["federation"].get("fedma", {})
        if fedma.get("estimate", 0) is None:
            experiment["federation"]["fedma"] = {**fedma, "estimate": fedma["cost"] == "spahm"}
    return [key for key in _changed(then, today, "") if key != "evaluation.baselines"]


def _changed(then: Mapping[str, Any], now: Mapping[str, Any], path: str) -> list[str]:
    entries = []
    for key in then.keys() & now.keys():
        where = f"{path}{key}"
        if key == "partition" and then[key].keys() != now[key].keys():
            entries.append(where)
        elif isinstance(then[key], Mapping) and isinstance(now[key], Mapping):
            entries += _changed(then[key], now[key], f"{where}.")
        elif then[key] != now[key]:
            entries.append(where)
    return sorted(entries)


def write_record(path: Path, record: Record) -> None:
    """Write the JSON; equal records give equal bytes."""
    results = record.results
    rows = [row.model_dump(mode="json") for row in results.rows]
    columns = [name for name in results.frame().columns if any(row.get(name) is not None for row in rows)]
    content = {
        "preset": record.preset,
        "seeds": results.config["evaluation"]["seeds"],
        "versions": dict(sorted(record.versions.items())),
        "config": results.config,
        "columns": columns,
        "rows": [[_rounded(row.get(name), DIGITS) for name in columns] for row in rows],
        "history": _courses(results.history),
        "pictures": record.pictures,
    }
    write_text(path, _lines(content))


def read_record(path: Path) -> Record:
    """Read what :func:`write_record` wrote."""
    try:
        raw = json.loads(path.read_text("utf-8"))
        rows = [ResultRow.model_validate(dict(zip(raw["columns"], r, strict=True))) for r in raw["rows"]]
        history = [HistoryRow.model_validate(entry) for course in raw["history"] for entry in _rounds(course)]
        version = raw["versions"]["fedprognos"]
        results = Results(raw["preset"], version, raw["config"], tuple(rows), tuple(history), methods_of(rows))
    except FileNotFoundError:
        hint = f"python -m studies run {path.stem}"
        raise DataError("no results of this preset", where=str(path), hint=hint) from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"cannot be read: {error}", where=str(path), hint="run the preset again") from None
    return Record(results, raw["versions"], raw["pictures"])


def _courses(history: Sequence[HistoryRow]) -> list[dict[str, Any]]:
    """Rounds without their epochs, one entry a course: a method with a head and a seed, tested on one client."""
    courses: dict[tuple[Any, ...], list[HistoryRow]] = {}
    for row in history:
        if row.epoch is None:
            courses.setdefault(tuple(getattr(row, name) for name in SHARED), []).append(row)
    entries = []
    for key in sorted(courses, key=str):
        rounds = sorted(courses[key], key=lambda row: row.round)
        lists = {name: [_plain(getattr(row, name)) for row in rounds] for name in PER_ROUND}
        filled = {name: values for name, values in lists.items() if any(v is not None for v in values)}
        entries.append({**dict(zip(SHARED, key, strict=True)), **filled})
    return entries


def _rounds(course: Mapping[str, Any]) -> list[dict[str, Any]]:
    shared = {name: course[name] for name in SHARED}
    lists = {name: course[name] for name in PER_ROUND if name in course}
    return [{**shared, **dict(zip(lists, values, strict=True))} for values in zip(*lists.values(), strict=True)]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else _rounded(value, HISTORY_DIGITS)


def _rounded(value: Any, digits: int) -> Any:
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def _lines(content: Mapping[str, Any]) -> str:
    """JSON with a line for every entry of a list, and for every key of a nested section."""
    parts = []
    for key, value in content.items():
        if isinstance(value, list) and key != "columns":
            inner = ",\n".join(f"  {_compact(entry)}" for entry in value)
            text = f"[\n{inner}\n ]" if value else "[]"
        elif isinstance(value, dict):
            text = _section(value, 1)
        else:
            text = _compact(value)
        parts.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _section(value: Mapping[str, Any], depth: int) -> str:
    if not value:
        return "{}"
    pad = " " * (depth + 1)
    inner = []
    for key, entry in value.items():
        text = _section(entry, depth + 1) if isinstance(entry, dict) and depth < 4 else _compact(entry)
        if isinstance(entry, list) and entry and isinstance(entry[0], dict):
            text = "[\n" + ",\n".join(f"{pad} {_compact(e)}" for e in entry) + f"\n{pad}]"
        inner.append(f"{pad}{json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(inner) + "\n" + " " * depth + "}"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
