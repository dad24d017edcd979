"""`fedprognos watch`: the model behind an MQTT broker."""

from __future__ import annotations

import contextlib
import logging
import signal
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedprognos.cli.data import warn_of_exposed
from fedprognos.cli.serve import BundleFolder, Head, KeepRows
from fedprognos.errors import ConfigError, MissingExtraError


def watch(
    bundle: BundleFolder,
    mqtt: Annotated[str, typer.Option("--mqtt", metavar="HOST", help="The broker.")],
    topic: Annotated[str, typer.Option(help="Where rows come from; the first + is the unit.")] = "fleet/+/sensors",
    publish: Annotated[str, typer.Option(help="Where healths go; empty for nowhere.")] = "fleet/{unit}/health",
    head: Head = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, show_default="1883, with TLS 8883", help="Port.")
    ] = None,
    username: Annotated[str | None, typer.Option(help="Name to log in with.")] = None,
    password_file: Annotated[Path | None, typer.Option(help="File with the password.")] = None,
    tls: Annotated[bool, typer.Option("--tls", help="Encrypt, and check the broker's certificate.")] = False,
    ca: Annotated[Path | None, typer.Option(help="Certificates to trust; implies --tls.")] = None,
    client_id: Annotated[str, typer.Option(help="Name of this session at the broker.")] = "fedprognos-watch",
    state: Annotated[Path | None, typer.Option(help="Keep what was received here.", show_default="in memory")] = None,
    max_units: Annotated[int, typer.Option(min=1, help="Units watched; further ones are refused.")] = 20_000,
    keep_rows: KeepRows = None,
) -> None:
    """Read rows from an MQTT broker and publish health back.

    Payloads are JSON. Needs the extra `serve`.

    Example: fedprognos watch runs/fleet/bundle --mqtt broker --topic fleet/+/sensors
    """
    import asyncio

    try:
        from fedprognos.service import Watcher, WatchOptions, tally_text
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "aiomqtt", "serve", "reading from a broker") from None
    from fedprognos.prognosis import Predictor
    from fedprognos.service import DurableStream

    options = WatchOptions(
        host=mqtt,
        port=port or (8883 if tls or ca else 1883),
        topic=topic,
        publish=publish or None,
        username=username,
        password=None if password_file is None else _secret(password_file),
        tls=tls,
        ca=ca,
        client_id=client_id,
    )
    options.check()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    stream = DurableStream(Predictor.load(bundle, head), state, max_units=max_units, keep_rows=keep_rows)
    watcher = Watcher(stream, options)

    async def until_stopped() -> None:
        task = asyncio.ensure_future(watcher.run())
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    try:
        asyncio.run(until_stopped())
    finally:
        watcher.stream.close()
        Console(stderr=True).print(tally_text(watcher.tally), highlight=False, markup=False)


def _secret(path: Path) -> str:
    warn_of_exposed(path)
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        hint = "give --password-file a text file that you may read"
        raise ConfigError(f"cannot read the password: {error}", where=str(path), hint=hint) from None
