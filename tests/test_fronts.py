"""Imports between rooms go through a front: the room's own `__init__`, or that of a folder of registered things."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedprognos

SOURCE = Path(fedprognos.__file__).parent
PACKAGES = {
    ".".join(path.parent.relative_to(SOURCE.parent).parts): path.parent for path in sorted(SOURCE.rglob("__init__.py"))
}
ROOMS = {name.split(".")[1] for name in PACKAGES if "." in name}
LAZY = sorted(path.parent.name for path in SOURCE.glob("*/__init__.pyi"))


def _imports_between_rooms() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        room = path.relative_to(SOURCE).parts[0]
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("fedprognos."):
                target = node.module.split(".")[1]
                if target in ROOMS and target != room:
                    yield str(path.relative_to(SOURCE)), node.module


def test_imports_between_rooms_name_a_front() -> None:
    imports = list(_imports_between_rooms())
    assert len(imports) > 300
    assert [(where, module) for where, module in imports if module not in PACKAGES] == []


@pytest.mark.parametrize("room", LAZY)
def test_a_front_has_what_its_stub_lists(room: str) -> None:
    front = importlib.import_module(f"fedprognos.{room}")
    for name in front.__all__:
        # A module of the same name would hide what the stub lists as soon as anybody imports that module.
        assert not (PACKAGES[f"fedprognos.{room}"] / f"{name}.py").exists()
        assert hasattr(front, name)


def test_every_front_has_what_it_lists() -> None:
    for package in PACKAGES:
        front = importlib.import_module(package)
        assert [name for name in getattr(front, "__all__", ()) if not hasattr(front, name)] == [], package


def test_rooms_that_many_extras_serve_are_lazy() -> None:
    assert {"deployment", "federation", "prognosis", "service"} <= set(LAZY)
