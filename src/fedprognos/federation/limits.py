"""What a request costs, from shapes alone: a client refuses work it cannot do before anything is allocated for it."""

from __future__ import annotations

from dataclasses import dataclass

from fedprognos.errors import MessageError
from fedprognos.features import Recipe
from fedprognos.federation.exchanges import Cost, Request, exchange_for
from fedprognos.fleet import Fleet
from fedprognos.networks import BATCH, ModelOptions, NetworkSpec

MAX_PARAMETERS, MAX_EPOCHS = 20_000_000, 10_000
GATES = 8
"""Numbers that a neuron holds for every step of a history while it is run, and trained."""


@dataclass(frozen=True)
class Limits:
    """The most that one request may take.

    Parameters
    ----------
    memory_in_bytes
        Beside the data itself.
    operations
        Multiplications and additions; some 10^10 a second are done on one core.
    """

    memory_in_bytes: int = 16 << 30
    operations: float = 1e17

    def check(self, request: Request, fleet: Fleet) -> None:
        """Raise where a request takes more."""
        exchange = exchange_for(request)
        if exchange is None:
            raise MessageError(f"nothing is known of the cost of a {type(request).__name__[:40]}")
        memory, operations = exchange.cost(request, fleet)
        if memory > self.memory_in_bytes:
            # The text does not say how much: that would tell how many rows there are.
            raise MessageError(f"needs more memory than the {self.memory_in_bytes / 1e6:.3g} MB allowed")
        if operations > self.operations:
            raise MessageError(f"needs more than the {self.operations:.1g} operations allowed")

    def check_model(self, model: ModelOptions, inputs: int, beside: int = 1) -> None:
        """Raise where a network of so many inputs, or sums over so many of them side by side, would take more."""
        spec = NetworkSpec(inputs=inputs, **model.model_dump())
        _check_parameters(spec)
        memory = 16.0 * beside * spec.parameters + 32.0 * float(beside * (spec.features + sum(spec.widths))) ** 2
        if memory > self.memory_in_bytes:
            raise MessageError(f"its networks need some {memory / 1e6:.3g} MB of memory, more than allowed")


def run_cost(
    recipe: Recipe, spec: NetworkSpec, fleet: Fleet, *, passes: float, squares: bool, batch: int = BATCH
) -> Cost:
    """Running a network of this shape over all histories so many times; with `squares` sums of products are kept."""
    _check_parameters(spec)
    window = float(recipe.window)
    padded = sum(max(unit.rows, recipe.window if recipe.short == "pad" else 0) for unit in fleet)
    points = sum(unit.rows // recipe.stride + 1 for unit in fleet)
    neurons = sum(spec.widths) + (spec.input_width or 0) + spec.reservoir
    channels = max(recipe.channels, spec.inputs)
    sums = 4.0 * float(spec.features + neurons) ** 2 + points * float(spec.features) if squares else 0.0
    batches = min(batch, points) * window * (channels + GATES * neurons)
    # Inputs, activations and weights are float32, sums are float64.
    memory = 4.0 * (padded * channels + batches + 4 * spec.parameters) + 8.0 * sums
    # Whole lives are run once through; windows overlap, so each point costs a whole window.
    steps = padded if recipe.life else points * window
    operations = passes * 2.0 * steps * (spec.parameters + 12.0 * spec.reservoir)
    return memory, operations + (2.0 * points * float(spec.features) ** 2 if squares else 0.0)


def _check_parameters(spec: NetworkSpec) -> None:
    if spec.parameters > MAX_PARAMETERS:
        raise MessageError(f"a network of more than {MAX_PARAMETERS} parameters")
