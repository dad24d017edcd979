"""Writing files so that nothing half-written is ever seen: to a temporary name beside it, then renamed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedprognos.errors import OutputError


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`, renamed to it on success and removed on failure.

    Works for files and folders alike; an interrupt or a full disk leaves what was there before.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    except OSError as error:
        raise _cannot_write(path, error) from error
    try:
        temporary = folder / path.name
        yield temporary
        _swap(temporary, path, folder / "old")
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _swap(new: Path, path: Path, old: Path) -> None:
    """Put `new` in the place of `path`; a folder cannot be renamed onto another, so it steps aside first."""
    if not path.is_dir() or path.is_symlink():
        new.replace(path)
        return
    path.replace(old)
    try:
        new.replace(path)
    except OSError:
        old.replace(path)
        raise


def _cannot_write(path: Path, error: OSError) -> OutputError:
    reason = error.strerror or str(error)
    return OutputError(f"cannot write: {reason}", where=str(path), hint="free some space or choose another folder")


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, flushed to disk."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically; the same value always gives the same bytes."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
