"""Files and functions stay small enough to be read at one sitting."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import fedprognos

SOURCE = Path(fedprognos.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
MOST_LINES = 300
MOST_LINES_OF_A_FUNCTION = 60


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _lines_of_code(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring and without the functions inside it, which are counted themselves."""
    inner = [
        f for f in ast.walk(function) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef) and f is not function
    ]
    outer = [f for f in inner if not any(f is not g and f in ast.walk(g) for g in inner)]
    said = ast.get_docstring(function, clean=False)
    lines = _span(function) - (_span(function.body[0]) if said is not None else 0)
    return lines - sum(_span(f) for f in outer)


def _span(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_no_file_is_too_long() -> None:
    assert len(FILES) > 100
    lengths = {str(path.relative_to(SOURCE)): len(path.read_text("utf-8").splitlines()) for path in FILES}
    assert {name: n for name, n in lengths.items() if n > MOST_LINES} == {}


def test_no_function_is_too_long() -> None:
    found = {f"{p.relative_to(SOURCE)}: {f.name}": _lines_of_code(f) for p in FILES for f in _functions(p)}
    assert len(found) > 1000
    assert {name: n for name, n in found.items() if n > MOST_LINES_OF_A_FUNCTION} == {}


def test_a_function_is_measured_without_what_is_said_about_it() -> None:
    code = 'def f():\n    """One.\n\n    Two.\n    """\n    def g():\n        return 1\n    return g()\n'
    (outer,) = (f for f in ast.parse(code).body if isinstance(f, ast.FunctionDef))
    assert _lines_of_code(outer) == 2
