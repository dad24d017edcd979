"""The example of docs/matching.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

PAGE = Path(__file__).parents[2] / "docs" / "matching.md"


def test_the_absorption_example_works():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    example = next(block for block in blocks if "absorb" in block)
    names: dict = {}
    exec(compile(example, str(PAGE), "exec"), names)  # noqa: S102 - the page's own code
    small = names["small"]
    assert small.layers[0].weight_hh.shape == (30, 10)
    assert len(small.absorbed[0]) == 14
    assert list(small.losses[0]) == list(range(24, 0, -1))
    # Ten of 24 neurons do nearly as well as all of them.
    body = names["torch"].nn.GRU(4, 10, batch_first=True)
    for name, array in vars(small.layers[0]).items():
        getattr(body, f"{name}_l0").data = names["torch"].from_numpy(np.asarray(array))
    h, y = body(names["x"])[0].detach().numpy().reshape(-1, 10), names["labels"].ravel()
    errors = []
    for features in (names["outputs"].reshape(-1, 24), h):
        design = np.column_stack([features, np.ones(len(y))])
        errors.append(np.mean(np.square(design @ np.linalg.lstsq(design, y, rcond=None)[0] - y)))
    assert errors[1] < 1.3 * errors[0]
