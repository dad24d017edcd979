"""The examples of docs/python.md run as they stand, one after the other, and none is longer than six statements."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest

import fedprognos as fp
from refusals import refuses

PAGE = Path(__file__).parents[1] / "docs" / "python.md"


@pytest.mark.long
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(blocks) >= 9
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        assert len(ast.parse(block).body) <= 6, block
        exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102 - the page's own code
    done = names["done"]
    assert isinstance(done, fp.Run)
    assert {"absorb", "central", "fedavg", "local"} <= set(done.results.frame()["method"])
    assert (tmp_path / "scatter.html").stat().st_size > 10_000
    model = names["model"]
    assert isinstance(model, fp.FederatedModel)
    said = model.predict(names["frame"])  # type: ignore[arg-type]
    assert np.isfinite(said).all()
    assert len(said) == len(names["frame"])  # type: ignore[arg-type]
    assert names["absorbed"].spec.widths == (8,)  # type: ignore[attr-defined]
    assert 8 <= names["matched"].spec.widths[0] <= 12  # type: ignore[attr-defined]
    assert names["health"].shape == (60,)  # type: ignore[attr-defined]


def test_a_network_of_ones_own_puts_out_what_it_did() -> None:
    import torch
    from torch import nn

    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.body, self.after = nn.Linear(3, 5), nn.GRU(5, 7, 2, batch_first=True), nn.Linear(7, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.after(self.body(torch.relu(self.before(x)))[0][:, -1])[:, 0]

    torch.manual_seed(0)
    mine, x = Mine(), torch.randn(4, 9, 3)
    taken = fp.network_of(mine)
    assert taken.spec.widths == (7, 7)
    torch.testing.assert_close(taken.module()(x), mine(x))
    # A copy with its neurons in another order is the same network, and matching finds that out.
    order = {"recurrent.0": [3, 1, 2, 0, 6, 5, 4], "recurrent.1": [6, 0, 1, 2, 3, 4, 5]}
    both = fp.match_networks([taken, taken.slice(order)], width_limit=1)
    torch.testing.assert_close(both.module()(x), mine(x), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "body", ["nn.LSTM(2, 3)", "nn.LSTM(2, 3, batch_first=True, bidirectional=True)", "nn.Conv1d(2, 3, 1)"]
)
def test_other_networks_are_refused_in_words(body: str) -> None:
    from torch import nn

    from fedprognos.errors import ConfigError

    made = eval(body, {"nn": nn})  # noqa: S307 - written above
    with refuses(ConfigError, "nn.LSTM", "nn.GRU"):
        fp.network_of(nn.Sequential(made, nn.Linear(3, 1)))


def test_the_estimator_answers_as_scikit_learn_asks() -> None:
    from fedprognos.errors import ConfigError

    model = fp.FederatedModel(unit="pump", time="hour")
    assert fp.FederatedModel(**model.get_params()).get_params() == model.get_params()
    assert model.set_params(owner="plant").owner == "plant"
    with refuses(ConfigError, "'woner'", "owner"):
        model.set_params(woner="plant")
    with refuses(ConfigError, "fit(frame)"):
        model.predict(None)  # type: ignore[arg-type]
