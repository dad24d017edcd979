"""Readers of fleets, one file each: a reader owns the `kind` of `[data]`, its options and how they become a fleet.

For experiments started from Python, a fleet that is in memory already is a source of data like any other.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedprognos.errors import ConfigError
from fedprognos.fleet.fleet_file import fleet_digest
from fedprognos.fleet.unit import Fleet
from fedprognos.options import Fraction, Options
from fedprognos.shelf import Shelf


class ReaderOptions(Options):
    """The section `[data]`; every reader adds its own keys and fixes `kind` to its name."""

    kind: str


@dataclass(frozen=True)
class ReadContext:
    """Where a reader looks, and how far.

    Parameters
    ----------
    data_dir
        Where public data sets lie; None looks in the usual places.
    folder
        What relative paths in the options refer to.
    tested
        Whether files with test units may be opened.
    """

    data_dir: Path | None = None
    folder: Path = Path()
    tested: bool = True


@dataclass(frozen=True, eq=False)
class Source:
    """A fleet as read: with a test fleet of its own, still to be split within each client, or all for training."""

    fleet: Fleet
    test: Fleet | None = None
    test_fraction: float | None = None


@dataclass(frozen=True)
class Reader:
    """One way to get a fleet.

    Parameters
    ----------
    name
        What `kind` says in `[data]`; the default of `options.kind`.
    label
        One line for lists and documentation.
    options
        Class of the options; a subclass of :class:`ReaderOptions`.
    read
        From an instance of `options` and a :class:`ReadContext` to a :class:`Source`.
    """

    name: str
    label: str
    options: type[ReaderOptions]
    read: Callable[[Any, ReadContext], Source]
    order: int = 100

    def __post_init__(self) -> None:
        if self.options.model_fields["kind"].default != self.name:
            hint = f"write in {self.options.__name__}: kind: Literal[{self.name!r}] = {self.name!r}"
            raise ConfigError(f"the options of reader '{self.name}' have another kind", hint=hint)


readers: Shelf[Reader] = Shelf("reader", __name__, group="fedprognos.readers")


def read(options: ReaderOptions, context: ReadContext | None = None) -> Source:
    """Read what the options describe.

    Examples
    --------
    >>> from fedprognos.fleet.readers.synthetic_engines import SyntheticEnginesOptions
    >>> source = read(SyntheticEnginesOptions(sites=2, units_per_site=1, test_units_per_site=1))
    >>> source.fleet.ids, source.test.ids
    (('s1-e01', 's2-e01'), ('s1-t01', 's2-t01'))
    """
    source = readers[options.kind].read(options, context or ReadContext())
    for note in source.fleet.notes:
        warnings.warn(f"{source.fleet.source or source.fleet.name}: {note}", stacklevel=2)
    return source


class MemoryOptions(ReaderOptions):
    """A fleet in memory; `digest` tells it from others."""

    kind: Literal["memory"] = "memory"
    digest: str = ""
    test_fraction: Fraction = 0.25


def in_memory(fleet: Fleet, options: Mapping[str, Any]) -> tuple[Reader, dict[str, Any]]:
    """A reader that gives this fleet, and the section `[data]` that names it."""

    def read(options: MemoryOptions, _: ReadContext) -> Source:
        return Source(fleet, test_fraction=options.test_fraction)

    section = {"kind": "memory", "digest": fleet_digest(fleet), **options}
    return Reader("memory", "a fleet in memory", MemoryOptions, read), section
