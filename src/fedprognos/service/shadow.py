"""A second model beside the one that serves: whether it may run along, and how the two differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from fedprognos.errors import BundleError
from fedprognos.prognosis import Health, ModelInputs, Predictor, RowTable, Stream
from fedprognos.service.fleet_view import STATUSES, Status, status_of

MOST_CHANGED = 20
MOST_FAILURES = 100
"""Failures that the errors of models are taken from, the latest ones."""


def check_shadow(serving: Predictor, shadow: Predictor) -> None:
    """Refuse a second model that reads other rows, or says something else."""
    ours, theirs = (replace(ModelInputs.from_model(each), table=None) for each in (serving, shadow))
    for what, first, second in (
        ("sensors", ours.sensors, theirs.sensors),
        ("operating settings", ours.settings, theirs.settings),
        ("rows", ours, theirs),
        ("target", _target(serving), _target(shadow)),
    ):
        if first != second:
            raise BundleError(
                f"the second model has other {what} than the first: {second} instead of {first}",
                where="--shadow",
                hint="give a model of the same columns and target, or serve it with a state of its own",
            )
    if serving.fingerprint == shadow.fingerprint:
        raise BundleError("the second model is the same as the first", where="--shadow", hint="give another bundle")


def _target(model: Predictor) -> tuple[str, str, str, bool]:
    recipe = model.recipe
    return recipe.task, recipe.target, recipe.target_measure, recipe.relative


@dataclass(frozen=True)
class UnitDifference:
    """A unit that the two models see differently."""

    unit: str
    serving: float | None
    shadow: float | None
    serving_status: Status
    shadow_status: Status


@dataclass(frozen=True)
class Comparison:
    """What the two models say of the fleet now.

    Parameters
    ----------
    units
        Units that both give a value for.
    median_difference, largest_difference
        Of these values, without sign; None where there are none.
    largest_unit
        The unit with the largest difference.
    counts
        Units by status, if the second model served.
    changed
        Units with another status then: how many, and the first of them, the most urgent ones first.
    """

    units: int
    median_difference: float | None
    largest_difference: float | None
    largest_unit: str
    counts: dict[str, int]
    changed: int
    changed_units: list[UnitDifference]


@dataclass(frozen=True)
class Outcomes:
    """How far off both models were on machines that failed, where that is known.

    Parameters
    ----------
    failures
        Lives that ended by a failure, and have rows that both models gave a value at.
    values
        Values that were compared with the true remaining life.
    serving_error, shadow_error
        Mean difference from the true remaining life, without sign; None where there are no values.
    """

    failures: int
    values: int
    serving_error: float | None
    shadow_error: float | None


def compare(
    units: Sequence[str],
    healths: Sequence[Health | None],
    shadow_healths: Sequence[Health | None],
    threshold: float | None,
    margin: float,
    shadow_margin: float,
) -> Comparison:
    """Differences over units, by what the model that serves says and what the shadow says."""
    differences: dict[str, float] = {}
    changed: list[UnitDifference] = []
    counts: Counter[Status] = Counter()
    for unit, health, shadow_health in zip(units, healths, shadow_healths, strict=True):
        value, shadow_value = (None if each is None else each.value for each in (health, shadow_health))
        if value is not None and shadow_value is not None:
            differences[unit] = abs(value - shadow_value)
        status, shadow_status = (
            status_of(health, threshold, margin),
            status_of(shadow_health, threshold, shadow_margin),
        )
        counts[shadow_status] += 1
        if status != shadow_status:
            changed.append(UnitDifference(unit, value, shadow_value, status, shadow_status))
    changed.sort(
        key=lambda each: (min(STATUSES.index(each.serving_status), STATUSES.index(each.shadow_status)), each.unit)
    )
    largest = max(differences, key=lambda unit: differences[unit], default="")
    return Comparison(
        len(differences),
        median(differences.values()) if differences else None,
        differences.get(largest),
        largest,
        {status: counts[status] for status in STATUSES},
        len(changed),
        changed[:MOST_CHANGED],
    )


def values_of_life(model: Predictor, rows: RowTable) -> dict[float, float]:
    """What a model says along a life that is over, by position."""
    stream = Stream(model, trusting=True)
    healths = [health for update in stream.feed_table(rows) for health in update.healths]
    return {health.position: health.value for health in healths if health.value is not None}


def outcomes(serving: Predictor, shadow: Predictor, lives: Sequence[tuple[RowTable, float]]) -> Outcomes:
    """Errors of both models over lives that failed: their rows, and the position of the failure.

    A value of the cap only says "this or more". So rows count whose true remaining life is below both caps.
    """
    caps = [each.recipe.cap for each in (serving, shadow) if each.recipe.cap is not None]
    errors: list[tuple[float, float]] = []
    failures = 0
    for rows, failed_at in lives:
        first, second = values_of_life(serving, rows), values_of_life(shadow, rows)
        truths = {position: failed_at - position for position in first.keys() & second.keys()}
        of_life = [
            (abs(first[position] - truth), abs(second[position] - truth))
            for position, truth in truths.items()
            if all(truth < cap for cap in caps)
        ]
        failures += bool(of_life)
        errors += of_life
    if not errors:
        return Outcomes(0, 0, None, None)
    return Outcomes(
        failures,
        len(errors),
        sum(error for error, _ in errors) / len(errors),
        sum(error for _, error in errors) / len(errors),
    )
