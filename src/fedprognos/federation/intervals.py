"""Prediction intervals for what costs about one training more: every unit is left out of the head, on its own site.

The sums that the head was solved from are known. Each client takes one unit after another out of them, solves the head
that the others give, and counts its residuals on that unit. The layers below have learnt from the unit, so these
residuals are too small. To measure by how much, the method is trained once more without every client's reserve,
a tenth of its units, and the errors of both networks on the reserve are compared. A ratio from so few units is
uncertain, so residuals are stretched by its square root, drawn to what is usual. Those of RUL are stretched by more the
more life is predicted: layers know by heart how far from their ends units are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.errors import FederationError
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.exchanges.residuals import ResidualReply, ResidualRequest
from fedprognos.federation.heads import Judged, with_heads
from fedprognos.federation.plan import Plan
from fedprognos.federation.strategies import Strategy
from fedprognos.federation.totals import total
from fedprognos.networks import EDGES, MIN_UNITS, USUAL_STRETCH, Calibration, Network, calibration_of, prediction_ranges

NOWHERE = np.empty(0)
WORTH = 20
"""How many units of a reserve count as much as the stretch that is usual; chosen with it."""


@dataclass(frozen=True)
class Uncalibrated:
    """Why a model has no intervals."""

    reason: str


@dataclass(frozen=True, eq=False)
class Intervals:
    """Makes the intervals of one model.

    Parameters
    ----------
    clients
        Whose model it is.
    rounds
        The round that was chosen.
    """

    cohort: Cohort
    plan: Plan
    strategy: Strategy
    clients: tuple[str, ...]
    rounds: int

    def calibrate(self, judged: Judged) -> Calibration | Uncalibrated:
        """What intervals are made from, or why there are none."""
        if self.plan.federation.privacy is not None:
            return Uncalibrated("differential privacy does not cover residuals")
        if judged.sums is None:
            return Uncalibrated("its head is averaged, so no unit can be left out of it; put 'exact' first in heads")
        if self.strategy.trains and self.plan.federation.start == "bundles":
            return Uncalibrated("models that were trained earlier cannot be trained again without some units")
        try:
            if (units := int(self._residuals(judged).units.max())) < MIN_UNITS:
                return Uncalibrated(f"intervals need residuals of at least {MIN_UNITS} units; there are {units}")
            stretch = self._stretch(judged) if self.strategy.trains else 1.0
            if stretch is None:
                return Uncalibrated("no client has enough units to train again without some of them")
            ranges = np.array(prediction_ranges(self.plan.recipe), dtype=np.float64)
            residuals = self._residuals(judged, ranges, np.array(EDGES), stretch)
        except FederationError as error:
            return Uncalibrated(f"some clients could not take part: {error.what}")
        return calibration_of(residuals.counts, residuals.units, self.plan.recipe)

    def _stretch(self, judged: Judged) -> float | None:
        """How much larger errors are on units that the layers never saw, halfway to the cap; at least 1.

        None where no client has a reserve.
        """
        seen = self._residuals(judged, only_reserve=True)
        if not seen.counts.any():
            return None
        unseen = self._residuals(Judged(self._blind(), None), only_reserve=True)
        measured = (_mean_square(unseen) / max(_mean_square(seen), 1e-12)) ** 0.25
        share = (units := int(seen.units.max())) / (units + WORTH)
        return max(1.0, float(measured**share * USUAL_STRETCH ** (1 - share)))

    def _blind(self) -> Network:
        """The method's model, trained without some units."""
        plan = replace(self.plan, without_reserve=True)
        if self.rounds == 1:  # heads that clients train matter from the second round on only
            plan = replace(plan, federation=plan.federation.model_copy(update={"heads": ("exact",)}))
        for round_ in self.strategy.run(self.cohort, plan):
            if round_.number == self.rounds:
                break
        if self.clients not in round_.models:
            raise FederationError("other clients took part when the method was trained again")
        network = round_.models[self.clients]
        return with_heads(self.cohort, plan, self.clients, network, round_.ridge)["exact"].network

    def _residuals(
        self,
        judged: Judged,
        ranges: FloatArray = NOWHERE,
        edges: FloatArray = NOWHERE,
        stretch: float = 1.0,
        *,
        only_reserve: bool = False,
    ) -> ResidualReply:
        """Residuals over all clients that have a part in the head."""
        plan, asked = self.plan, {}
        request = ResidualRequest(
            plan.recipe,
            judged.network,
            plan.seed,
            plan.train.validation_fraction,
            ranges,
            edges,
            judged.sums,
            only_reserve,
            stretch,
        )
        request_by_share = {1.0: request}
        for name in self.clients:
            share = judged.shares.get(name, 0.0) if judged.shares else 1.0
            if judged.sums is not None and share not in request_by_share:
                request_by_share[share] = replace(request, sums=replace(judged.sums, share=share))
            if share > 0 and name in self.cohort.clients:
                asked[name] = request_by_share[share]
        return total(self.cohort, asked, ResidualReply, 1, plan.left_out)


def _mean_square(reply: ResidualReply) -> float:
    return reply.squared / int(reply.counts.sum())
