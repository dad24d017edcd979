"""A shelf of named things of one kind: those of this package, those of installed packages, those a caller adds.

What can be added (a strategy, a cell, a reader, a metric, a report section, ...) is one file that owns its name,
options, label and order and puts itself on its shelf. Nothing else lists them.
"""

from __future__ import annotations

import importlib
import pkgutil
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Protocol, TypeVar

from pydantic_core import PydanticCustomError

from fedprognos.errors import ConfigError, unknown_name


class Named(Protocol):
    """Anything with a name and a place in the order in which people see it."""

    @property
    def name(self) -> str: ...

    @property
    def order(self) -> int: ...


T = TypeVar("T", bound=Named)


class Shelf(Mapping[str, T]):
    """Things by name, in their order.

    The modules of `package` and the entry points of `group` are imported when the shelf is first looked at; each puts
    its things here with :meth:`add`.

    Parameters
    ----------
    kind
        What the things are, for error messages.
    package
        The package whose modules are the built-in things, one file each; a module may hold several small ones.
    group
        Entry points of this group name things of other packages.

    Examples
    --------
    >>> from fedprognos.fleet.readers import readers
    >>> "table" in readers
    True
    """

    def __init__(self, kind: str, package: str, group: str | None = None) -> None:
        self.kind, self._package, self._group = kind, package, group
        self._things: dict[str, T] = {}
        self._lock = threading.RLock()
        self._loaded = self._complete = False

    def add(self, thing: T) -> T:
        """Put a thing on the shelf; a name that is taken is refused. Returns the thing, so it can be a decorator."""
        with self._lock:
            present = self._things.get(thing.name)
            if present is not None and present is not thing:
                raise ConfigError(f"there is a {self.kind} '{thing.name}' already", hint="choose another name")
            self._things[thing.name] = thing
        return thing

    @contextmanager
    def including(self, things: Iterable[T]) -> Iterator[None]:
        """Have some more things on the shelf for a while, as `run(..., strategies=[mine])` does."""
        self._load()
        mine: list[str] = []
        try:
            for thing in things:
                if self._things.get(thing.name) is not thing:
                    self.add(thing)
                    mine.append(thing.name)
            yield
        finally:
            with self._lock:
                for name in mine:
                    del self._things[name]

    def _load(self) -> None:
        if self._complete:
            return
        with self._lock:
            if self._loaded:
                return
            self._loaded = True  # a module that is being imported may look at its own shelf
            package = importlib.import_module(self._package)
            for module in pkgutil.iter_modules(getattr(package, "__path__", ())):
                if not module.name.startswith("_"):
                    importlib.import_module(f"{self._package}.{module.name}")
            for point in entry_points(group=self._group) if self._group else ():
                try:
                    self.add(point.load())
                except Exception as error:
                    raise ConfigError(
                        f"the {self.kind} '{point.name}' of another package cannot be loaded: {error}",
                        where=point.value,
                        hint="update that package, or uninstall it",
                    ) from error
            self._complete = True

    def __getitem__(self, name: str) -> T:
        self._load()
        if name not in self._things:
            raise unknown_name(self.kind, name, self._things)
        return self._things[name]

    def valid_name(self, name: str) -> str:
        """The name itself, if there is such a thing; raises what pydantic expects, so that options can be checked."""
        try:
            return self[name].name
        except ConfigError as error:
            raise PydanticCustomError("unknown_name", "{what}", {"what": error.what, "valid": error.hint}) from None

    def __contains__(self, name: object) -> bool:
        self._load()
        return name in self._things

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter([t.name for t in sorted(self._things.values(), key=lambda t: (t.order, t.name))])

    def __len__(self) -> int:
        self._load()
        return len(self._things)
