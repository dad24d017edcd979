"""The GRU as a torch module whose gradient is written out.

On a processor, training steps take a fraction of the time of torch's own.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

compiled: ModuleType | None
try:  # built at installation where there is a C compiler; the loops below give the same to rounding
    compiled = importlib.import_module("fedprognos.networks.cells._steps")
except ImportError:
    compiled = None


class UnrolledGRU(nn.GRU):
    """torch's one-layer GRU, the same weights and outputs; only training on a processor goes another way."""

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        if not torch.is_grad_enabled() or x.device.type != "cpu":
            out, last = super().forward(x, state)
            return out, last
        start = x.new_zeros(len(x), self.hidden_size) if state is None else state[0]
        weights = (self.weight_ih_l0, self.weight_hh_l0, self.bias_ih_l0, self.bias_hh_l0)
        outputs = _Unrolled.apply(x.transpose(0, 1).contiguous(), start, *weights)  # type: ignore[no-untyped-call]
        return outputs.transpose(0, 1), outputs[-1:]


class _Unrolled(torch.autograd.Function):
    """All steps of a batch; all that does not need the step before is done for the whole sequence at once."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, start: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> Tensor:
        """Outputs (T, B, L) of inputs (T, B, C) from a state (B, L); gates as in torch: reset, update, new."""
        steps, width = len(x), w_hh.shape[1]
        gates = nn.functional.linear(x, w_ih[: 2 * width], b_ih[: 2 * width])
        new = nn.functional.linear(x, w_ih[2 * width :], b_ih[2 * width :])
        recurrent = x.new_empty(steps, x.shape[1], 3 * width)
        states = x.new_empty(steps + 1, x.shape[1], width)
        states[0] = start
        run_forward(gates, new, recurrent, states, w_hh.t().contiguous(), b_hh.contiguous())
        ctx.save_for_backward(x, gates, new, recurrent, states, w_ih, w_hh)
        return states[1:]

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor | None, ...]:
        x, gates, new, recurrent, states, w_ih, w_hh = ctx.saved_tensors
        (steps, batch, width), columns = new.shape, x.shape[-1]
        d_gates = x.new_empty(steps, batch, 4 * width)
        back = run_backward(given[0].contiguous(), d_gates, gates, new, recurrent, states, w_hh.contiguous())
        rows = d_gates.view(-1, 4 * width)
        of_inputs, of_states, sums = rows[:, : 3 * width], rows[:, width:], rows.sum(0)
        d_hh = of_states.t() @ states[:-1].reshape(-1, width)
        # Those of the inputs begin with the new state, which comes last in torch.
        d_ih, d_b_ih = (of_inputs.t() @ x.reshape(-1, columns)).roll(-width, 0), sums[: 3 * width].roll(-width, 0)
        d_x = (of_inputs @ w_ih.roll(width, 0)).view(steps, batch, columns) if ctx.needs_input_grad[0] else None
        return d_x, back, d_ih, d_hh, d_b_ih, sums[width:]


def run_forward(gates: Tensor, new: Tensor, recurrent: Tensor, states: Tensor, w: Tensor, bias: Tensor) -> None:
    """Fill states (T + 1, B, L) from the first on.

    Parameters
    ----------
    gates, new : (T, B, 2 L), (T, B, L)
        What the inputs give the gates; they become reset and update, and the new state.
    recurrent : (T, B, 3 L)
        Filled with what the state before gives the gates.
    w, bias : (L, 3 L), (3 L,)
    """
    steps, batch, width = new.shape
    if compiled is not None and new.dtype == torch.float32:
        compiled.forward(steps, batch, width, *(t.data_ptr() for t in (gates, new, recurrent, states, w, bias)))
        return
    reset, update = gates[..., :width].unbind(0), gates[..., width:].unbind(0)
    into, inner = recurrent[..., : 2 * width].unbind(0), recurrent[..., 2 * width :].unbind(0)
    each_gates, each_new, each_product, state = gates.unbind(0), new.unbind(0), recurrent.unbind(0), states.unbind(0)
    for t in range(steps):
        torch.addmm(bias, state[t], w, out=each_product[t])
        each_gates[t].add_(into[t]).sigmoid_()
        each_new[t].addcmul_(reset[t], inner[t]).tanh_()
        torch.lerp(each_new[t], state[t], update[t], out=state[t + 1])


def run_backward(
    d: Tensor, d_gates: Tensor, gates: Tensor, new: Tensor, recurrent: Tensor, states: Tensor, w: Tensor
) -> Tensor:
    """The gradient (B, L) of the first state; fills `d_gates` (T, B, 4 L), that of the products.

    It has four blocks, because the reset gate stands between the recurrent product of the new state and the rest: the
    input product of the new state, both products of reset, both of update, the recurrent product of the new state.

    Parameters
    ----------
    d : (T, B, L)
        Gradient of the outputs.
    w : (3 L, L)
    """
    steps, batch, width = new.shape
    back, carry = new.new_zeros(batch, width), new.new_empty(batch, width)
    if compiled is not None and new.dtype == torch.float32:
        tensors = (d, d_gates, gates, new, recurrent, states, w, back, carry)
        compiled.backward(steps, batch, width, *(t.data_ptr() for t in tensors))
        return back
    # With d the gradient of a step's output, those of its gates are d times factors that are known beforehand.
    r, z, before = gates[..., :width], gates[..., width:], states[:-1]
    open_ = (1 - z) * (1 - new * new)
    of_reset, of_update = open_ * recurrent[..., 2 * width :] * r * (1 - r), (before - new) * z * (1 - z)
    factors = torch.stack([open_, of_reset, of_update, open_ * r], dim=2)
    each, of_states = d.unbind(0), d_gates[..., width:].unbind(0)
    by_gate, factor, kept = d_gates.view(steps, batch, 4, width).unbind(0), factors.unbind(0), z.unbind(0)
    for t in range(steps - 1, -1, -1):
        back.add_(each[t])
        torch.mul(back[:, None], factor[t], out=by_gate[t])
        torch.mul(back, kept[t], out=carry)
        torch.addmm(carry, of_states[t], w, out=back)
    return back
