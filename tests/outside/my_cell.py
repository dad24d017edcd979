"""The simplest recurrent cell: h <- tanh(W_ih x + W_hh h + b)."""

import numpy as np
from torch import nn

import fedprognos as fp
from fedprognos.networks.cells import TORCH_TENSORS


def module(inputs: int, neurons: int) -> nn.Module:
    """A torch module that takes (B, T, inputs) and a state, and gives (B, T, neurons) and the state after."""
    return nn.RNN(inputs, neurons, batch_first=True)


def signature(weight_ih, weight_hh, bias_ih, bias_hh):
    """What tells neurons apart: their input weights and bias, a line each."""
    return np.column_stack([weight_ih, bias_ih + bias_hh])


PLAIN = fp.Cell("plain", "Plain", 30, module, gates=1, tensors=TORCH_TENSORS, signature=signature)
