"""A network as a value: its shape and its weights, never changed, with everything that is done to neurons.

Strategies, heads, evaluation and bundles hold this one type. Training and predicting make a torch module of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedprognos.arrays import FloatArray
from fedprognos.errors import BundleError, ConfigError
from fedprognos.networks.anatomy import Anatomy, Layer, Places, Tensors, move, move_inputs, slice_neurons
from fedprognos.networks.spec import NetworkSpec

if TYPE_CHECKING:
    from fedprognos.networks.module import HealthNetwork

Weights: TypeAlias = Mapping[str, NDArray[np.float32]]
OWN_RESERVOIR = 200
"""Units of the fixed random body that an owner's own head can see beside a network that has none."""


@dataclass(frozen=True, eq=False)
class Network:
    """A network: `spec` says its shape, `weights` are its tensors by name, float32.

    Examples
    --------
    >>> network = Network.seeded(NetworkSpec(inputs=2, widths=(3,)), seed=1)
    >>> both = Network.concat([network, network])
    >>> both.spec.widths, both.slice({"recurrent.0": [0, 1, 2]}).spec == network.spec
    ((6,), True)
    """

    spec: NetworkSpec
    weights: Weights

    def __repr__(self) -> str:
        """Its shape; the weights would fill screens."""
        return f"Network({self.spec})"

    @staticmethod
    def seeded(spec: NetworkSpec, seed: int, bias: float = 0.0, forget_bias: float = 0.0) -> Network:
        """A network with initial weights from `seed`.

        Parameters
        ----------
        bias
            Of the head: the mean label.
        forget_bias
            Added to the bias of the gates that keep a cell's state, where the cell has such gates.
        """
        import torch

        from fedprognos.networks.cells import cells
        from fedprognos.networks.module import HealthNetwork

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = HealthNetwork(spec)
        kept = cells[spec.cell].forget_gate
        if forget_bias and kept is not None:
            for layer, width in zip(module.recurrent, spec.widths, strict=True):
                with torch.no_grad():
                    layer.get_parameter("bias_ih_l0")[kept * width : (kept + 1) * width] += forget_bias
        return Network.from_module(module).with_layer(
            spec.anatomy.layers[-1], {"head.bias": np.full(1, bias, np.float32)}
        )

    @staticmethod
    def from_module(module: HealthNetwork) -> Network:
        """A copy of a torch module's weights."""
        weights = {name: tensor.detach().cpu().numpy().copy() for name, tensor in module.state_dict().items()}
        return Network(module.spec, weights)

    def module(self) -> HealthNetwork:
        """A new torch module with a copy of these weights."""
        import torch

        from fedprognos.networks.module import HealthNetwork

        with torch.random.fork_rng(devices=[]):  # making a module draws weights that are then replaced
            module = HealthNetwork(self.spec)
        module.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in self.weights.items()})
        return module

    @property
    def anatomy(self) -> Anatomy:
        """Which axis of which tensor belongs to which group of neurons."""
        return self.spec.anatomy

    @property
    def head(self) -> FloatArray:
        """The regressor as one vector: slopes of the last layer, the reservoir and the history itself, bias last."""
        *slopes, bias = self._head_tensors()
        return np.concatenate([*(self.weights[name][0] for name in slopes), self.weights[bias]]).astype(np.float64)

    def _head_tensors(self) -> list[str]:
        tensors = self.anatomy.layers[-1].tensors
        return [name for name in ("head.weight", "head.reservoir", "head.direct", "head.bias") if name in tensors]

    def layer(self, layer: Layer) -> dict[str, NDArray[np.float32]]:
        """The tensors of one layer."""
        return {name: self.weights[name] for name in layer.tensors}

    def with_layer(self, layer: Layer, tensors: Mapping[str, NDArray[Any]]) -> Network:
        """The network with other tensors in one layer, whose number of neurons may change with them."""
        changed = {name: np.asarray(array, dtype=np.float32) for name, array in tensors.items()}
        rows = next((a.shape[0] for n, a in changed.items() if n in layer.tensors), 0)
        if layer.group is None:
            return Network(self.spec, {**self.weights, **changed})
        width = rows // self.anatomy.axes_of(layer.tensors[0])[0].gates
        return Network(self.spec.with_widths({layer.group: width}), {**self.weights, **changed})

    def with_reservoir(self) -> Network:
        """The same predictions, and a reservoir that a head can see; a network that has one stays as it is."""
        if self.spec.reservoir:
            return self
        spec = NetworkSpec(**{**self.spec.model_dump(), "reservoir": OWN_RESERVOIR})
        unseen = np.zeros(spec.shapes["head.reservoir"], np.float32)
        return Network(spec, {**self.weights, "head.reservoir": unseen})

    def with_head(self, head: FloatArray) -> Network:
        """The network with another regressor, given as one vector, bias last.

        A head for a reservoir that the network does not have brings it.
        """
        if not self.spec.reservoir and len(head) == self.spec.features + OWN_RESERVOIR + 1:
            return self.with_reservoir().with_head(head)
        *slopes, bias = self._head_tensors()
        ends = np.cumsum([self.spec.shapes[name][1] for name in slopes])
        parts = dict(zip(slopes, np.split(head[None, :-1], ends[:-1], axis=1), strict=True))
        return self.with_layer(self.anatomy.layers[-1], {**parts, bias: head[-1:]})

    def permute_next(self, layer: Layer, places: ArrayLike, width: int, *, client: str = "") -> Network:
        """Line 10 of Algorithm 1: the layer after `layer` reads its inputs from their places among `width` neurons.

        The layer itself must follow with :meth:`with_layer`.
        """
        moved = move_inputs(self.weights, self.anatomy, layer, places, width, client=client)
        return Network(self.spec.with_widths({str(layer.group): width}), moved)

    def slice(self, places: Places) -> Network:
        """Only the neurons at these places, in this order, for each group named."""
        cut = slice_neurons(self.weights, self.anatomy, places)
        return Network(self.spec.with_widths({group: len(np.asarray(p)) for group, p in places.items()}), cut)

    @staticmethod
    def concat(networks: Sequence[Network]) -> Network:
        """Networks side by side, nothing merged: the output is the mean of their outputs."""
        check_alike(networks)
        anatomy, total = networks[0].anatomy, dict[str, FloatArray]()
        widths_of_each = [network.widths for network in networks]
        widths = {group: sum(w[group] for w in widths_of_each) for group in anatomy.groups}
        head = anatomy.layers[-1].tensors
        for k, network in enumerate(networks):
            before = {group: sum(w[group] for w in widths_of_each[:k]) for group in widths}
            places = {group: before[group] + np.arange(widths_of_each[k][group]) for group in widths}
            for name, tensor in move(network.weights, anatomy, places, widths).items():
                part = tensor.astype(np.float64)
                total[name] = total[name] + part if name in total else part
        weights = {n: (t / len(networks) if n in head else t).astype(np.float32) for n, t in total.items()}
        return Network(networks[0].spec.with_widths(widths), weights)

    @property
    def widths(self) -> dict[str, int]:
        """How many neurons each group has."""
        return self.anatomy.widths(self.weights)

    def check(self, where: str) -> Network:
        """The network itself, or :class:`BundleError` naming the tensor that does not fit its shape."""
        check_weights(self.spec, self.weights, where)
        return self


def check_alike(networks: Sequence[Network]) -> None:
    """Refuse networks that differ in more than their widths."""
    if not networks:
        raise ConfigError("no networks to put side by side")
    for number, network in enumerate(networks[1:], 2):
        if unlike := networks[0].spec.unlike(network.spec):
            raise ConfigError(
                f"network {number} does not go with the first: {unlike}",
                hint="networks may differ in their widths only",
            )


def body_digest(network: Network) -> str:
    """Names a network by its shape and every weight below its head: what the states of units belong to."""
    digest = hashlib.sha256(network.spec.model_dump_json().encode())
    for name in sorted(network.weights):
        if not name.startswith("head."):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(network.weights[name]).data)
    return digest.hexdigest()


def check_weights(spec: NetworkSpec, weights: Tensors, where: str) -> None:
    """Refuse missing, extra, misshapen or non-finite tensors by name."""
    expected = spec.shapes
    for name in sorted(expected.keys() ^ weights.keys()):
        kind = "is missing" if name in expected else "does not belong to this network"
        raise BundleError(f"tensor '{name}' {kind}", where=where)
    for name, shape in expected.items():
        array = weights[name]
        if array.dtype != np.float32:
            raise BundleError(f"tensor '{name}' is {array.dtype}, expected float32", where=where)
        if array.shape != shape:
            raise BundleError(f"tensor '{name}' has shape {array.shape}, expected {shape}", where=where)
        if not np.isfinite(array).all():
            raise BundleError(f"tensor '{name}' holds NaN or infinity", where=where)
