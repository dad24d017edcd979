"""Sites and helpers of the deployment's tests are used here, too."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "deployment"))

from small_run import SmallRun, Start
from tls_run import TlsWorld, tls_world

from fedprognos.deployment.coordinator import handshake, site_transport

OVER_TLS = pytest.param("tls", marks=pytest.mark.soak)


@pytest.fixture(autouse=True)
def at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sites in this process need no pauses."""
    if request.node.get_closest_marker("soak") is not None:
        return
    monkeypatch.setattr(site_transport, "CHECK_IN_S", 0.0)
    monkeypatch.setattr(handshake, "ASK_AGAIN_IN_S", 0.0)


@pytest.fixture(scope="session")
def real_sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsWorld]:
    """Site processes with default settings, started once for all attacks."""
    with tls_world(tmp_path_factory.mktemp("tls")) as world:
        yield world


@pytest.fixture(params=["here", OVER_TLS])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Start:
    """Starts a run whose coordinator is hostile: with sites in this process, or with real ones over TLS."""
    if request.param == "tls":
        world: TlsWorld = request.getfixturevalue("real_sites")
        number = len(list(world.federation.folder.glob("attack-*")))
        return lambda name="run", **options: world.run(
            world.federation.folder / f"attack-{number}-{name}", **{k: v for k, v in options.items() if k == "changes"}
        )

    @contextlib.contextmanager
    def here(name: str = "run", **options: Any) -> Iterator[SmallRun]:
        yield SmallRun(tmp_path / name, **options)

    return here
