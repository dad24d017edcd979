"""Tests marked `needs_data` run where NASA's data is found and are skipped, with the reason, elsewhere."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch

from fedprognos.errors import DataNotFoundError
from fedprognos.fleet.catalog import CATALOG, find

torch.set_num_threads(1)  # several test processes share the machine


def pytest_configure() -> None:
    """Tests that run in the background ignore Ctrl-C, and what they start would too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs_data"):
        for name in marker.args or CATALOG:
            try:
                find(name)
            except DataNotFoundError as error:
                pytest.skip(f"{error.what}; {error.hint}")


@pytest.fixture
def cmapss_folder() -> Path:
    """NASA's C-MAPSS files; for tests marked needs_data("cmapss")."""
    return find("cmapss")


@pytest.fixture
def battery_folder() -> Path:
    """NASA's battery files; for tests marked needs_data("nasa-battery")."""
    return find("nasa-battery")
