"""A fleet that is in memory already, as a source of data: for experiments started from Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from fedprognos.fleet.digest import fleet_digest
from fedprognos.fleet.readers import ReadContext, Reader, ReaderOptions, Source
from fedprognos.fleet.unit import Fleet
from fedprognos.options import Fraction


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
