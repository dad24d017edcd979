"""The recipe: all that turns raw sensor rows into what the network sees and back into health.

It is made once from merged moments, serialises to JSON, travels with the weights, and is the same
object in training and online, so that the two cannot drift apart.
"""

from __future__ import annotations

import hashlib
import warnings
from functools import cached_property
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, field_validator, model_validator

from fedprognos.arrays import BoolArray, FloatArray
from fedprognos.errors import RecipeError
from fedprognos.features import conditions
from fedprognos.features.channels import MOST_SPAN, channels, columns_of, extended
from fedprognos.features.sensor_ranges import SensorRanges
from fedprognos.fleet import Fleet, Schema, Task, Unit


class ConditionWarning(UserWarning):
    """Rows were met in an operating condition that the training data did not have."""


class Recipe(BaseModel):
    """How rows become inputs, how labels become targets, and back.

    Parameters
    ----------
    conditions
        Decimals to which each setting is rounded; empty for a single condition.
    condition_keys : (K, settings in the rule)
        Conditions of the training data.
    mean, std : (K, sensors)
        Scaling of each sensor in each condition.
    window, life
        Rows in a window; or the whole life of a unit, read row by row (then the window is one row).
    history
        Name of the rule that reads a series where it is neither of those two.
    levels, level_bounds
        The sensor at whose levels a cycle is read, and the highest and lowest level. Its `mean` and `std` are those of
        the times at which the levels are met.
    extra
        Channels made from the sensors and shown beside them: kind and span in rows of each.
    setting_mean, setting_std : (settings,)
        Scaling of the settings where `setting_inputs` feeds them to the network; empty otherwise.
    health, ahead
        Task forecast: the sensor whose later value is the label, and how much later in `time_measure`.
    usual
        What the sensors of the training machines did; None in recipes made before it was asked for.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    version: Literal[1] = 1
    task: Task
    sensors: tuple[str, ...]
    settings: tuple[str, ...] = ()
    time_measure: str = "cycles"
    target: str = "rul"
    target_measure: str = "cycles"
    window: int
    life: bool = False
    history: str | None = None
    stride: int = 1
    short: Literal["exclude", "pad"] = "exclude"
    cycle: str | None = None
    grid_end_in_s: float | None = None
    levels: str | None = None
    level_bounds: tuple[float, float] | None = None
    cap: float | None = None
    relative: bool = False
    conditions: dict[str, Annotated[int, Field(ge=-6, le=9)]] = {}
    condition_inputs: bool = False
    condition_keys: tuple[tuple[float, ...], ...] = ((),)
    mean: tuple[tuple[float, ...], ...]
    std: tuple[tuple[float, ...], ...]
    setting_mean: tuple[float, ...] = ()
    setting_std: tuple[float, ...] = ()
    extra: tuple[tuple[str, PositiveInt], ...] = ()
    label_mean: float = 0.0
    label_std: float = 1.0
    usual: SensorRanges | None = None
    health: str | None = None
    ahead: float | None = None

    @field_validator("extra")
    @classmethod
    def _known_channels(cls, chosen: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        if unknown := [name for name, _ in chosen if name not in channels]:
            raise ValueError(f"there is no channel '{unknown[0]}' here")
        if any(span > MOST_SPAN for _, span in chosen):
            raise ValueError(f"the span of a channel is at most {MOST_SPAN} rows")
        return chosen

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        shape = (len(self.condition_keys), len(self.sensors))
        for name, table in (("mean", self.mean), ("std", self.std)):
            if len(table) != shape[0] or any(len(row) != shape[1] for row in table):
                raise ValueError(f"{name} must have {shape[0]} rows of {shape[1]} values")
        columns = (*self.sensors, *self.settings)
        if len(set(columns)) < len(columns):
            raise ValueError("a column is named twice")
        if not self.conditions.keys() <= set(self.settings):
            raise ValueError("conditions must be those of settings")
        if any(len(key) != len(self.conditions) for key in self.condition_keys):
            raise ValueError(f"condition_keys must have {len(self.conditions)} values each")
        if not all(np.isfinite(row).all() for row in self.mean) or not all(
            np.isfinite(row).all() and min(row) > 0 for row in self.std
        ):
            raise ValueError("scaling values must be finite, deviations positive")
        if not (np.isfinite(self.label_mean) and np.isfinite(self.label_std) and self.label_std > 0):
            raise ValueError("label scaling must be finite and positive")
        if self.window < 1 or self.stride < 1 or (self.cap is not None and not self.cap > 0):
            raise ValueError("window and stride must be at least 1 and the cap positive")
        if self.life and (self.window != 1 or self.cycle is not None or self.task == "soh"):
            raise ValueError("whole lives are read row by row, and only of series")
        if self.extra and self.task == "soh":
            raise ValueError("extra channels need series (task rul or forecast)")
        if (self.task == "forecast") != (self.ahead is not None) or (self.ahead is None) != (self.health is None):
            raise ValueError("a forecast needs the sensor that is predicted, and how far ahead")
        from fedprognos.features.history import histories  # imported here, because the rules import this module

        if self.cycle is not None and (self.cycle not in histories or not histories[self.cycle].cyclic):
            raise ValueError(f"cycle = '{self.cycle}' is not a rule for cycles")
        if self.history is not None and (
            self.life or self.task == "soh" or self.history not in histories or histories[self.history].cyclic
        ):
            raise ValueError(f"history = '{self.history}' is not a rule for series")
        if self.cycle in ("grid", "levels") and not (self.grid_end_in_s and self.grid_end_in_s > 0):
            raise ValueError("a time grid needs a positive end")
        self._check_levels()
        if self.usual is not None and len(self.usual.still) != len(self.sensors):
            raise ValueError("usual must have an entry for every sensor")
        return self

    def _check_levels(self) -> None:
        if (self.cycle == "levels") != (self.levels is not None) or (self.levels is None) != (
            self.level_bounds is None
        ):
            raise ValueError("cycles at levels go with a sensor and bounds")
        if self.levels is None or self.level_bounds is None:
            return
        if self.levels not in self.sensors or len(self.condition_keys) > 1:
            raise ValueError("levels are of one of the sensors, and of one operating condition")
        if not (np.isfinite(self.level_bounds).all() and self.level_bounds[0] > self.level_bounds[1]):
            raise ValueError("levels must fall from one finite bound to the other")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    # --- serialising -------------------------------------------------------------------------

    def to_json(self) -> str:
        """JSON text that :meth:`from_json` reads back to an equal recipe."""
        unused = {name for name in ("history", "health", "ahead") if getattr(self, name) is None}
        return self.model_dump_json(exclude=unused)

    @property
    def digest(self) -> str:
        """A name of 64 hexadecimal digits for exactly this recipe."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @staticmethod
    def from_json(text: str) -> Recipe:
        """Read :meth:`to_json`'s text; refuse anything else."""
        try:
            return Recipe.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(p) for p in first["loc"]) or "recipe"
            raise RecipeError(
                f"not a recipe of this version: {place}: {first['msg']}",
                where="recipe",
                hint="another version of fedprognos made it; train the model again with this one",
            ) from None

    # --- inputs ------------------------------------------------------------------------------

    @property
    def columns(self) -> int:
        """Columns of a scaled row, before channels are made from it."""
        one_hot = len(self.condition_keys) if self.condition_inputs else 0
        return len(self.sensors) + len(self.setting_mean) + one_hot

    @property
    def channels(self) -> int:
        """Input columns of the network."""
        return self.columns + columns_of(self.extra, len(self.sensors))

    def extended(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Network inputs (T, channels) of a unit's scaled rows (T, columns), from its first one on."""
        return extended(rows, self.extra, len(self.sensors))

    @cached_property
    def _tables(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return np.array(self.condition_keys, dtype=np.float64), np.array(self.mean), np.array(self.std)

    def check(self, schema: Schema, where: str) -> tuple[list[int], list[int]]:
        """Column positions of the recipe's sensors and settings in a fleet; refuse one that does not fit."""
        if schema.task != self.task:
            raise RecipeError(f"the data is for {schema.task}, the recipe for {self.task}", where=where)
        for kind, wanted, present in (
            ("sensor", self.sensors, schema.sensors),
            ("setting", self.settings, schema.settings),
        ):
            missing = [name for name in wanted if name not in present]
            if missing:
                raise RecipeError(
                    f"{kind} '{missing[0]}' is missing",
                    where=where,
                    hint=f"needed: {', '.join(wanted)}; found: {', '.join(present) or 'none'}",
                )
        return [schema.sensors.index(s) for s in self.sensors], [schema.settings.index(s) for s in self.settings]

    def scale(self, sensors: FloatArray, settings: FloatArray) -> tuple[NDArray[np.float32], BoolArray]:
        """Scaled rows (T, columns), in the recipe's column order, and which met an unseen condition (T,).

        A sensor at whose levels cycles are read stays as it is: its place is taken by the times of its levels.
        """
        condition_keys, mean, std = self._tables
        ids, is_known = conditions.nearest(settings, self.conditions, self.settings, condition_keys)
        scaled = np.empty((len(sensors), self.columns), dtype=np.float32)
        width = len(self.sensors)
        if len(condition_keys) == 1:
            scaled[:, :width] = (sensors - mean[0]) / std[0]
        else:
            scaled[:, :width] = (sensors - mean[ids]) / std[ids]
        if self.levels is not None:
            scaled[:, self.level_column] = sensors[:, self.level_column]
        if self.setting_mean:
            end = width + len(self.settings)
            scaled[:, width:end] = (settings - np.array(self.setting_mean)) / np.array(self.setting_std)
            width = end
        if self.condition_inputs:
            scaled[:, width:] = np.eye(len(condition_keys), dtype=np.float32)[ids]
        return scaled, ~is_known

    def deviations(self, sensors: FloatArray, scaled: NDArray[np.float32]) -> FloatArray:
        """How far raw rows (T, sensors), scaled already, are from the mean of their condition, in deviations."""
        deviations = scaled[:, : len(self.sensors)].astype(np.float64)
        if self.levels is not None:
            usual, k = self.usual, self.level_column
            deviations[:, k] = 0.0 if usual is None else (sensors[:, k] - usual.level_mean) / usual.level_std
        return deviations

    def with_deviations(
        self, scaled: NDArray[np.float32], deviations: FloatArray, where: BoolArray
    ) -> NDArray[np.float32]:
        """A scaled row (columns,) with some of its sensors put to other deviations from the mean (sensors,)."""
        width = len(self.sensors)
        values = deviations.copy()
        if self.levels is not None and self.usual is not None:
            k = self.level_column  # stays as it was measured; see :meth:`scale`
            values[k] = self.usual.level_mean + deviations[k] * self.usual.level_std
        changed = scaled.copy()
        changed[:width] = np.where(where, values, scaled[:width])
        return changed

    def means(self, settings: FloatArray) -> FloatArray:
        """Mean of every sensor (T, sensors) in the operating conditions of rows (T, settings)."""
        condition_keys, mean, _ = self._tables
        means: FloatArray = mean[conditions.nearest(settings, self.conditions, self.settings, condition_keys)[0]]
        if self.levels is not None and self.usual is not None:
            means[:, self.level_column] = self.usual.level_mean
        return means

    @property
    def level_column(self) -> int:
        """Column of the sensor at whose levels cycles are read."""
        return self.sensors.index(self.levels or "")

    def scale_level_times(self, times: FloatArray) -> NDArray[np.float32]:
        """Network inputs of the times at which levels are met."""
        k = self.level_column
        return ((times - self.mean[0][k]) / self.std[0][k]).astype(np.float32)

    def scale_unit(
        self, unit: Unit, columns: tuple[list[int], list[int]], where: str
    ) -> tuple[NDArray[np.float32], BoolArray]:
        """:meth:`scale` for a whole unit, with a warning where it met unseen conditions."""
        scaled, unseen = self.scale(unit.sensors[:, columns[0]], unit.settings[:, columns[1]])
        if unseen.any():
            warnings.warn(
                f"{where}, unit {unit.id}: {np.count_nonzero(unseen)} of {unit.rows} rows are in an operating "
                "condition that the training data did not have; scaled as the nearest known one",
                ConditionWarning,
                stacklevel=3,
            )
        return scaled, unseen

    # --- labels ------------------------------------------------------------------------------

    def capped(self, labels: FloatArray) -> FloatArray:
        """Labels as the network learns them: piecewise RUL, constant at the cap and falling below it."""
        return labels if self.cap is None else np.minimum(labels, self.cap)

    def encode(self, labels: FloatArray) -> FloatArray:
        """Capped and standardised labels."""
        return (self.capped(labels) - self.label_mean) / self.label_std

    def decode(self, outputs: FloatArray) -> FloatArray:
        """Health in its own unit from network outputs, clipped to what is possible."""
        return np.clip(outputs * self.label_std + self.label_mean, self.lowest, self.cap)

    @property
    def lowest(self) -> float | None:
        """The lowest possible health; a forecast may be of a column that falls below zero."""
        return None if self.task == "forecast" else 0.0

    def describe(self, fleet: Fleet) -> str:
        """How messages name a fleet."""
        return fleet.source or f"fleet {fleet.name}"
