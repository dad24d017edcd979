"""What a matching returns, and what it may start from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from numpy.typing import ArrayLike

from fedprognos.matching.arguments import Floats, Indices

Absorbing = Literal["all merged", "all kept", "neither"]


@dataclass(frozen=True, eq=False)
class Anchor:
    """A previous global model for the clients to be matched against.

    Parameters
    ----------
    means
        ``(A, D)``: one row for each global neuron. Row ``i`` stays global neuron ``i`` of the result, whether or
        not a client uses it.
    counts
        ``(A,)`` whole numbers >= 1: how many client neurons each row is the mean of. A count of ``c`` weighs as
        much as ``c`` clients that were matched to this neuron earlier and never move again; ``max(counts)`` is added
        to the number of clients J. ``None`` counts one each. Leave it so when the same clients come back round after
        round; otherwise they would be counted again in every round.
    """

    means: ArrayLike
    counts: ArrayLike | None = None


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """How a matching went.

    Parameters
    ----------
    gains
        Total gain of each pass: the initialisation, then every sweep. They need not rise (see :func:`match`).
    sweeps
        Sweeps made.
    converged
        Whether the last sweep left the partition as it was.
    absorbing
        ``"all merged"``: as few global neurons as the widest client (or the anchor) has. ``"all kept"``: no neuron
        was matched with another. Estimated hyper-parameters do not lead out of either. ``"neither"`` otherwise.
    singletons
        For each client, how many of its neurons no other client (nor the anchor) shares.
    mu0, sigma, sigma0
        The hyper-parameters at the end: prior mean ``(D,)``, noise and prior variance (a number, or ``(D,)``).
    cap
        The limit on the number of global neurons that was in force.
    rounds
        Matchings made: 1, or the iterations of :func:`match_recurrent`.
    """

    gains: tuple[float, ...]
    sweeps: int
    converged: bool
    absorbing: Absorbing
    singletons: Mapping[str, int]
    mu0: Floats
    sigma: float | Floats
    sigma0: float | Floats
    cap: int
    rounds: int = 1


@dataclass(frozen=True, eq=False)
class Matching:
    """Which client neurons are the same global neuron.

    Global neurons are numbered by the anchor first, then in the order in which the clients, in canonical order
    (width, data size, id), first use them: the first client keeps its own order.

    Parameters
    ----------
    assignments
        For each client ``(L_j,)``: the global neuron of each of its neurons. No two are the same.
    size
        Number of global neurons L'.
    counts
        ``(L',)``: how many client neurons each global neuron stands for, the anchor's counts included.
    means
        ``(L', D)``: maximum a posteriori mean of each global neuron.
    gain
        Total gain of the last pass over the clients.
    diagnostics
        How it went.
    """

    assignments: Mapping[str, Indices]
    size: int
    counts: Indices
    means: Floats
    gain: float
    diagnostics: Diagnostics
