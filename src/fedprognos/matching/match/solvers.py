"""Linear sum assignment (Eq. 5) by name: every row gets a column of its own at the lowest total cost."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TypeAlias

import numpy as np

from fedprognos.errors import MissingExtraError, unknown_name
from fedprognos.matching.arguments import Floats, Indices

Solver: TypeAlias = Callable[[Floats], Indices]


def solve_with_scipy(cost: Floats) -> Indices:
    """SciPy's shortest augmenting paths."""
    from scipy.optimize import linear_sum_assignment  # loading it takes half a second, and prediction never needs it

    return np.asarray(linear_sum_assignment(cost)[1], np.intp)


def solve_with_lapx(cost: Floats) -> Indices:
    """Jonker-Volgenant from lapx: the same total, several times faster for wide layers."""
    from lap import lapjvr

    return np.asarray(lapjvr(cost, extend_cost=True, return_cost=False)[1], np.intp)


SOLVERS: dict[str, Solver] = {"scipy": solve_with_scipy, "lapx": solve_with_lapx}


def solver_named(name: str) -> Solver:
    """The solver of that name; raises where its package is not installed.

    Examples
    --------
    >>> solver_named("scipy")(np.array([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0]])).tolist()
    [1, 0]
    """
    if name not in SOLVERS:
        raise unknown_name("solver", name, SOLVERS)
    if name == "lapx" and find_spec("lap") is None:
        raise MissingExtraError("lapx", "fast", "solver='lapx'")
    return SOLVERS[name]
