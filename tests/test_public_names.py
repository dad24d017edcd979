"""`import fedprognos as fp` shows its names to people, editors and type checkers."""

from __future__ import annotations

import ast
from pathlib import Path

import fedprognos as fp


def test_every_public_name_is_listed_typed_and_there() -> None:
    tree = ast.parse(Path(fp.__file__).read_text("utf-8"))
    (typed,) = (node for node in tree.body if isinstance(node, ast.If))
    names = {alias.asname for line in typed.body if isinstance(line, ast.ImportFrom) for alias in line.names}
    assert names == set(fp.__all__) == set(dir(fp)) - {"__version__"}
    assert all(getattr(fp, name) is not None for name in fp.__all__)
