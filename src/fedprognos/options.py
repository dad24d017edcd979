"""Base of all options that a user writes: no unknown keys, nothing changed after loading, errors that name the key."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from fedprognos.errors import ConfigError

Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Tunable:
    """Marks an option that `fedprognos tune` searches: `epochs: Annotated[int, Tunable((2, 5, 10))] = 5`.

    Parameters
    ----------
    choices
        The values tried, beside the experiment's own.
    soh
        Other values where state of health is predicted instead of remaining life.
    default
        The key whose value counts where the option is None, such as "train.epochs".
    """

    choices: tuple[bool | int | float | str, ...]
    soh: tuple[bool | int | float | str, ...] | None = None
    default: str | None = None


class Options(BaseModel):
    """A group of options, such as a section of an experiment's TOML file."""

    # JSON has no infinity: an experiment that held one would be another one when it is read again.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        for key in value if isinstance(value, Mapping) else ():
            if key not in cls.model_fields:
                raise PydanticCustomError("unknown_key", "unknown key", {"key": key, "valid": list(cls.model_fields)})
        return value


def chosen_options(things: Mapping[str, Any], key: str) -> Callable[[Any], Any]:
    """A pydantic validator: options of the class that belongs to the thing named by `key`.

    Parameters
    ----------
    things
        A shelf of things with an `options` class each, such as the readers.
    key
        Which option names the thing, such as `kind`. Other keys that are None count as not given.
    """

    def choose(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        if key not in value:
            raise PydanticCustomError("missing_key", "{key} is missing", {"key": key})
        try:
            thing = things[str(value[key])]
        except ConfigError as error:
            raise PydanticCustomError(
                "unknown_name", "{what}", {"key": key, "what": error.what, "valid": error.hint}
            ) from None
        return thing.options.model_validate({k: v for k, v in value.items() if v is not None})

    return choose


def validated(model: type[M], values: Mapping[str, Any], where: str = "", hint: str = "") -> M:
    """The options as an instance of their class, or a :class:`ConfigError` that names every wrong key.

    Examples
    --------
    >>> class Oven(Options):
    ...     degrees: int
    >>> validated(Oven, {"degree": 200}, "oven.toml")
    Traceback (most recent call last):
    fedprognos.errors.ConfigError: oven.toml: unknown key degree (did you mean 'degrees'?)
      valid here: degrees
    """
    try:
        return model.model_validate(values)
    except ConfigError as error:
        raise ConfigError(error.what, where=error.where or where, hint=error.hint) from None
    except ValidationError as error:
        if (listed := _with_lists(values, error)) is not None:
            validated(model, listed, where, hint)  # a name that is misspelt, too, is what the user must hear of first
        problems = [_explained(problem) for problem in error.errors()]
        valid = next((keys for _, keys in problems if keys), "")
        raise ConfigError("; ".join(text for text, _ in problems), where=where, hint=valid or hint) from None


def _with_lists(values: Mapping[str, Any], error: ValidationError) -> dict[str, Any] | None:
    """The values with a list of one where a word stands in place of a list; None where no word does."""
    words = [p["loc"] for p in error.errors() if p["type"] == "tuple_type" and isinstance(p["input"], str)]
    listed = deepcopy(dict(values))
    for *sections, key in words:
        place: Any = listed
        for section in sections:
            place = place.get(section) if isinstance(place, dict) else None
        if not isinstance(place, dict) or key not in place:  # a path through a union names its kinds, too
            return None
        place[key] = [place[key]]
    return listed if words else None


def _explained(problem: Any) -> tuple[str, str]:
    """What is wrong with one key, and which keys are valid where it is unknown."""
    path, context = [str(p) for p in problem["loc"]], problem.get("ctx", {})
    if problem["type"] == "unknown_key":
        name = str(context["key"])
        close = difflib.get_close_matches(name, context["valid"], n=1, cutoff=0.5)
        guess = f" (did you mean '{close[0]}'?)" if close else ""
        return f"unknown key {'.'.join([*path, name])}{guess}", f"valid here: {', '.join(context['valid'])}"
    if problem["type"] == "unknown_name":
        return f"{'.'.join([*path, *filter(None, [context.get('key')])])}: {context['what']}", context["valid"]
    if problem["type"] in ("missing", "missing_key"):
        return f"{'.'.join([*path, *([context['key']] if context else [])])} is missing", ""
    value = problem.get("input")
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] in ("tuple_type", "list_type"):
        message = f"must be a list, such as {[value] if isinstance(value, str | int | float) else [1, 2]}"
    shown = f", not {value!r}" if isinstance(value, str | int | float) else ""
    return ": ".join(p for p in (".".join(path), message) if p) + shown, ""
