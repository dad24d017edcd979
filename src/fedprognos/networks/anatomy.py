"""The anatomy of a network: which axis of which tensor belongs to which group of neurons.

Neurons that are permuted, added or left out take rows and columns of several tensors with them. An :class:`Anatomy`
says which: a LSTM's recurrent weights carry their own layer's neurons on both axes (four times, gate after gate, on the
rows), and the next layer's input axis carries this layer's. Moving, averaging and slicing are written once over it and
serve every architecture; to add one, write its anatomy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from numpy.typing import NDArray

from fedprognos.errors import ConfigError, DataError
from fedprognos.matching import RecurrentWeights, linear_signature
from fedprognos.networks.cells import INPUTS, cells

Tensors: TypeAlias = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Axis:
    """One axis of a tensor: ``gates`` blocks of the neurons of ``group``; no group if its entries are not neurons."""

    group: str | None = None
    gates: int = 1


@dataclass(frozen=True)
class Layer:
    """A layer of the paper's Q: its tensors, and the group of neurons it puts out (none for the head).

    ``cell`` is ``"linear"`` or the name of a cell (:data:`fedprognos.networks.cells.cells`).
    """

    name: str
    cell: str
    group: str | None
    tensors: tuple[str, ...]

    def signature(self, tensors: Tensors) -> NDArray[Any]:
        """``(neurons, D)``: one vector for each neuron, to be matched. See :mod:`fedprognos.matching.match.signatures`.

        The input axis must be in the order of the federated model already (Algorithm 1, line 10).
        """
        if self.group is None:
            raise ConfigError(f"the neurons of layer '{self.name}' are outputs, which are not matched")
        missing = [name for name in self.tensors if name not in tensors]
        if missing:
            raise DataError(f"tensor '{missing[0]}' of layer '{self.name}' is missing")
        own = [tensors[name] for name in self.tensors]
        return linear_signature(*own) if self.cell == "linear" else cells[self.cell].signature(*own)

    @property
    def is_recurrent(self) -> bool:
        """Whether it has the tensors that :func:`fedprognos.matching.match_recurrent` compares."""
        return self.cell != "linear" and cells[self.cell].recurrent

    def recurrent(self, tensors: Tensors) -> RecurrentWeights:
        """The layer's tensors as :func:`fedprognos.matching.match_recurrent` wants them."""
        if not self.is_recurrent:
            raise ConfigError(f"layer '{self.name}' has no recurrent weights to compare")
        return RecurrentWeights(*(tensors[name] for name in self.tensors))


@dataclass(frozen=True)
class Anatomy:
    """All tensors of a network by their axes, and its layers from input to head. Axis 0 is the output axis.

    Examples
    --------
    >>> anatomy = anatomy_of("lstm", layers=2, has_input_layer=True)
    >>> [layer.name for layer in anatomy.layers]
    ['input', 'recurrent.0', 'recurrent.1', 'head']
    >>> anatomy.axes["recurrent.1.weight_ih_l0"]
    (Axis(group='recurrent.1', gates=4), Axis(group='recurrent.0', gates=1))
    >>> anatomy.groups
    ('input', 'recurrent.0', 'recurrent.1')
    """

    axes: Mapping[str, tuple[Axis, ...]]
    layers: tuple[Layer, ...]

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of neurons, in the order of their layers."""
        return tuple(layer.group for layer in self.layers if layer.group is not None)

    def layer(self, name: str) -> Layer:
        """The layer of that name."""
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise ConfigError(f"no layer '{name}'", hint=f"layers: {', '.join(layer.name for layer in self.layers)}")

    def after(self, layer: Layer) -> Layer | None:
        """The layer that reads this one's neurons; none after the head."""
        place = self.layers.index(layer) + 1
        return self.layers[place] if place < len(self.layers) else None

    def widths(self, tensors: Tensors) -> dict[str, int]:
        """How many neurons each group has in these tensors; refuses tensors that do not fit together.

        Examples
        --------
        >>> import numpy as np
        >>> head_only = {"head.weight": np.zeros((1, 5)), "head.bias": np.zeros(1)}
        >>> anatomy_of("gru", layers=1, has_input_layer=False).widths(head_only)
        {'recurrent.0': 5}
        """
        widths: dict[str, int] = {}
        for name, tensor in tensors.items():
            axes = self.axes_of(name)
            if tensor.ndim != len(axes):
                raise DataError(f"has {tensor.ndim} axes instead of {len(axes)}", where=f"tensor '{name}'")
            for axis, length in zip(axes, tensor.shape, strict=True):
                if axis.group is None:
                    continue
                width = widths.setdefault(axis.group, length // axis.gates)
                if width * axis.gates != length:
                    raise DataError(
                        f"has shape {tensor.shape}, but '{axis.group}' has {width} neurons in other tensors",
                        where=f"tensor '{name}'",
                    )
        return widths

    def axes_of(self, name: str) -> tuple[Axis, ...]:
        """The axes of a tensor, or an error naming it."""
        if name not in self.axes:
            raise DataError(f"unknown tensor '{name}'", hint=f"the network has: {', '.join(self.axes)}")
        return self.axes[name]


def anatomy_of(cell: str, layers: int, has_input_layer: bool, beside: tuple[str, ...] = ()) -> Anatomy:
    """The anatomy of a network: input layer if any, recurrent layers, head.

    Parameters
    ----------
    cell
        Name of a cell.
    layers
        Number of recurrent layers; at least one, or something beside them.
    has_input_layer
        Whether a linear layer comes before them.
    beside
        What the head sees beside the last layer: a slope for each unit of it, in a tensor of its own.
    """
    if layers < 1 and not beside:
        raise ConfigError(f"a network has at least one recurrent layer, not {layers}")
    kind, axes, found = cells[cell], dict[str, tuple[Axis, ...]](), list[Layer]()
    below: str | None = None
    if has_input_layer:
        axes |= {"input.weight": (Axis("input"), Axis()), "input.bias": (Axis("input"),)}
        found.append(Layer("input", "linear", "input", ("input.weight", "input.bias")))
        below = "input"
    for k in range(layers):
        group = f"recurrent.{k}"
        own = {
            f"{group}.{name}": (
                Axis(group, kind.gates),
                *(Axis(below) if what == INPUTS else Axis(group) for what in counted[1:]),
            )
            for name, counted in kind.tensors.items()
        }
        axes |= own
        found.append(Layer(group, cell, group, tuple(own)))
        below = group
    head: dict[str, tuple[Axis, ...]] = {"head.weight": (Axis(), Axis(below)), "head.bias": (Axis(),)}
    head |= {f"head.{name}": (Axis(), Axis()) for name in beside}
    axes |= head
    found.append(Layer("head", "linear", None, tuple(head)))
    return Anatomy(axes, tuple(found))
