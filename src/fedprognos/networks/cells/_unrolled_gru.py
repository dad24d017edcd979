"""A GRU with its gradient written out: on a processor, training steps take a fraction of the time of torch's own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


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
        w, every = w_hh.t().contiguous(), states.unbind(0)
        reset, update = gates[..., :width].unbind(0), gates[..., width:].unbind(0)
        into, inner = recurrent[..., : 2 * width].unbind(0), recurrent[..., 2 * width :].unbind(0)
        for t, (gate, fresh, product) in enumerate(
            zip(gates.unbind(0), new.unbind(0), recurrent.unbind(0), strict=True)
        ):
            torch.addmm(b_hh, every[t], w, out=product)
            gate.add_(into[t]).sigmoid_()
            fresh.addcmul_(reset[t], inner[t]).tanh_()
            torch.lerp(fresh, every[t], update[t], out=every[t + 1])
        ctx.save_for_backward(x, gates, new, recurrent, states, w_ih, w_hh)
        return states[1:]

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor | None, ...]:
        x, gates, new, recurrent, states, w_ih, w_hh = ctx.saved_tensors
        (steps, batch, width), columns = new.shape, x.shape[-1]
        r, z, before = gates[..., :width], gates[..., width:], states[:-1]
        # With d the gradient of a step's output, those of its gates are d times factors that are known beforehand.
        open_ = (1 - z) * (1 - new * new)
        factors = torch.stack(
            [open_ * recurrent[..., 2 * width :] * r * (1 - r), (before - new) * z * (1 - z), open_ * r], dim=2
        )
        d, d_gates = given[0].contiguous().clone(), x.new_empty(steps, batch, 3, width)
        each, flat = d.unbind(0), d_gates.view(steps, batch, 3 * width).unbind(0)
        by_gate, known, kept = d_gates.unbind(0), factors.unbind(0), z.unbind(0)
        back = torch.zeros_like(each[0])
        carry = torch.empty_like(back)
        for t in range(steps - 1, -1, -1):
            each[t].add_(back)
            torch.mul(each[t][:, None], known[t], out=by_gate[t])
            torch.mul(each[t], kept[t], out=carry)
            torch.addmm(carry, flat[t], w_hh, out=back)
        rows = d_gates.view(-1, 3 * width)
        d_hh, d_b_hh = rows.t() @ before.reshape(-1, width), rows.sum(0)
        d_gates[:, :, 2] = d * open_  # the reset gate stands between the recurrent product and the rest
        d_x = (rows @ w_ih).view(steps, batch, columns) if ctx.needs_input_grad[0] else None
        return d_x, back, rows.t() @ x.reshape(-1, columns), d_hh, rows.sum(0), d_b_hh
