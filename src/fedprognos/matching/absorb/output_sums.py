"""Sums over the outputs of a layer: all that absorption needs to know of the data, and no row of it.

Sums of several clients add up to the sums of all their rows, so they can be masked on the way.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedprognos.errors import DataError
from fedprognos.matching.arguments import Booleans, Floats, Indices

BLOCK = 16_384
"""Rows turned to float64 at once."""
TOLERANCE = 1e-9
"""Relative rounding that valid sums may show."""
NEGLIGIBLE = 1e-12
"""Share of a neuron's variance below which a factor drops what others do not predict, as elimination does."""
Factor: TypeAlias = tuple[Indices, NDArray[np.float32]]
"""Order of the neurons (N,), and the upper trapezoid of a triangular factor, row by row."""


@dataclass(frozen=True, eq=False)
class OutputSums:
    """Sums over all time steps of what the N neurons of a layer put out.

    Parameters
    ----------
    n, starts
        Time steps, and sequences that begin (with outputs of zero) among them.
    s, S
        ``(N,)`` sum of h, and ``(N, N)`` sum of h h'.

    Examples
    --------
    >>> outputs = np.array([[[0.5, 0.1], [0.2, 0.3]], [[0.4, 0.0], [0.0, 0.0]]])  # 2 sequences, 2 steps, 2 neurons
    >>> one = OutputSums.from_outputs(outputs, labels=[[1.0, 0.5], [2.0, 0.0]], mask=[[True, True], [True, False]])
    >>> one.n, one.starts, one.s.round(2).tolist(), one.q.round(2).tolist()
    (3, 2, [1.1, 0.4], [1.4, 0.25])
    >>> one.add(one).n
    6
    """

    n: int
    starts: int
    s: Floats
    S: Floats

    @property
    def width(self) -> int:
        """N."""
        return len(self.s)

    @classmethod
    def from_outputs(
        cls,
        outputs: ArrayLike,
        labels: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        starts: int | None = None,
    ) -> OutputSums:
        """Sums of outputs ``(B, T, N)`` of B sequences, or ``(T, N)`` of one.

        Parameters
        ----------
        labels
            ``(B, T)``, standardised.
        mask
            ``(B, T)``: False where a step is padding, which is left out.
        starts
            Sequences that begin here, where some are continued from an earlier part. All of them by default.
        """
        h = np.asarray(outputs)
        counted: Booleans = np.ones(h.shape[:-1], bool) if mask is None else np.asarray(mask, bool)
        if h.ndim not in (2, 3):
            raise DataError(f"outputs of shape {h.shape}", hint="pass (B, T, N), or (T, N) of one sequence")
        for name, given in (("labels", labels), ("mask", mask)):
            if given is not None and np.shape(given) != h.shape[:-1]:
                raise DataError(f"outputs of shape {h.shape} with {name} of shape {np.shape(given)}")
        if starts is None:
            starts = int(np.count_nonzero(np.atleast_2d(counted).any(axis=-1)))
        rows = h[counted]
        y = None if labels is None else np.asarray(labels, np.float64)[counted]
        s, S, q = np.zeros(h.shape[-1]), np.zeros((h.shape[-1], h.shape[-1])), np.zeros(h.shape[-1])
        for first in range(0, len(rows), BLOCK):
            block = rows[first : first + BLOCK].astype(np.float64)
            s += block.sum(axis=0)
            S += block.T @ block
            if y is not None:
                q += y[first : first + BLOCK] @ block
        if y is None:
            return OutputSums(len(rows), starts, s, S)
        return LabelledSums(len(rows), starts, s, S, q, float(y.sum()), float(y @ y))

    def add(self, *others: Self) -> Self:
        """Sums over the rows of all, in the order given."""
        total = self
        for other in others:
            if other.width != total.width or type(other) is not type(total):
                raise DataError(
                    f"sums of {total.width} and {other.width} neurons, with and without labels, do not add up"
                )
            total = type(self)(**{f.name: getattr(total, f.name) + getattr(other, f.name) for f in fields(self)})
        return total

    def take(self, neurons: Indices) -> Self:
        """Sums of some of the neurons."""
        return replace(self, s=self.s[neurons], S=self.S[np.ix_(neurons, neurons)])

    def factor(self) -> Factor | None:
        """What S holds besides the means and labels, in a quarter of the bytes; None where no rows have such an S.

        S is R'R plus what ones and labels explain, which stays as it is. So float32 is enough for R: S is as if each
        output had been rounded to float32, no two sums contradict each other, and copies of neurons stay copies.
        """
        from scipy.linalg.lapack import dpstrf  # loaded late: prediction never needs it

        rest = self.S - self._explained()
        size = np.sqrt(np.maximum(rest.diagonal(), 0.0))
        size[size <= np.sqrt(NEGLIGIBLE * self.S.diagonal().clip(0))] = 0.0
        scale = np.where(size > 0, size, 1.0)
        triangle, pivots, rank, _ = dpstrf(rest / np.outer(scale, scale), tol=NEGLIGIBLE)
        order = (pivots - 1).astype(np.int64)
        rows = (triangle[:rank] * size[order])[np.triu_indices(rank, m=self.width)].astype(np.float32)
        off = np.abs(self.with_factor((order, rows)).S - self.S)
        room = np.sqrt(np.maximum(np.outer(self.S.diagonal(), self.S.diagonal()), 0.0))
        return (order, rows) if (off <= np.finfo(np.float32).eps * room).all() else None

    def with_factor(self, factor: Factor) -> Self:
        """These sums with the S that the factor stands for."""
        order, rows = factor
        width = self.width
        if order.shape != (width,) or (np.sort(order) != np.arange(width)).any() or rows.ndim != 1:
            raise ValueError("a factor of another shape")
        ends = np.cumsum(np.arange(width, 0, -1))
        rank = int(np.searchsorted(ends, len(rows))) + 1 if len(rows) else 0
        if rank and (rank > width or ends[rank - 1] != len(rows)):
            raise ValueError("a factor with a row that is cut off")
        R = np.zeros((rank, width))
        R[np.triu_indices(rank, m=width)] = rows
        R[:, order] = R.copy()
        return replace(self, S=R.T @ R + self._explained())

    def _explained(self) -> Floats:
        """``(N, N)`` products of what ones and labels predict of the outputs."""
        corner, border = self._label_columns()
        values, vectors = np.linalg.eigh(corner)
        kept = values > TOLERANCE * max(float(values[-1]), 0.0)
        predicted = (vectors[:, kept] / np.sqrt(values[kept])).T @ border
        return np.asarray(predicted.T @ predicted)

    def moments(self, *, starts: bool) -> tuple[Floats, Floats]:
        """Mean ``(N,)`` and covariance ``(N, N)``; with ``starts`` the zeros that sequences begin with count, too."""
        rows = self.n + (self.starts if starts else 0)
        mean = self.s / rows
        return mean, self.S / rows - np.outer(mean, mean)

    def check(
        self,
        *,
        bounded: bool = True,
        label_range: tuple[float, float] | None = None,
        where: str = "sums",
    ) -> None:
        """Refuse sums that no outputs can have.

        Parameters
        ----------
        bounded
            Outputs lie in [-1, 1], as those of LSTM and GRU do.
        label_range
            Lowest and highest standardised label there can be.
        where
            What they are sums of, for the message.
        """
        problem = self._shape_problem() or self._value_problem(bounded, label_range)
        if problem:
            raise DataError(f"invalid sums: {problem}", where=where, hint="OutputSums.from_outputs adds up outputs")

    def _shape_problem(self) -> str:
        size = np.shape(self.s)
        shapes = {"s": size if len(size) == 1 else (1,), "S": 2 * size, "q": size}
        for field in fields(self):
            value = getattr(self, field.name)
            if np.shape(value) != shapes.get(field.name, ()):
                return f"{field.name} has shape {np.shape(value)} where s has {size}"
            try:
                finite = np.isfinite(np.asarray(value, np.float64)).all()
            except (TypeError, ValueError, OverflowError):
                return f"{field.name} is not made of numbers"
            if not finite:
                return f"{field.name} is not finite"
        return ""

    def _value_problem(self, bounded: bool, label_range: tuple[float, float] | None) -> str:
        n, room = self.n, 1 + TOLERANCE
        if not (n >= 0 and 0 <= self.starts <= n):
            return f"{n:g} steps and {self.starts:g} starts"
        squares = self.S.diagonal()
        if (squares < 0).any():
            return f"the squares of neuron {int(np.argmin(squares))} add up to {squares.min():g}"
        scale = np.sqrt(np.outer(squares, squares))
        if (np.abs(self.S - self.S.T) > TOLERANCE * scale).any():
            return "S is not symmetric"
        if bounded and (np.abs(self.s) > n * room).any():
            return f"outputs of neuron {int(np.argmax(np.abs(self.s)))} lie outside [-1, 1] on average"
        if bounded and (squares > n * room).any():
            return f"squared outputs of neuron {int(np.argmax(squares))} exceed 1 on average"
        problem = "" if label_range is None else self._label_problem(*label_range)
        if problem or self._consistent():
            return problem
        return "no rows have these sums and products (not positive semi-definite)"

    def _label_problem(self, low: float, high: float) -> str:
        return ""

    def _label_columns(self) -> tuple[Floats, Floats]:
        """Sums and products of the columns of ones and labels: (C, C) with each other and (C, N) with the outputs."""
        return np.array([[self.n]]), self.s[None]

    def _consistent(self) -> bool:
        """Whether [[n, s'], [s, S]], with the labels as one more column, is positive semi-definite within rounding."""
        from scipy.linalg.lapack import dpotrf  # loaded late: prediction never needs it

        corner, border = self._label_columns()
        whole = np.block([[corner, border], [border.T, (self.S + self.S.T) / 2]])
        size = np.sqrt(np.maximum(whole.diagonal(), 0.0))
        if (np.abs(whole) > (1 + TOLERANCE) * np.outer(size, size)).any():
            return False
        size[size == 0] = 1.0
        whole /= np.outer(size, size)
        whole[np.diag_indices_from(whole)] += TOLERANCE * len(whole)
        return bool(dpotrf(whole, overwrite_a=True)[1] == 0)


@dataclass(frozen=True, eq=False)
class LabelledSums(OutputSums):
    """Sums with labels, of a layer that the head reads. They stay with the party that solves the head.

    Parameters
    ----------
    q, y, yy
        ``(N,)`` sum of h y, and sums of y and y^2, of standardised labels y.
    """

    q: Floats
    y: float
    yy: float

    def take(self, neurons: Indices) -> Self:
        """Sums of some of the neurons."""
        return replace(super().take(neurons), q=self.q[neurons])

    def _label_problem(self, low: float, high: float) -> str:
        slack = TOLERANCE * self.n * max(abs(low), abs(high))
        if not (self.n * low - slack <= self.y <= self.n * high + slack):
            return f"the labels' mean is outside [{low:g}, {high:g}]"
        most = (low + high) * self.y - self.n * low * high  # (y - low) (high - y) is not negative for any label
        if self.yy > most + TOLERANCE * self.n * max(low**2, high**2):
            return f"the labels' squares are outside [{low:g}, {high:g}]"
        return ""

    def _label_columns(self) -> tuple[Floats, Floats]:
        return np.array([[self.n, self.y], [self.y, self.yy]]), np.stack([self.s, self.q])
