"""`import fedprognos as fp` shows its names to people, editors and type checkers."""

from __future__ import annotations

import subprocess
import sys

import fedprognos as fp


def test_every_public_name_is_there() -> None:
    assert {"run", "Fleet", "Predictor", "Strategy", "Exchange", "checks", "registry"} <= set(fp.__all__)
    assert set(fp.__all__) <= set(dir(fp))
    assert all(getattr(fp, name) is not None for name in fp.__all__)


def test_the_package_itself_loads_nothing_heavy() -> None:
    code = "import sys, fedprognos; print([m for m in ('torch', 'pandas', 'duckdb', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
