"""The mean over the holders of each neuron, weighted by data size: FedAvg's Eq. 2."""

from __future__ import annotations

from fedprognos.federation.aggregation import Aggregator, aggregators
from fedprognos.federation.aggregation.mean import mean

aggregators.add(Aggregator("weighted", "mean weighted by data size", 20, mean, by_size=True))
