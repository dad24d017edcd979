"""What the methods of a run are called: taken from the shelves, so that results carry it with them."""

from __future__ import annotations

from collections.abc import Iterable

from fedprognos.evaluation import Method, ResultRow, baselines
from fedprognos.federation.strategies import Strategy, strategies

MEAN_OF_LOCALS = "mean-of-locals"


def known_methods() -> dict[str, Method]:
    """Labels, order and kind of everything that can make rows, in order."""
    known = {name: Method(label=b.label, order=b.order, kind="baseline") for name, b in baselines.items()}
    known |= {name: _method(strategy) for name, strategy in strategies.items()}
    known[MEAN_OF_LOCALS] = Method(label="Mean of locals", order=strategies["local"].order + 5, kind="local")
    return dict(sorted(known.items(), key=lambda item: item[1].order))


def methods_of(rows: Iterable[ResultRow]) -> dict[str, Method]:
    """The methods that rows are about."""
    there = {row.method.partition("+")[0] for row in rows}
    return {name: method for name, method in known_methods().items() if name in there}


def _method(strategy: Strategy) -> Method:
    kind = "federated" if strategy.federated else "central" if strategy.pooled else "local"
    return Method(label=strategy.label, order=strategy.order, kind=kind)
