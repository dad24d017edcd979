"""What several commands share: consoles, a bar, texts from elsewhere, and options about keys."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedprognos.errors import printable
from fedprognos.files import exposure

if TYPE_CHECKING:
    from fedprognos.networks import Trust

TrustFile = Annotated[
    Path | None, typer.Option("--trust", metavar="FILE", help="Keys that must have signed the model (TOML).")
]
_WIDE = 500


def read_trust(path: Path | None) -> Trust | None:
    """The keys that must have signed a model; None where no file is given."""
    from fedprognos.networks import Trust

    return None if path is None else Trust.from_file(path)


def warn_of_exposed(*files: Path | None) -> None:
    """Tell the user which files with secrets other users can read."""
    for text in [exposure(file) for file in files if file is not None]:
        if text:
            Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print(f"warning: {text}")


def plain_console() -> Console:
    """Standard output; wide lines are not folded where it is a file or a pipe."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDE)


def escaped(text: str) -> str:
    """A text from elsewhere for a console: nothing in it is markup, nothing moves the cursor or changes colours."""
    return escape(printable(text))


@contextlib.contextmanager
def share_bar(what: str) -> Iterator[Callable[[float], None]]:
    """A bar on a terminal's standard error; call the result with the share that is done."""
    errors = Console(stderr=True)
    columns = (TextColumn(what), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, disable=not errors.is_terminal) as bars:
        task = bars.add_task(what, total=1.0)
        yield lambda share: bars.update(task, completed=share)
