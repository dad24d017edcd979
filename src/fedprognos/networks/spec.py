"""The shape of a network, and the shapes of its tensors that follow from it."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, field_validator

from fedprognos.errors import ConfigError
from fedprognos.networks.anatomy import Anatomy, anatomy_of
from fedprognos.networks.cells import cells


class NetworkSpec(BaseModel):
    """Inputs, recurrent layers and their cell, and the linear layer before them if there is one.

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
    widths: Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
    cell: str = "lstm"
    input_width: PositiveInt | None = None

    @field_validator("cell")
    @classmethod
    def _known(cls, name: str) -> str:
        try:
            return cells[name].name
        except ConfigError as error:
            raise ValueError(str(error)) from None

    @property
    def layers(self) -> int:
        """Q of the paper: all layers, the regressor included."""
        return len(self.widths) + 1 + (self.input_width is not None)

    @cached_property
    def anatomy(self) -> Anatomy:
        """Which axis of which tensor belongs to which group of neurons."""
        return anatomy_of(self.cell, len(self.widths), self.input_width is not None)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor by name."""
        widths = {f"recurrent.{k}": width for k, width in enumerate(self.widths)}
        if self.input_width is not None:
            widths["input"] = self.input_width
        first = self.anatomy.layers[0].tensors
        return {
            name: tuple(
                axis.gates * widths[axis.group] if axis.group is not None else self.inputs if k and name in first else 1
                for k, axis in enumerate(axes)
            )
            for name, axes in self.anatomy.axes.items()
        }

    @property
    def parameters(self) -> int:
        """Number of weights and biases."""
        total = 0
        for shape in self.shapes.values():
            size = 1
            for length in shape:
                size *= length
            total += size
        return total

    def with_widths(self, widths: dict[str, int]) -> NetworkSpec:
        """The same network with other numbers of neurons, given by group; groups not named keep theirs."""
        recurrent = tuple(widths.get(f"recurrent.{k}", width) for k, width in enumerate(self.widths))
        before = widths.get("input", self.input_width)  # not model_copy, which would copy the cached shapes
        return NetworkSpec(inputs=self.inputs, widths=recurrent, cell=self.cell, input_width=before)
