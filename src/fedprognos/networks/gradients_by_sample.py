"""The gradient of every sequence by itself, all at once: what privacy clips before anything is added up.

Every layer multiplies its inputs by weights, so its gradient is a sum over the steps of outer products of those inputs
and of the gradients of the products. The latter are the gradients of zeros that are added to the products. A recurrent
layer takes the zeros as further inputs, with ones as weights, so that its own code need not be known.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedprognos.errors import ConfigError
from fedprognos.networks.cells import TORCH_TENSORS, cells
from fedprognos.networks.module import HealthNetwork


def check_cell(name: str) -> None:
    """Refuse cells whose gradients cannot be computed for single sequences."""
    covered = [other for other, cell in cells.items() if cell.recurrent_factor is not None]
    if name not in covered or dict(cells[name].tensors) != TORCH_TENSORS:
        raise ConfigError(
            f"privacy of trained weights does not cover cell '{name}'", hint=f"use {' or '.join(covered)}"
        )


def sample_gradients(network: HealthNetwork, x: Tensor, y: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """For each tensor (B, *shape): gradients of the weighted squared errors of every sequence.

    Parameters
    ----------
    x, y, weights : (B, T, inputs), (B, T), (B, T)
        Inputs, standardised targets, and what the error at each step counts.
    """
    check_cell(network.spec.cell)
    layers: list[tuple[str, nn.Module, Tensor, Tensor]] = []
    if network.spec.input_width is not None:
        layers.append(("input", network.input, x, _zeros(x, network.spec.input_width)))
        x = torch.relu(network.input(x) + layers[-1][-1])
    for k, layer in enumerate(network.recurrent):
        layers.append((f"recurrent.{k}", layer, x, _zeros(x, len(layer.get_parameter("weight_ih_l0")))))
        x = _run(network.spec.cell, layer, x, layers[-1][-1])
    errors = network.head(x).squeeze(-1) - y
    given = 2 * weights * errors.detach()
    wanted = [zeros for *_, zeros in layers]
    product_gradients = torch.autograd.grad((weights * errors.square()).sum(), wanted)
    outputs = [u.detach() for _, _, u, _ in layers[1:]] + [x.detach()]
    gradients = {"head.weight": torch.bmm(given[:, None], outputs[-1]), "head.bias": given.sum(1, keepdim=True)}
    for (name, layer, inputs, _), of_products, after in zip(layers, product_gradients, outputs, strict=True):
        u = inputs.detach()
        if isinstance(layer, nn.Linear):
            gradients |= _products(f"{name}.weight", f"{name}.bias", of_products, u)
            continue
        before = torch.cat([torch.zeros_like(after[:, :1]), after[:, :-1]], dim=1)
        tensors = [layer.get_parameter(tensor).detach() for tensor in TORCH_TENSORS]
        factor = cells[network.spec.cell].recurrent_factor
        inner = of_products if factor is None else of_products * factor(u, before, *tensors)
        gradients |= _products(f"{name}.weight_ih_l0", f"{name}.bias_ih_l0", of_products, u)
        gradients |= _products(f"{name}.weight_hh_l0", f"{name}.bias_hh_l0", inner, before)
    return gradients


def _zeros(x: Tensor, width: int) -> Tensor:
    return x.new_zeros(*x.shape[:2], width, requires_grad=True)


def _run(cell: str, layer: nn.Module, x: Tensor, zeros: Tensor) -> Tensor:
    """Outputs (B, T, L) of a recurrent layer whose input products have zeros added to them."""
    weight, width = layer.get_parameter("weight_ih_l0"), zeros.shape[-1]
    with torch.random.fork_rng(devices=[]):  # making a module draws weights that are then replaced
        wide = cells[cell].module(weight.shape[1] + width, layer.get_parameter("weight_hh_l0").shape[1]).to(x.device)
    tensors = {name: layer.get_parameter(name).detach() for name in TORCH_TENSORS}
    tensors["weight_ih_l0"] = torch.cat([weight.detach(), torch.eye(width, device=x.device)], dim=1)
    wide.load_state_dict(tensors)
    out: Tensor = wide(torch.cat([x, zeros], dim=-1))[0]
    return out


def _products(weight: str, bias: str, given: Tensor, u: Tensor) -> dict[str, Tensor]:
    """Gradients (B, G, C) and (B, G) of products (B, T, G) of inputs (B, T, C)."""
    return {weight: torch.bmm(given.transpose(1, 2), u), bias: given.sum(1)}
