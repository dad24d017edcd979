"""Studies of many trainings: each cell is measured once, and what was interrupted goes on with the cells it lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fedprognos.files import read_json, write_json, write_text
from fedprognos.networks.torch_threads import one_torch_thread


class Cell(Protocol):
    """One training, or a few that belong together; its key names it in the results."""

    @property
    def key(self) -> str: ...


C = TypeVar("C", bound=Cell)


def measure_missing(
    file: Path,
    cells: Iterable[C],
    measure: Callable[[C], Any],
    page: Callable[[Mapping[str, Any]], str] | None = None,
    tell: Callable[[str], None] = print,
) -> Path:
    """Measure what the file lacks, and write it and its page, if it has one, after each cell. Returns the page."""
    results: dict[str, Any] = read_json(file) if file.is_file() else {}
    with one_torch_thread():
        for cell in cells:
            if cell.key not in results:
                results[cell.key] = measure(cell)
                write_json(file, results)
                if page is not None:
                    write_text(file.with_suffix(".md"), page(results))
                tell(cell.key)
    if page is not None:
        write_text(file.with_suffix(".md"), page(results))
    return file.with_suffix(".md")


def not_measured(keys: Iterable[str], results: Mapping[str, Any]) -> list[str]:
    """The part of a page that names what is missing; empty where all is there."""
    missing = [f"- {key}" for key in keys if key not in results]
    return ["## Not measured yet", "\n".join(missing)] if missing else []
