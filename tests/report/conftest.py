"""Figures as the page will draw them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

Figures = dict[str, list[list[dict[str, Any]]]]


@pytest.fixture
def figures() -> Callable[[str], Figures]:
    """Reads the figures back out of a page."""

    def read(page: str) -> Figures:
        found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)
        assert found is not None
        loaded: Figures = json.loads(found.group(1))
        return loaded

    return read
