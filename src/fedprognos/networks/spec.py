"""The shape of a network, and the shapes of its tensors that follow from it."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from fedprognos.networks.anatomy import Anatomy, anatomy_of
from fedprognos.networks.cells import CellName

MOST_LAYERS = 64
"""Recurrent layers of a network."""


class NetworkSpec(BaseModel):
    """Inputs, recurrent layers and their cell, the linear layer before them, and what else the head sees.

    Parameters
    ----------
    reservoir
        Units of the fixed random body whose states the head sees beside the last layer's.
    direct
        Steps of the history itself that the head sees, spread evenly over it; 1 is the latest row.

    Examples
    --------
    >>> spec = NetworkSpec(inputs=2, widths=(128,))
    >>> spec.parameters  # the paper's battery model
    67713
    >>> spec.shapes["recurrent.0.weight_hh_l0"]
    (512, 128)
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    inputs: PositiveInt
    widths: Annotated[tuple[PositiveInt, ...], Field(max_length=MOST_LAYERS)]
    cell: CellName = "lstm"
    input_width: PositiveInt | None = None
    reservoir: Annotated[int, Field(ge=0, le=20_000)] = 0
    direct: Annotated[int, Field(ge=0, le=2_000)] = 0

    @model_validator(mode="after")
    def _something_to_see(self) -> Self:
        if not self.widths and (self.input_width is not None or not (self.reservoir or self.direct)):
            raise ValueError("a network needs a recurrent layer, or a reservoir without one")
        return self

    @property
    def hidden(self) -> int:
        """Neurons of the last recurrent layer."""
        return self.widths[-1] if self.widths else 0

    @property
    def features(self) -> int:
        """Numbers the head sees: of the last layer, of the reservoir and of the history itself."""
        return self.hidden + self.reservoir + self.direct * self.inputs

    @property
    def layers(self) -> int:
        """Q of the paper: all layers, the regressor included."""
        return len(self.widths) + 1 + (self.input_width is not None)

    @cached_property
    def anatomy(self) -> Anatomy:
        """Which axis of which tensor belongs to which group of neurons."""
        beside = (["reservoir"] if self.reservoir else []) + (["direct"] if self.direct else [])
        return anatomy_of(self.cell, len(self.widths), self.input_width is not None, tuple(beside))

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor by name."""
        widths = {f"recurrent.{k}": width for k, width in enumerate(self.widths)}
        if self.input_width is not None:
            widths["input"] = self.input_width
        free = dict.fromkeys(self.anatomy.layers[0].tensors, self.inputs) if self.widths else {"head.weight": 0}
        free |= {"head.reservoir": self.reservoir, "head.direct": self.direct * self.inputs}
        return {
            name: tuple(
                axis.gates * widths[axis.group] if axis.group is not None else free[name] if k else 1
                for k, axis in enumerate(axes)
            )
            for name, axes in self.anatomy.axes.items()
        }

    def unlike(self, other: NetworkSpec) -> str:
        """In what two networks differ that cannot be put side by side, whatever their widths; empty where they can.

        >>> one = NetworkSpec(inputs=2, widths=(8,))
        >>> one.unlike(NetworkSpec(inputs=2, widths=(4,))), one.unlike(NetworkSpec(inputs=3, widths=(4, 4)))
        ('', '3 inputs instead of 2, 2 recurrent layers instead of 1')
        """
        pairs = {
            "{} cells": (other.cell, self.cell),
            "{} inputs": (other.inputs, self.inputs),
            "{} recurrent layers": (len(other.widths), len(self.widths)),
            "a reservoir of {}": (other.reservoir, self.reservoir),
            "{} rows in the head": (other.direct, self.direct),
        }
        differences = [f"{what.format(a)} instead of {b}" for what, (a, b) in pairs.items() if a != b]
        if (other.input_width is None) != (self.input_width is None):
            differences.append(
                "no input layer instead of one" if other.input_width is None else "an input layer instead of none"
            )
        return ", ".join(differences)

    @property
    def parameters(self) -> int:
        """Number of weights and biases."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def with_widths(self, widths: dict[str, int]) -> NetworkSpec:
        """The same network with other numbers of neurons, given by group; groups not named keep theirs."""
        recurrent = tuple(widths.get(f"recurrent.{k}", width) for k, width in enumerate(self.widths))
        before = widths.get("input", self.input_width)  # not model_copy, which would copy the cached shapes
        same = {"inputs": self.inputs, "cell": self.cell, "reservoir": self.reservoir, "direct": self.direct}
        return NetworkSpec(widths=recurrent, input_width=before, **same)
