"""What a refusal or a warning must name: its kind, and the values a reader needs; its wording is free."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def refuses(
    kind: type[BaseException] | tuple[type[BaseException], ...], *values: object, code: str | None = None
) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """The block raises `kind`, and the text names each of these values: names, keys, numbers, never sentences."""
    with pytest.raises(kind) as caught:
        yield caught
    text = str(caught.value)
    missing = [value for value in map(str, values) if value not in text]
    if missing:
        pytest.fail(f"the refusal does not name {missing}: {text}")
    if code is not None and getattr(caught.value, "code", None) != code:
        pytest.fail(f"the refusal has code {getattr(caught.value, 'code', None)!r} instead of {code!r}")


@contextmanager
def warns(*values: object) -> Iterator[None]:
    """The block warns the user, and the text names each of these values."""
    with pytest.warns(UserWarning) as caught:
        yield
    text = " ".join(str(warning.message) for warning in caught)
    missing = [value for value in map(str, values) if value not in text]
    if missing:
        pytest.fail(f"the warning does not name {missing}: {text}")
