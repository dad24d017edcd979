"""Nodes and constants of an ONNX graph as they are added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedprognos.errors import MissingExtraError

SCALED, OUTPUTS, STATE, STATE_AFTER = "scaled", "outputs", "state", "state_after"
"""Names of tensors: where the network begins and ends, and what it remembers of units."""


def load_onnx() -> Any:
    """The onnx package, or an error that says how to install it."""
    try:
        import onnx
    except ImportError:
        raise MissingExtraError("onnx", "edge", "ONNX export") from None
    return onnx


class Graph:
    """Nodes and constants as they are added; every method returns the name of what it adds."""

    def __init__(self) -> None:
        self.onnx = load_onnx()
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def constant(self, name: str, array: NDArray[Any]) -> str:
        self.constants[name] = self.onnx.numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def integers(self, *values: int) -> str:
        name = "integers_" + "_".join(map(str, values)).replace("-", "m")
        return self.constant(name, np.array(values, dtype=np.int64))

    def add(self, kind: str, inputs: Sequence[str], output: str | Sequence[str], **attributes: Any) -> str:
        outputs = [output] if isinstance(output, str) else list(output)
        name = next(filter(None, outputs))
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), outputs, name=name, **attributes))
        return name

    def floats(self, name: str, shape: Sequence[int | str | None], double: bool = False) -> Any:
        """An input or output of the graph."""
        kind = self.onnx.TensorProto.DOUBLE if double else self.onnx.TensorProto.FLOAT
        return self.onnx.helper.make_tensor_value_info(name, kind, list(shape))

    def made(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """All of it as a graph of ONNX's own."""
        return self.onnx.helper.make_graph(self.nodes, name, inputs, outputs, list(self.constants.values()))
