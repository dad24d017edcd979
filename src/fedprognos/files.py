"""Files: written atomically, locked by one process at a time, parsed with limits because anybody may have made them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import stat
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import tomli_w

from fedprognos.errors import ConfigError, OutputError

MAX_DEPTH = 50
"""Tables and lists inside one another, in files that people write."""
MAX_TOML_IN_BYTES = 1 << 24
DOTTED = re.compile(rf"(?<![^\s.,=\[\]{{}}])(?:[^\s.,=\[\]{{}}]+[ \t]*\.[ \t]*){{{MAX_DEPTH}}}")
"""A key of very many parts: the parser's memory grows with the square of their number."""
FORMULA, NUMBER = ("=", "+", "-", "@", "\t", "\r", "\n"), re.compile(r"[+-]?\d+([.,]\d+)?")
"""How a cell begins that a spreadsheet would run, and what is only a number."""


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


def exposure(path: Path) -> str:
    """What to tell the owner of a file with a secret that other users of this machine can read; else empty."""
    try:
        mode = path.stat().st_mode
    except OSError:  # whoever reads it says what is wrong
        return ""
    if not mode & (stat.S_IRGRP | stat.S_IROTH):
        return ""
    return f"other users of this machine can read the secret in {path}; run: chmod 600 '{path}'"


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, flushed to disk."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, or replace it. At no moment can anybody else read any of it."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        temporary.replace(path)
    except OSError as error:
        raise _cannot_write(path, error) from error


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically; the same value always gives the same bytes."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def parse_json(text: str | bytes, **options: Any) -> Any:
    """The content of JSON; ValueError for anything else: nested too deeply, or with texts that cannot be written.

    >>> parse_json('["a"]')
    ['a']
    """
    try:
        text = text.decode(json.detect_encoding(text)) if isinstance(text, bytes) else text
        text.encode()  # half a character as such, or escaped: no file and no terminal takes it
        content = json.loads(text, **options)
        if r"\ud" in text.lower():
            json.dumps(content, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return content


def read_json(path: Path) -> Any:
    """The content of a JSON file; raises OSError or ValueError if it cannot be read."""
    return parse_json(path.read_text("utf-8"))


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty where there is none, or the file is damaged."""
    try:
        content = read_json(path)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


class AddedLines:
    """Reads a file of JSON lines that another process may be writing: each line once, when it is complete."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_in_bytes = 0

    def read(self) -> Iterator[dict[str, Any]]:
        """The objects that were added since the last call, without lines that a crash cut off."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read_in_bytes)
                text = file.read()
        except OSError:
            return
        complete = text[: text.rfind(b"\n") + 1]
        self._read_in_bytes += len(complete)
        for line in complete.splitlines():
            try:
                entry = parse_json(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                yield entry


def parse_toml(text: str | bytes, where: str = "") -> dict[str, Any]:
    """The content of TOML; :class:`ConfigError` for anything else.

    >>> parse_toml("a = [1, 2]")
    {'a': [1, 2]}
    """
    try:
        text = text if isinstance(text, str) else text.decode("utf-8")
        if len(text) > MAX_TOML_IN_BYTES:
            raise ConfigError(f"larger than {MAX_TOML_IN_BYTES >> 20} MB", where=where, hint="is this the right file?")
        content = None if DOTTED.search(text) else tomllib.loads(text)
    except UnicodeDecodeError as error:
        what = f"not valid TOML: byte {error.start} is not UTF-8"
        raise ConfigError(what, where=where, hint="save the file as UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not valid TOML: {error}", where=where) from None
    except RecursionError:
        content = None
    if content is None or _deeper(content, MAX_DEPTH):
        raise ConfigError(f"not valid here: tables inside one another more than {MAX_DEPTH} deep", where=where)
    return content


def toml_text(content: dict[str, Any]) -> str:
    """A file's text; TOML has no null, so keys without a value are left out.

    >>> toml_text({"train": {"steps": 40, "epochs": None}})
    '[train]\\nsteps = 40\\n'
    """
    return tomli_w.dumps(_without_none(content))


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return [_without_none(inner) for inner in value] if isinstance(value, list | tuple) else value


def _deeper(content: Any, depth: int) -> bool:
    level = [content]
    for _ in range(depth):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


class HeldError(OutputError):
    """Another process holds a lock; `pid` is its id, None if unknown."""

    def __init__(self, lock: Path, pid: int | None, what: str, hint: str) -> None:
        self.pid = pid
        super().__init__(what if pid is None else f"{what} (process {pid})", where=str(lock.parent), hint=hint)


@contextlib.contextmanager
def holding(
    lock: Path, what: str = "another process is at work here", hint: str = "wait for it, or end it"
) -> Iterator[None]:
    """Hold a lock file with this process's id in it; the system lets go of it however the process ends.

    Raises
    ------
    HeldError
        Where somebody else holds it.
    OutputError
        Where it cannot be written.
    """
    while True:
        try:
            file = lock.open("a+", encoding="utf-8")
        except OSError as error:
            raise _cannot_write(lock, error) from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise HeldError(lock, _pid(file), what, hint) from None
            if os.fstat(file.fileno()).st_nlink == 0:  # its holder removed it just now, so it locks nothing
                continue
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)
            return


def holder(lock: Path) -> int | None:
    """Id of the process that holds a lock file, None where nobody does."""
    with contextlib.suppress(FileNotFoundError), lock.open("r+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return _pid(file)
    return None


def _pid(file: TextIO) -> int | None:
    file.seek(0)
    text = file.read(20)
    return int(text) if text.isdecimal() else None


def spreadsheet_safe(text: str) -> str:
    """A text that no spreadsheet takes for a formula: with an apostrophe before it where it would be one.

    >>> spreadsheet_safe("=cmd|' /C calc'!A0"), spreadsheet_safe("-12.5"), spreadsheet_safe("pump 7")
    ("'=cmd|' /C calc'!A0", '-12.5', 'pump 7')
    """
    return text if not text.startswith(FORMULA) or NUMBER.fullmatch(text) else f"'{text}"


def from_spreadsheet(text: str) -> str:
    """The text that :func:`spreadsheet_safe` was given.

    >>> from_spreadsheet("'=cmd|' /C calc'!A0"), from_spreadsheet("'pump'")
    ("=cmd|' /C calc'!A0", "'pump'")
    """
    return text[1:] if text.startswith("'") and spreadsheet_safe(text[1:]) == text else text
