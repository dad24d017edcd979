"""Which ways of training are compared, and how, as an experiment says it."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from fedprognos.options import Options

Wire = Literal["float32", "float16", "bfloat16"]


class FedAvgOptions(Options):
    """FedAvg: coordinate-wise averages weighted by data size (Eq. 2)."""

    rounds: PositiveInt = 10
    epochs: PositiveInt = 5
    """Local epochs a round."""


class FedProxOptions(FedAvgOptions):
    """FedProx: FedAvg whose clients are held near the federated model."""

    mu: PositiveFloat = 0.01


class FedMAOptions(Options):
    """FedMA: matched averaging, layer by layer (Algorithm 1)."""

    rounds: PositiveInt = 1
    epochs: PositiveInt | None = None
    """Local epochs a round; train.epochs by default."""
    retrain_epochs: PositiveInt | None = None
    """Epochs of the layers above a matched one; as `epochs` by default."""
    start: Literal["independent", "common"] = "independent"
    """Whether clients draw their first weights each for themselves or start from the same."""
    cost: Literal["spahm", "pfnm"] = "spahm"
    signature: Literal["ih", "ih+hh"] = "ih+hh"
    average: Literal["mean", "weighted", "map", "median", "trimmed"] = "mean"
    noise: PositiveFloat | None = None
    """Variance of a client's neuron around its global one, as a share of the pooled variance; 0.5 by default."""
    estimate: bool = True
    """Re-estimate the variances from the partition."""
    gamma: PositiveFloat = 1.0
    sweeps: Annotated[int, Field(ge=0)] = 10
    width_limit: Annotated[float, Field(ge=1.0)] | None = None
    """Most neurons of a federated layer, in multiples of the widest client's; 1 = fixed width, None = free growth."""
    next_round: Literal["grown", "sliced"] = "grown"
    """Whether clients go on with the grown model or with their own neurons of it."""


class ConcatOptions(Options):
    """Every client's extractors side by side, nothing merged."""

    epochs: PositiveInt | None = None
    """Local epochs; train.epochs by default."""


class FederationOptions(Options):
    """Which ways of training are compared, and how."""

    methods: Annotated[
        tuple[Literal["local", "central", "fedavg", "fedprox", "single", "concat", "fedma"], ...], Field(min_length=1)
    ] = ("local", "central", "fedavg", "fedprox", "concat", "fedma")
    heads: Annotated[tuple[Literal["mean", "exact", "personal"], ...], Field(min_length=1)] = ("exact", "mean")
    """Heads examined for every method: as trained and averaged, solved exactly, or the client's own. The first decides
    which bundle is published."""
    ridge: PositiveFloat = 10.0**-3.5
    """Strength of exact and personal heads where training keeps nothing out to choose it on, relative to the mean
    square of the features."""
    start: Literal["train", "bundles"] = "train"
    """Let fedma and concat begin with models trained anew, or with those the clients trained earlier."""
    bundles: str | None = None
    """Folder with one bundle a client, by its name."""
    min_clients: PositiveInt | None = None
    """Go on with so many clients when others fail; all of them by default."""
    participation: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Share of the clients that takes part in a round."""
    timeout_in_s: PositiveFloat | None = None
    """Longest wait for a client's answer."""
    wire: Wire = "float32"
    """Precision of weights between coordinator and clients while training; half of it moves half the bytes."""
    patience: PositiveInt | None = None
    """Stop after so many rounds without a better validation error."""
    fedavg: FedAvgOptions = FedAvgOptions()
    fedprox: FedProxOptions = FedProxOptions()
    fedma: FedMAOptions = FedMAOptions()
    concat: ConcatOptions = ConcatOptions()

    @model_validator(mode="after")
    def _bundles_go_with_start(self) -> Self:
        if (self.start == "bundles") != (self.bundles is not None):
            raise ValueError("start = 'bundles' and bundles = FOLDER go together")
        return self
