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


class Pair(_Record):
    """A neuron that was absorbed and the kept one most like it, each by its client and its number there.

    Parameters
    ----------
    before, after
        Outputs of the two over one window: each in its client's own network; then what stands in for the absorbed one
        in the federated network, and the kept one there.
    """

    absorbed: tuple[str, int]
    kept: tuple[str, int]
    correlation: float
    before: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    after: tuple[tuple[float, ...], tuple[float, ...]] | None = None


class AbsorbedNeurons(_Record):
    """What absorption kept of the clients' neurons, and what the sums of their outputs tell besides.

    Parameters
    ----------
    neurons, kept
        Of each client.
    whole, without
        Training error with all neurons, and without each client's.
    repeats
        How well (R2) the features of one client predict those of another.
    predicted, measured
        Errors by width: as the sums predict them on training data, and on what training kept out.
    """

    neurons: dict[str, NonNegativeInt]
    kept: dict[str, NonNegativeInt]
    whole: float
    without: dict[str, float]
    repeats: tuple[tuple[float, ...], ...]
    predicted: dict[int, float]
    measured: dict[int, float] = {}
    pairs: tuple[Pair, ...] = ()

    @property
    def width(self) -> int:
        """Neurons kept of all clients together."""
        return sum(self.kept.values())

    @model_validator(mode="after")
    def _everybody_is_told_of(self) -> Self:
        names = self.neurons.keys()
        square = len(self.repeats) == len(names) and all(len(row) == len(names) for row in self.repeats)
        if self.kept.keys() != names or self.without.keys() != names or not square:
            raise ValueError("absorption tells of other clients in each of its parts")
        return self


class MatchRound(_Record):
    """The matchings of one round, and what was absorbed in it."""

    round: int
    layers: tuple[LayerMatch, ...]
    extractors: Extractors | None = None
    absorption: AbsorbedNeurons | None = None


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
        if told := [r for r in rounds if r.layers or r.absorption]:
            found[method] = told
    if not found and not problems:
        return {}, f"{FOLDER}/ tells of no matching in the scenario {scenario}: no method matches, or it is missing."
    return found, " ".join(problems)
