"""What a federated run leaves besides its results: how neurons were matched, and every site's ledger."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, NonNegativeInt, TypeAdapter, ValidationError, model_validator

POOLED = "(pooled)"
"""The folder of the pretended client behind central training, which is no site."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class LayerMatch(_Record):
    """One layer's matching.

    Parameters
    ----------
    width
        L', the number of global neurons.
    assignments
        For each client the global neuron that each of its own neurons became part of.
    """

    layer: str
    width: NonNegativeInt
    absorbing: str = "neither"
    assignments: dict[str, tuple[NonNegativeInt, ...]]

    @model_validator(mode="after")
    def _neurons_exist(self) -> Self:
        if any(g >= self.width for mine in self.assignments.values() for g in mine):
            raise ValueError("a neuron is assigned beyond the layer's width")
        return self

    def holders(self) -> list[int]:
        """How many clients have each global neuron."""
        found = [0] * self.width
        for mine in self.assignments.values():
            for neuron in set(mine):
                found[neuron] += 1
        return found


class Extractors(_Record):
    """Outputs of neurons over one window: each client's first ten, and what ten global neurons were made from."""

    layer: str
    neurons: tuple[int, ...]
    before: dict[str, tuple[tuple[float, ...], ...]]
    after: dict[str, tuple[tuple[float, ...] | None, ...]]


class MatchRound(_Record):
    """The matchings of one round."""

    round: int
    layers: tuple[LayerMatch, ...]
    extractors: Extractors | None = None


@dataclass(frozen=True)
class SiteLedger:
    """Messages that left a site, by kind: their number and bytes; and lines that could not be read."""

    site: str
    kinds: Mapping[str, tuple[int, int]]
    unreadable: int


def read_matchings(folder: Path, setting: str, methods: Sequence[str]) -> tuple[dict[str, list[MatchRound]], str]:
    """Matchings of the first seed by method, and why there are none where there are none."""
    found: dict[str, list[MatchRound]] = {}
    problems: list[str] = []
    for path in sorted((folder / "details").glob("*~*~seed0.json")):
        name, method, _ = path.stem.rsplit("~", 2)
        if unquote(name) != setting:
            continue
        try:
            rounds = TypeAdapter(list[MatchRound]).validate_json(path.read_bytes())
        except (OSError, ValidationError):
            problems.append(f"details/{path.name} cannot be read.")
            continue
        if any(r.layers for r in rounds):
            found[method] = [r for r in rounds if r.layers]
    if found or problems:
        return found, " ".join(problems)
    if "fedma" not in methods:
        return {}, "No method of this run matches neurons."
    return {}, f"The run's folder has no details/ of the matching in the setting {setting}."


def read_ledgers(folder: Path, setting: str) -> tuple[list[SiteLedger], str]:
    """Every site's ledger in order of name, and why there are none where there are none."""
    for path in sorted((folder / "sites").glob("*")):
        if unquote(path.name) == setting and path.is_dir():
            files = [f for f in sorted(path.glob("*/ledger.jsonl")) if f.parent.name != POOLED]
            if files:
                return [_ledger(file) for file in files], ""
    return [], f"The run's folder has no ledgers of the setting {setting} in sites/."


def _ledger(path: Path) -> SiteLedger:
    kinds: dict[str, tuple[int, int]] = {}
    unreadable = 0
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError):
        lines, unreadable = [], 1
    for text in lines:
        try:
            raw = json.loads(text)
            kind, size = str(raw["kind"]), int(raw["bytes"])
        except (ValueError, KeyError, TypeError):
            unreadable += 1
            continue
        messages, total = kinds.get(kind, (0, 0))
        kinds[kind] = (messages + 1, total + size)
    return SiteLedger(unquote(path.parent.name), kinds, unreadable)
