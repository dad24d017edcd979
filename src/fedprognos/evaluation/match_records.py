"""How neurons were matched or absorbed, round by round: a run writes these records and the report reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Self
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, NonNegativeInt, TypeAdapter, ValidationError, model_validator

FOLDER = "details"
"""Where a run's folder holds them, one file a job."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class LayerMatch(_Record):
    """One layer's matching.

    Parameters
    ----------
    width
        L', the number of federated neurons.
    absorbing
        Whether all neurons were kept or merged, as the matching says; see :class:`fedprognos.matching.Diagnostics`.
    assignments
        For each client the federated neuron that each of its own neurons became part of.
    """

    layer: str
    width: NonNegativeInt
    absorbing: str = "neither"
    assignments: dict[str, tuple[NonNegativeInt, ...]]

    @model_validator(mode="after")
    def _neurons_exist(self) -> Self:
        if any(neuron >= self.width for slots in self.assignments.values() for neuron in slots):
            raise ValueError("a neuron is assigned beyond the layer's width")
        return self

    def holders(self) -> list[int]:
        """How many clients have each federated neuron."""
        counts = [0] * self.width
        for slots in self.assignments.values():
            for neuron in set(slots):
                counts[neuron] += 1
        return counts

    @property
    def shared_by_all(self) -> float:
        """The share of federated neurons that every client has."""
        return sum(count == len(self.assignments) for count in self.holders()) / max(self.width, 1)

    @property
    def singletons(self) -> dict[str, int]:
        """How many neurons only this client has, by client."""
        counts = self.holders()
        return {name: sum(counts[neuron] == 1 for neuron in slots) for name, slots in self.assignments.items()}


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
    """What absorption kept of the clients' neurons, and what the sums of their outputs show besides.

    Parameters
    ----------
    neurons, kept
        How many each client had, and how many of them were kept.
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
    def _names_the_same_clients(self) -> Self:
        names = self.neurons.keys()
        square = len(self.repeats) == len(names) and all(len(row) == len(names) for row in self.repeats)
        if self.kept.keys() != names or self.without.keys() != names or not square:
            raise ValueError("the parts of an absorption record name different clients")
        return self


class MatchRound(_Record):
    """The matchings of one round, and what was absorbed in it."""

    round: int
    layers: tuple[LayerMatch, ...]
    extractors: Extractors | None = None
    absorption: AbsorbedNeurons | None = None


def read_match_records(folder: Path, scenario: str) -> tuple[dict[str, list[MatchRound]], str]:
    """Matchings of the first seed by method, and what could not be read."""
    records: dict[str, list[MatchRound]] = {}
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
        if merging := [r for r in rounds if r.layers or r.absorption]:
            records[method] = merging
    if not records and not problems:
        return (
            {},
            f"{FOLDER}/ holds no matching of the scenario {scenario}: no method matches, or files are missing.",
        )
    return records, " ".join(problems)
