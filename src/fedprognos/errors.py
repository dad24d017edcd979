"""One family of exceptions: each message says what was wrong, where, and what to do about it.

The full text stays on the machine that owns the data. What may cross to a peer is a code and a
text free of data, built elsewhere from :attr:`FedprognosError.code`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])|\x9b[0-?]*[ -/]*[@-~]")
"""Sequences that move the cursor, colour text or set a terminal's title."""
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Other control characters, marks that turn the direction of a text, and halves of characters, which no file takes."""


def printable(text: str) -> str:
    r"""A text that came from elsewhere, without what would steer a terminal; other control characters show as a box.

    >>> printable("plant-a\x1b[2J\x1b]0;owned\x07 left\r\n")
    'plant-a left \n'
    """
    return UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", ESCAPES.sub("", text).replace("\r", " "))


class FedprognosError(Exception):
    """Anything the user can act on; the command line prints it without a traceback.

    Parameters
    ----------
    what
        What is wrong, quoting the offending value.
    where
        File, unit, row, column, client or tensor, as far as known.
    hint
        What to do about it.
    """

    code = "error"
    exit_code = 1

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what, self.where, self.hint = what, where, hint
        super().__init__(what, where, hint)

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return printable(f"{text}\n  {self.hint}" if self.hint else text)


class DataError(FedprognosError):
    """The data, or a file holding it, cannot be used as it is."""

    code = "data"
    exit_code = 3


class DataNotFoundError(DataError):
    """A data set or file is not there."""

    code = "data-not-found"


class ConfigError(FedprognosError):
    """An experiment file, preset name or option is wrong."""

    code = "config"
    exit_code = 2


class RecipeError(DataError):
    """Data does not fit the recipe a model was made with."""

    code = "recipe"


class BundleError(FedprognosError):
    """A saved model is incomplete, altered or of another version."""

    code = "bundle"
    exit_code = 4


class TrainingError(FedprognosError):
    """Training cannot go on."""

    code = "training"
    exit_code = 5


class MessageError(FedprognosError):
    """A peer sent something that is not a valid message."""

    code = "message"
    exit_code = 8


class FederationError(FedprognosError):
    """Too few clients answered for the federation to go on."""

    code = "federation"
    exit_code = 9


class RefusedByFloorsError(FederationError):
    """Too few clients answered, only because of their floors: a method that asks for less may still work."""

    code = "floors"


class OutputError(FedprognosError):
    """Results cannot be written where they were asked for."""

    code = "output"
    exit_code = 6


class MissingExtraError(FedprognosError, ImportError):
    """An optional dependency is not installed."""

    code = "extra"
    exit_code = 7

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package '{package}'", hint=f"pip install 'fedprognos[{extra}]'")


def unknown_name(kind: str, name: object, valid: Iterable[str]) -> ConfigError:
    """Error for a name that is not in a registry, with the nearest valid one.

    >>> print(unknown_name("preset", "turbofn", ["battery", "turbofan"]))
    unknown preset 'turbofn'
      did you mean 'turbofan'? Valid: battery, turbofan
    """
    names = sorted(valid)
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    guess = f"did you mean '{close[0]}'? " if close else ""
    return ConfigError(f"unknown {kind} '{name}'", hint=f"{guess}Valid: {', '.join(names)}")
