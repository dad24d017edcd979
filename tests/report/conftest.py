"""Figures as the page will draw them, and a browser where there is one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
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


@pytest.fixture
def browse(tmp_path: Path) -> Callable[[Path], tuple[str, str]]:
    """Opens a page in headless Chromium: the document after its scripts ran, and what the browser complained about."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("chromium is not installed")

    def open_page(path: Path) -> tuple[str, str]:
        flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
        flags += " --disable-component-update --disable-sync --enable-logging=stderr --virtual-time-budget=20000"
        command = [chromium, *flags.split(), f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)

    return open_page
