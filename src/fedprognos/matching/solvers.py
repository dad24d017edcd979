"""Linear sum assignment (Eq. 5) by name: every row gets a column of its own at the lowest total cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from scipy.optimize import linear_sum_assignment

from fedprognos.errors import MissingExtraError, unknown_name
from fedprognos.matching.arrays import Floats, Indices

Solver: TypeAlias = Callable[[Floats], Indices]


def scipy_solver() -> Solver:
    """SciPy's shortest augmenting paths."""

    def solve(cost: Floats) -> Indices:
        return np.asarray(linear_sum_assignment(cost)[1], np.intp)

    return solve


def lapx_solver() -> Solver:
    """Jonker-Volgenant from lapx: the same total, several times sooner for wide layers."""
    try:
        from lap import lapjvr
    except ImportError as error:
        raise MissingExtraError("lapx", "fast", "solver='lapx'") from error

    def solve(cost: Floats) -> Indices:
        return np.asarray(lapjvr(cost, extend_cost=True, return_cost=False)[1], np.intp)

    return solve


SOLVERS: dict[str, Callable[[], Solver]] = {"scipy": scipy_solver, "lapx": lapx_solver}


def solver_named(name: str) -> Solver:
    """The solver of that name.

    Examples
    --------
    >>> solver_named("scipy")(np.array([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0]])).tolist()
    [1, 0]
    """
    if name not in SOLVERS:
        raise unknown_name("solver", name, SOLVERS)
    return SOLVERS[name]()
