"""The anatomy of a network: which axis of which tensor belongs to which group of neurons, and moves by neurons.

Neurons that are permuted, added or left out take rows and columns of several tensors with them. An :class:`Anatomy`
says which: a LSTM's recurrent weights carry their own layer's neurons on both axes (four times, gate after gate, on the
rows), and the next layer's input axis carries this layer's. Moving, averaging and slicing (Eq. 6 and 7, line
10 of Algorithm 1) are written once over it and serve every architecture; to add one, write its anatomy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
        tensors_of_layer = [tensors[name] for name in self.tensors]
        return (
            linear_signature(*tensors_of_layer)
            if self.cell == "linear"
            else cells[self.cell].signature(*tensors_of_layer)
        )

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
    kind, axes, all_layers = cells[cell], dict[str, tuple[Axis, ...]](), list[Layer]()
    below: str | None = None
    if has_input_layer:
        axes |= {"input.weight": (Axis("input"), Axis()), "input.bias": (Axis("input"),)}
        all_layers.append(Layer("input", "linear", "input", ("input.weight", "input.bias")))
        below = "input"
    for k in range(layers):
        group = f"recurrent.{k}"
        tensors_of_layer = {
            f"{group}.{name}": (
                Axis(group, kind.gates),
                *(Axis(below) if what == INPUTS else Axis(group) for what in counted[1:]),
            )
            for name, counted in kind.tensors.items()
        }
        axes |= tensors_of_layer
        all_layers.append(Layer(group, cell, group, tuple(tensors_of_layer)))
        below = group
    head: dict[str, tuple[Axis, ...]] = {"head.weight": (Axis(), Axis(below)), "head.bias": (Axis(),)}
    head |= {f"head.{name}": (Axis(), Axis()) for name in beside}
    axes |= head
    all_layers.append(Layer("head", "linear", None, tuple(head)))
    return Anatomy(axes, tuple(all_layers))


Array: TypeAlias = NDArray[Any]
Places: TypeAlias = Mapping[str, ArrayLike]
"""For each group of neurons: the place in the federated model of each of a client's neurons."""


def move(
    tensors: Tensors, anatomy: Anatomy, places: Places, widths: Mapping[str, int], *, client: str = ""
) -> dict[str, Array]:
    """Put a client's rows and columns in their places in the federated model, zeros elsewhere.

    Groups without ``places`` stay as they are, so this also moves the inputs of a single layer. Padding a network this
    way does not change its output.

    Parameters
    ----------
    tensors
        Any of the network's tensors.
    places, widths
        For each group to move, the places of the client's neurons and the number of neurons in the federated model.
    client
        Its name, for error messages.

    Examples
    --------
    >>> from fedprognos.networks.anatomy import anatomy_of
    >>> head = {"head.weight": np.array([[1.0, 2.0]]), "head.bias": np.array([3.0])}
    >>> move(head, anatomy_of("lstm", 1, False), {"recurrent.0": [3, 0]}, {"recurrent.0": 4})["head.weight"]
    array([[2., 0., 0., 1.]])
    """
    moved = {}
    for name, tensor in tensors.items():
        grid, shape = place_in(name, np.asarray(tensor), anatomy, places, widths, client=client)
        moved[name] = np.zeros(shape, np.asarray(tensor).dtype)
        moved[name][np.ix_(*grid)] = tensor
    return moved


def move_inputs(
    tensors: Tensors, anatomy: Anatomy, layer: Layer, places: ArrayLike, width: int, *, client: str = ""
) -> dict[str, Array]:
    """Line 10 of Algorithm 1: after ``layer`` was matched, move the inputs of the one that follows; the rest stays."""
    following = anatomy.after(layer)
    if layer.group is None or following is None:
        raise ConfigError(f"nothing reads the outputs of layer '{layer.name}'")
    following_tensors = {name: tensors[name] for name in following.tensors if name in tensors}
    moved = move(following_tensors, anatomy, {layer.group: places}, {layer.group: width}, client=client)
    return {name: moved.get(name, np.asarray(tensor)) for name, tensor in tensors.items()}


def slice_neurons(tensors: Tensors, anatomy: Anatomy, places: Places) -> dict[str, Array]:
    """Give a client back its own width: the rows and columns of its neurons, in its own order.

    Examples
    --------
    >>> from fedprognos.networks.anatomy import anatomy_of
    >>> head = {"head.weight": np.array([[2.0, 0.0, 0.0, 1.0]]), "head.bias": np.array([3.0])}
    >>> slice_neurons(head, anatomy_of("lstm", 1, False), {"recurrent.0": [3, 0]})["head.weight"]
    array([[1., 2.]])
    """
    cut = {}
    for name, tensor in tensors.items():
        index = []
        for axis, length in zip(anatomy.axes_of(name), np.shape(tensor), strict=True):
            if axis.group is None or axis.group not in places:
                index.append(np.arange(length))
            else:
                width = length // axis.gates
                index.append(_spread(_checked(places[axis.group], width, axis.group, ""), axis.gates, width))
        cut[name] = np.asarray(tensor)[np.ix_(*index)]
    return cut


def place_in(
    name: str, tensor: Array, anatomy: Anatomy, places: Places, widths: Mapping[str, int], *, client: str
) -> tuple[tuple[NDArray[np.intp], ...], tuple[int, ...]]:
    """The index of a client's tensor in the federated model's, axis by axis, and the latter's shape."""
    axes, where = anatomy.axes_of(name), f"client '{client}', tensor '{name}'" if client else f"tensor '{name}'"
    if tensor.ndim != len(axes):
        raise DataError(f"has {tensor.ndim} axes instead of {len(axes)}", where=where)
    grid, shape = [], []
    for axis, length in zip(axes, tensor.shape, strict=True):
        if axis.group is None or axis.group not in places:
            grid.append(np.arange(length))
            shape.append(length)
            continue
        if axis.group not in widths:
            raise ConfigError(f"no width is given for group '{axis.group}'", where=where)
        width = widths[axis.group]
        place = _checked(places[axis.group], width, axis.group, client)
        if length != axis.gates * len(place):
            raise DataError(
                f"has shape {tensor.shape}, but there are places for {len(place)} neurons of '{axis.group}'",
                where=where,
            )
        grid.append(_spread(place, axis.gates, width))
        shape.append(axis.gates * width)
    return tuple(grid), tuple(shape)


def _spread(place: NDArray[np.intp], gates: int, width: int) -> NDArray[np.intp]:
    """The places in each gate's block, gate after gate."""
    return np.asarray((np.arange(gates)[:, None] * width + place).ravel(), np.intp)


def _checked(place: ArrayLike, width: int, group: str, client: str) -> NDArray[np.intp]:
    """Places as an index, each within the width and used once."""
    index = np.asarray(place)
    fits = index.ndim == 1 and index.dtype.kind in "iu" and ((index >= 0) & (index < width)).all()
    if not fits or len(np.unique(index)) != len(index):
        raise DataError(
            f"the places in group '{group}' are not different numbers from 0 to {width - 1}",
            where=f"client '{client}'" if client else "",
        )
    return index.astype(np.intp)
