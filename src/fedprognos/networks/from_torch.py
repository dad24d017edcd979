"""Converts your own torch network: recurrent layers and a linear output, with or without a linear layer before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from fedprognos.errors import ConfigError
from fedprognos.networks.cells import cells
from fedprognos.networks.network import Network
from fedprognos.networks.spec import NetworkSpec

SUPPORTED = "an nn.Linear with ReLU or none, nn.LSTM or nn.GRU layers (batch_first, one direction), nn.Linear(..., 1)"


def network_of(module: nn.Module) -> Network:
    """A torch module as a :class:`Network`, with a copy of its weights.

    The module reads sequences (B, T, inputs) and puts out one number from the last step. Its layers are taken in the
    order in which the module holds them; a linear layer before the recurrent ones is followed by a ReLU.

    Examples
    --------
    >>> mine = nn.ModuleDict({"body": nn.LSTM(3, 8, num_layers=2, batch_first=True), "out": nn.Linear(8, 1)})
    >>> network_of(mine).spec.widths
    (8, 8)
    """
    leaves = [m for m in module.modules() if isinstance(m, nn.Linear) or _cell(m)]
    linear = [isinstance(leaf, nn.Linear) for leaf in leaves]
    recurrent = [leaf for leaf, flat in zip(leaves, linear, strict=True) if not flat]
    before = leaves[0] if linear and linear[0] else None
    if not recurrent or linear != [*([True] if before else []), *([False] * len(recurrent)), True]:
        raise ConfigError(f"cannot take over {type(module).__name__}", hint=f"it must hold {SUPPORTED}")
    kinds = {_cell(leaf) for leaf in recurrent}
    head, parameters = leaves[-1], _parameters(leaves)
    if len(kinds) > 1 or parameters != sum(p.numel() for p in module.parameters()) or _size(head, "out_features") != 1:
        raise ConfigError(f"cannot take over all weights of {type(module).__name__}", hint=f"it must hold {SUPPORTED}")
    weights: dict[str, np.ndarray[Any, np.dtype[np.float32]]] = {}
    if before is not None:
        weights |= {"input.weight": _array(before.weight), "input.bias": _array(before.bias)}
    kind, widths = kinds.pop(), list[int]()
    for layer in recurrent:
        if not all(hasattr(layer, name) for name in ("num_layers", "hidden_size")) or _unlike(layer):
            raise ConfigError(f"cannot take over {layer}", hint=f"it must hold {SUPPORTED}")
        for k in range(_size(layer, "num_layers")):
            for name in cells[kind].tensors:
                value = getattr(layer, name.replace("_l0", f"_l{k}"))
                weights[f"recurrent.{len(widths)}.{name}"] = _array(value)
            widths.append(_size(layer, "hidden_size"))
    weights |= {"head.weight": _array(head.weight), "head.bias": _array(head.bias)}
    inputs = _size(before, "in_features") if before is not None else _size(recurrent[0], "input_size")
    given = {"input_width": _size(before, "out_features")} if before is not None else {}
    return Network(NetworkSpec(inputs=inputs, widths=tuple(widths), cell=kind, **given), weights).check(str(module))


def _cell(layer: nn.Module) -> str:
    """Name of the cell that such a layer is; empty for other layers."""
    for name, cell in cells.items():
        module_type = type(cell.module(1, 1))
        if isinstance(layer, module_type) or (isinstance(layer, nn.RNNBase) and issubclass(module_type, type(layer))):
            return name
    return ""


def _unlike(layer: nn.Module) -> bool:
    wanted = {"bidirectional": False, "batch_first": True, "bias": True, "proj_size": 0}
    return any(getattr(layer, name, value) != value for name, value in wanted.items())


def _parameters(leaves: Sequence[nn.Module]) -> int:
    return sum(p.numel() for leaf in leaves for p in leaf.parameters())


def _size(layer: nn.Module, name: str) -> int:
    return int(getattr(layer, name))


def _array(value: object) -> np.ndarray[Any, np.dtype[np.float32]]:
    if not isinstance(value, torch.Tensor):
        raise ConfigError("cannot take over a layer without bias", hint=f"it must hold {SUPPORTED}")
    return value.detach().cpu().to(torch.float32).numpy().copy()
