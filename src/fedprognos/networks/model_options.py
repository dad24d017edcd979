"""Options of the network and of its training: the sections [model] and [train] of an experiment."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from fedprognos.networks.cells import CellName
from fedprognos.networks.spec import MOST_LAYERS
from fedprognos.options import Fraction, Options, Tunable

MOST_DECAY = 0.1
"""Share of the weights that a step may take away. With more, the last few rows alone make the weights."""


class ModelOptions(Options):
    """The network."""

    cell: CellName = "lstm"
    """`lstm`, `gru`, or the name of a cell of your own."""
    widths: Annotated[tuple[PositiveInt, ...], Field(min_length=1, max_length=MOST_LAYERS)] = (64,)
    """Neurons of each recurrent layer."""
    input_width: PositiveInt | None = None
    """Neurons of a fully connected layer before the recurrent ones; none by default."""
    reservoir: Annotated[int, Field(ge=0, le=20_000)] = 0
    """Neurons of a fixed random recurrent network, the same on every client, that exact heads see beside it."""
    direct: Annotated[int, Field(ge=0, le=2_000)] = 0
    """Steps of the history itself that exact heads see, spread evenly over it; 1 is the latest row."""


class Training(Options):
    """How a network is trained on a client's data; what a client is sent."""

    optimizer: Annotated[Literal["adam", "rmsprop"], Tunable(("adam", "rmsprop"))] = "adam"
    """Adam or RMSprop."""
    learning_rate: Annotated[PositiveFloat, Tunable((0.0005, 0.001, 0.005))] = 1e-3
    """Of the optimizer, at the start."""
    schedule: Literal["constant", "cosine"] = "cosine"
    """Keep the learning rate, or let it fall to zero along a half cosine over the epochs."""
    epochs: PositiveInt = 30
    """Passes over a client's data."""
    steps: PositiveInt | None = None
    """Train for this number of gradient steps, in whole epochs, instead of `epochs`. Small clients then take as many
    steps as large ones."""
    batch_size: PositiveInt | None = None
    """Windows in a batch, 128 by default. With whole lives, units in a batch: 4, 8 or 16 by default, depending on how
    many units there are."""
    patience: PositiveInt | None = None
    """Stop after this many epochs without a better validation error; by default all epochs are trained."""
    warmup: Annotated[int, Field(ge=0)] = 5
    """Epochs before early stopping may begin to count."""
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.0
    """Decoupled decay of all weights (AdamW), per step and unit of learning rate."""
    dropout: Fraction = 0.0
    """Share of each recurrent layer's outputs left out at random while training."""
    clip: PositiveFloat | None = 1.0
    """Largest norm of a gradient step."""
    forget_bias: Annotated[float, Field(ge=0.0, le=10.0)] = 0.0
    """Added to the initial bias of the gates that keep a cell's state (forget gate of an LSTM, update gate of a GRU):
    it remembers from the start."""
    noise: Annotated[float, Field(ge=0.0)] = 0.0
    """Whole lives: deviation of the noise added to the scaled inputs while training."""
    warp: Annotated[float, Field(ge=0.0, lt=2.0)] = 0.0
    """Whole lives: each epoch shows a unit as if it had worn up to exp(warp) times faster or slower."""
    random_start: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Whole lives: share of the units that an epoch shows from a random row on, for records that begin in mid-life."""
    alike: bool = False
    """Whole lives: give every unit the same weight, however many rows it has."""
    running: bool = False
    """RUL: learn from units that still run, too. Rows that lie at least `recipe.cap` before a unit's latest row are
    labelled with the cap, which is certain; all other rows of such units are left out. Whole lives are also shown
    with the first readings of other units."""
    truncate: PositiveInt = 1000
    """Whole lives: gradients flow back over this many rows; the state is carried further."""

    @model_validator(mode="after")
    def _decay_leaves_weights(self) -> Self:
        if self.learning_rate * self.weight_decay > MOST_DECAY:
            raise ValueError(
                f"weight_decay times learning_rate is above {MOST_DECAY:g}: weights decay faster than they learn"
            )
        return self


class TrainOptions(Training):
    """Local training: what clients are sent, and what is kept out."""

    validation_fraction: Fraction = 0.2
    """Share of a client's units kept for early stopping (with one unit: of its last windows); 0 = none."""
    device: str = "auto"
    """`cpu` or `cuda`; `auto` takes a graphics processor where there is one. A deployed site chooses for itself."""

    @model_validator(mode="after")
    def _stopping_needs_validation(self) -> Self:
        if self.patience is not None and self.validation_fraction == 0:
            raise ValueError("patience needs a validation part: set validation_fraction above 0")
        return self

    def training(self, epochs: int | None = None) -> Training:
        """What a client is sent, with a number of epochs of its own if one is given."""
        shared = {name: getattr(self, name) for name in Training.model_fields}
        return Training(**{**shared, **({} if epochs is None else {"epochs": epochs, "steps": None})})
