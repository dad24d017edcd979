"""Run folders with federated methods, written by hand: rounds, matchings and ledgers with values one can check."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from run_folders import NOISE, write_run

FEDERATED = {
    **NOISE,
    "local+personal": 8.0,
    "mean-of-locals": 8.0,
    "fedavg": 7.0,
    "fedma": 6.0,
    "fedma+personal": 5.5,
}
ROUNDS = 3
ASSIGNMENTS = ([0, 1, 2, 3], [2, 0, 4, 1])
"""Two clients of four neurons each become five: three shared, one of the first only, one of the second only."""


def write_federated_run(
    folder: Path,
    *,
    clients: Sequence[str] = ("north", "south"),
    scenarios: Sequence[str] = ("all",),
    heads: Sequence[str] = ("exact", "mean", "personal"),
    noise: dict[str, float] | None = None,
    **more: Any,
) -> Path:
    """A finished run of three rounds, of which the second was chosen."""
    shared = [head for head in heads if head != "personal"]
    write_run(folder, clients=clients, scenarios=scenarios, heads=shared, noise=noise or FEDERATED, **more)
    path = folder / "results.json"
    raw = json.loads(path.read_text("utf-8"))
    raw["config"]["federation"]["heads"] = list(heads)
    for row in raw["rows"]:
        base = row["method"].partition("+")[0]
        if row["head"] is not None:
            sent = {"local": 0, "central": 5_000_000, "mean-of-locals": 40_000}.get(base, 2_000_000)
            row |= {"round": 2, "bytes": sent, "width": [5], "selected_on": "validation"}
    raw["history"] += [
        _after_round(row, number)
        for row in raw["rows"]
        for number in range(1, ROUNDS + 1)
        if row["method"] in ("fedavg", "fedma")
    ]
    path.write_text(json.dumps(raw), "utf-8")
    for scenario in scenarios:
        write_match_records(folder, scenario, clients)
        for client in clients:
            write_ledger(folder, scenario, client)
        write_ledger(folder, scenario, "(pooled)")
    publish(folder, "fedma", shared[0], calibration=None, novelty={})
    return folder


def publish(folder: Path, method: str, head: str, **parts: object) -> None:
    """Say which model is in bundle/."""
    (folder / "bundle").mkdir(exist_ok=True)
    origin = {"scenario": "all", "method": method, "head": head}
    (folder / "bundle" / "bundle.json").write_text(json.dumps({"provenance": origin, **parts}), "utf-8")


def _after_round(row: dict[str, Any], number: int) -> dict[str, Any]:
    """Errors halve until the second round, which the validation part likes best."""
    same = {key: row[key] for key in ("scenario", "method", "seed", "head", "width")}
    worse = {1: 2.0, 2: 1.0, 3: 1.1}[number]
    return {
        **same,
        "client": row["test_client"],
        "round": number,
        "rmse": row["rmse"] * worse,
        "rmse_capped": None if row["rmse_capped"] is None else row["rmse_capped"] * worse,
        "validation_rmse": 10.0 * worse,
        "bytes": 1_000_000 * number,
        "messages": 6 * number,
    }


def write_match_records(folder: Path, scenario: str, clients: Sequence[str], rounds: int = 2) -> None:
    """The same matching every round; clients beyond the second are like the second."""
    assignments = {c: ASSIGNMENTS[min(k, 1)] for k, c in enumerate(clients)}
    layer = {
        "layer": "recurrent.0",
        "width": 5,
        "shared_by_all": 0.6,
        "singletons": dict.fromkeys(clients, 1),
        "absorbing": "neither",
        "assignments": assignments,
    }
    found: list[dict[str, Any]] = [{"round": r, "layers": [layer]} for r in range(1, rounds + 1)]
    wave = [0.1, 0.2, -0.3]
    found[0]["extractors"] = {
        "layer": "recurrent.0",
        "neurons": [0, 1, 3],
        "before": {key: [wave, wave, wave] for key in clients},
        "after": {c: [wave, wave, wave if k == 0 else None] for k, c in enumerate(clients)},
    }
    (folder / "details").mkdir(parents=True, exist_ok=True)
    (folder / "details" / f"{quote(scenario, safe='')}~fedma~seed0.json").write_text(json.dumps(found), "utf-8")


def write_ledger(folder: Path, scenario: str, client: str) -> None:
    """One survey, three fits, one evaluation."""
    site = folder / "sites" / quote(scenario, safe="") / quote(client, safe="()")
    site.mkdir(parents=True)
    kinds = [("SurveyReply", 4000), *[("FitReply", 27_000)] * 3, ("EvaluateReply", 18_500)]
    lines = [json.dumps({"kind": kind, "bytes": size, "tensors": {"/x": [3]}}) for kind, size in kinds]
    (site / "ledger.jsonl").write_text("\n".join(lines) + "\n", "utf-8")


def text_of(page: str) -> str:
    """The page's words, without marks and with plain blanks."""
    body = page[page.index("<body>") : page.index('<script type="application/json"')]
    words = re.sub(r"<[^>]+>", " ", body).replace("\u00a0", " ").replace("&#39;", "'")
    return re.sub(r"\s+", " ", words)


def says(text: str, *values: object) -> bool:
    """Whether one sentence names all these values. Its wording is free."""
    sentences = re.split(r"(?<=[.])\s", text.replace("\u00a0", " "))
    return any(all(str(value) in sentence for value in values) for sentence in sentences)
