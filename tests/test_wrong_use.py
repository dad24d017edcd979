"""The front door in wrong hands: errors of this package that name the fault and what to do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch

import fedprognos as fp
from refusals import refuses
from small_fleets import series_fleet

FRAME = pd.DataFrame({"pump": ["a", "a", "b", "b"], "hour": [1, 2, 1, 2], "heat": [20.0, 25, 21, 26]})


def network() -> torch.nn.ModuleDict:
    return torch.nn.ModuleDict({"body": torch.nn.LSTM(2, 4, batch_first=True), "out": torch.nn.Linear(4, 1)})


@pytest.mark.parametrize(
    ("use", "named"),
    [
        (lambda: fp.run(FRAME), ("DataFrame", "fp.Fleet.from_frame")),  # type: ignore[arg-type]
        (lambda: fp.run("demo", modell={}), ("modell", "model")),
        (lambda: fp.Fleet.from_frame(FRAME.to_numpy(), unit="pump", time="hour"), ("ndarray",)),
        (lambda: fp.Fleet.from_frame(FRAME.iloc[:0], unit="pump", time="hour"), ("no rows",)),
        (lambda: fp.Fleet.from_frame(FRAME, unit="pmp", time="hour"), ("pmp", "pump")),
        (lambda: fp.match_networks([network(), network()], widthlimit=2), ("widthlimit", "width_limit")),
        (lambda: fp.match_networks([network(), network()], width_limit=0.1), ("width_limit", "0.1")),
        (lambda: fp.absorb([network()], np.zeros((3, 5, 2)), np.zeros(3), width=4), ("ndarray", "fp.windows")),  # type: ignore[arg-type]
        (lambda: fp.FederatedModel(unit="pump", time="hour").fit(FRAME.to_numpy()), ("ndarray",)),
    ],
)
def test_wrong_use_is_an_error_of_this_package_that_names_it(use: Callable[[], object], named: tuple[str, ...]) -> None:
    with refuses(fp.FedprognosError, *named):
        use()


def test_values_show_themselves_in_a_few_lines() -> None:
    fleet = series_fleet([30, 40], seed=0, name="a")
    assert repr(fleet) == str(fleet)
    assert len(repr(fleet).splitlines()) < 10
    assert len(repr(fp.network_of(network()))) < 200
    assert "method='absorb'" in repr(fp.FederatedModel(unit="pump"))
