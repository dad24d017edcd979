"""What a request costs, from shapes alone: a client refuses work it cannot do before anything is allocated for it."""

from __future__ import annotations

from dataclasses import dataclass

from fedprognos.errors import MessageError
from fedprognos.features import Recipe
from fedprognos.federation.messages import (
    EvaluateRequest,
    FitRequest,
    ImportRequest,
    OutputsRequest,
    Request,
    SurveyRequest,
)
from fedprognos.federation.pool_messages import PersonalRequest, PoolRequest
from fedprognos.federation.score_messages import ResidualRequest, ScoreRequest
from fedprognos.fleet import Fleet
from fedprognos.networks import NetworkSpec
from fedprognos.networks.options import ModelOptions
from fedprognos.networks.running import BATCH

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
        memory, operations = cost(request, fleet)
        if memory > self.memory_in_bytes:
            # How much would tell how many rows there are.
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


def cost(request: Request, fleet: Fleet) -> tuple[float, float]:
    """Bytes and operations that a request takes at most, roughly."""
    match request:
        case SurveyRequest():
            points = request.terms.level_points * 8.0 if request.terms.levels else 8.0
            return points * fleet.rows * (len(fleet.schema.sensors) + len(fleet.schema.settings) + 4), fleet.rows * 1e3
        case ImportRequest():
            return 0.0, 0.0
        case FitRequest():
            if request.training.epochs > MAX_EPOCHS:
                raise MessageError(f"asks for more than {MAX_EPOCHS} epochs")
            size = request.training.batch_size or BATCH
            return _run(request.recipe, request.shape, fleet, size, 3.0 * request.training.epochs, squares=False)
        case ResidualRequest():
            memory, operations = _run(request.recipe, request.network.spec, fleet, BATCH, 2.0, squares=True)
            return memory, operations + len(fleet) * float(request.network.spec.features) ** 3
        case PoolRequest() | PersonalRequest():
            memory, operations = _run(request.recipe, request.network.spec, fleet, BATCH, 2.0, squares=True)
            width = float(request.network.spec.features)  # sums of seven parts more, a few copies of each
            return memory + 7 * 32.0 * width**2, operations + 64 * 10.0 * width**3
        case EvaluateRequest() | OutputsRequest():
            return _run(request.recipe, request.network.spec, fleet, BATCH, 3.0, squares=True)
        case ScoreRequest():
            return _run(request.recipe, request.network.spec, fleet, BATCH, 2.0, squares=False)
        case _:  # masks, keys and shares: as large as what they cover
            return 0.0, 0.0


def _check_parameters(spec: NetworkSpec) -> None:
    if spec.parameters > MAX_PARAMETERS:
        raise MessageError(f"a network of more than {MAX_PARAMETERS} parameters")


def _run(
    recipe: Recipe, spec: NetworkSpec, fleet: Fleet, batch: int, passes: float, *, squares: bool
) -> tuple[float, float]:
    """Running a network of this shape over all histories so many times; with `squares` sums of products are kept."""
    _check_parameters(spec)
    window = float(recipe.window)
    padded = sum(max(unit.rows, recipe.window if recipe.short == "pad" else 0) for unit in fleet)
    points = sum(unit.rows // recipe.stride + 1 for unit in fleet)
    neurons = sum(spec.widths) + (spec.input_width or 0) + spec.reservoir
    channels = max(recipe.channels, spec.inputs)
    sums = 4.0 * float(spec.features + neurons) ** 2 + points * float(spec.features) if squares else 0.0
    batches = min(batch, points) * window * (channels + GATES * neurons)
    memory = 4.0 * (padded * channels + batches + 4 * spec.parameters) + 8.0 * sums
    steps = padded if recipe.life else points * window
    operations = passes * 2.0 * steps * (spec.parameters + 12.0 * spec.reservoir)
    return memory, operations + (2.0 * points * float(spec.features) ** 2 if squares else 0.0)
