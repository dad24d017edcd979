"""Rows from files that appear in a folder, or grow there: CSV, Excel and Parquet, read as those of training are.

A file is read when it has not changed between two looks, so that one that is still being written is left alone; a text
whose last line has no end must stay the same for longer. Rows that the service has already are passed over: a file that
has grown, and all files after a restart, are read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from fedprognos.errors import ConfigError, DataError, FedprognosError
from fedprognos.prognosis import Row, read_pieces
from fedprognos.service.row_readers import new_rows
from fedprognos.service.sources import LOG, Feed, Source, SourceOptions, sources
from fedprognos.tables import SUFFIXES

ROWS_AT_ONCE = 1000
LOOKS = 1
"""Looks at which a file is as it was before, until it is read."""
LOOKS_WITHOUT_END = 10
"""The same for a text whose last line has no end: half of a row is a row with other values."""
LONGEST_LINE = 1 << 16
TEXTS = (".csv", ".tsv")
SEPARATORS = b",;\t|"
Stamp = tuple[int, int]
"""Size and time of the last change."""


class FolderOptions(SourceOptions):
    """Its keys in `[[sources]]`."""

    kind: Literal["folder"] = "folder"
    folder: Path
    pattern: str = "*"
    every_in_s: Annotated[float, Field(gt=0)] = 2.0
    """How often to look."""
    unit: str | None = None
    """Column of the unit; "-" where a file is one unit. Columns are those of training where none is given."""
    time: str | None = None
    cycle: str | None = None
    move_to: Path | None = None
    """Where files go that were read, on the same disk; by default they stay."""


def check_folder(options: FolderOptions) -> None:
    """Refuse a folder that is not there."""
    for folder in (options.folder, options.move_to):
        if folder is not None and not folder.is_dir():
            raise ConfigError("there is no such folder", where=str(folder), hint="make it, or name another one")


@dataclass
class FolderSource:
    """Looks into a folder again and again.

    Parameters
    ----------
    seen
        Files at the last look.
    unchanged
        Looks since which each file has been as it is.
    done
        Files that were read, or could not be, as they were then.
    """

    options: FolderOptions
    feed: Feed
    seen: dict[Path, Stamp] = field(default_factory=dict)
    unchanged: dict[Path, int] = field(default_factory=dict)
    done: dict[Path, Stamp] = field(default_factory=dict)

    async def run(self) -> None:
        """Look until cancelled."""
        self.feed.tally.connections += 1
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, thread_name_prefix="folder") as thread:  # files are read outside the event loop
            while True:
                try:
                    files = await loop.run_in_executor(thread, self._files)
                except OSError as error:  # a share that is not mounted at the moment
                    LOG.warning("cannot look into %s: %s", self.options.folder, error)
                    files = {}
                self.unchanged = {
                    path: self.unchanged[path] + 1 if self.seen.get(path) == stamp else 0
                    for path, stamp in files.items()
                }
                self.seen = files
                settled = [
                    path for path in files if self.unchanged[path] >= LOOKS and files[path] != self.done.get(path)
                ]
                for path in sorted(settled, key=lambda path: (files[path][1], path)):  # in the order of their changes
                    ended = await loop.run_in_executor(thread, last_line_ends, path)
                    if ended or self.unchanged[path] >= LOOKS_WITHOUT_END:
                        await self._read(path, thread)
                        self.done[path] = files[path]
                await asyncio.sleep(self.options.every_in_s)

    def _files(self) -> dict[Path, Stamp]:
        stamps: dict[Path, Stamp] = {}
        for path in self.options.folder.glob(self.options.pattern):
            if path.name.lower().endswith(SUFFIXES) and not path.name.startswith((".", "~")) and path.is_file():
                facts = path.stat()
                stamps[path] = (facts.st_size, facts.st_mtime_ns)
        return stamps

    async def _read(self, path: Path, thread: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        self.feed.tally.messages += 1
        pieces = self._pieces(path)
        try:
            if await loop.run_in_executor(thread, last_line_is_cut, path):
                raise DataError(
                    "its last line has fewer cells than its first; complete it, and end it with a line break"
                )
            while (rows := await loop.run_in_executor(thread, partial(next, pieces, None))) is not None:
                await self.feed.submit(rows)
            if self.options.move_to is not None:
                await loop.run_in_executor(thread, path.replace, self.options.move_to / path.name)
        except (FedprognosError, OSError) as error:
            reason = error.what if isinstance(error, FedprognosError) else str(error)
            self.feed.refuse(str(path), reason)

    def _pieces(self, path: Path) -> Iterator[list[Row]]:
        options, inputs = self.options, self.feed.inputs
        tables = inputs.open(path)
        reader = inputs.reader(tables, options.unit, options.time, options.cycle)
        for rows, _ in read_pieces(reader, tables, ROWS_AT_ONCE):
            yield [row for _, row in new_rows(rows, inputs, self.feed.reached)]


def last_line_ends(path: Path) -> bool:
    """False for a text whose last line has no line break: perhaps somebody is still writing it."""
    try:
        return not path.name.lower().endswith(TEXTS) or _last_bytes(path, 1) in (b"", b"\n", b"\r")
    except OSError:
        return True  # to read it will say what is wrong


def last_line_is_cut(path: Path) -> bool:
    """Whether a text ends within a line that has fewer cells than its first one."""
    if last_line_ends(path):
        return False
    with path.open("rb") as file:
        head = file.readline()
    separator = max(SEPARATORS, key=head.count)
    last = _last_bytes(path, max(len(head), LONGEST_LINE)).splitlines()[-1]
    return last.count(separator) < head.count(separator)


def _last_bytes(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - most, 0))
        return file.read()


FOLDER = sources.add(
    Source(
        "folder",
        "files that appear in a folder",
        20,
        FolderOptions,
        lambda options, feed: FolderSource(options, feed).run(),
        check_folder,
    )
)
