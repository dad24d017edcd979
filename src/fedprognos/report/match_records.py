"""How neurons were matched, as a federated run wrote it down."""

from __future__ import annotations

from pathlib import Path
from typing import Self
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, NonNegativeInt, TypeAdapter, ValidationError, model_validator

FOLDER = "details"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class LayerMatch(_Record):
    """One layer's matching.

    Parameters
    ----------
    width
        L', the number of federated neurons.
    assignments
        For each client the federated neuron that each of its own neurons became part of.
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
        """How many clients have each federated neuron."""
        found = [0] * self.width
        for mine in self.assignments.values():
            for neuron in set(mine):
                found[neuron] += 1
        return found


class Extractors(_Record):
    """Outputs of neurons over one window: each client's first ten, and what ten federated neurons were made from."""

    layer: str
    neurons: tuple[int, ...]
    before: dict[str, tuple[tuple[float, ...], ...]]
    after: dict[str, tuple[tuple[float, ...] | None, ...]]


class MatchRound(_Record):
    """The matchings of one round."""

    round: int
    layers: tuple[LayerMatch, ...]
    extractors: Extractors | None = None


def read_match_records(folder: Path, scenario: str) -> tuple[dict[str, list[MatchRound]], str]:
    """Matchings of the first seed by method, and what could not be read."""
    found: dict[str, list[MatchRound]] = {}
    problems: list[str] = []
    for path in sorted((folder / FOLDER).glob("*~*~seed0.json")):
        name, method, _ = path.stem.rsplit("~", 2)
        if unquote(name) != scenario:
            continue
        try:
            rounds = TypeAdapter(list[MatchRound]).validate_json(path.read_bytes())
        except (OSError, ValidationError):
            problems.append(f"{FOLDER}/{path.name} cannot be read.")
            continue
        if any(r.layers for r in rounds):
            found[method] = [r for r in rounds if r.layers]
    if not found and not problems:
        return {}, f"{FOLDER}/ tells of no matching in the scenario {scenario}: no method matches, or it is missing."
    return found, " ".join(problems)
