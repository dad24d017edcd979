"""`fedprognos watch`: the model behind an MQTT broker, or another source, without an HTTP interface."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fedprognos.cli.console import TrustFile, read_trust, warn_of_exposed
from fedprognos.cli.serve import BundleFolder, Head, KeepRows, Plant
from fedprognos.errors import ConfigError, MissingExtraError


def watch(
    bundle: BundleFolder,
    mqtt: Annotated[str | None, typer.Option("--mqtt", metavar="HOST[:PORT]", help="The broker.")] = None,
    topic: Annotated[str, typer.Option(help="Where rows come from; the first + is the unit.")] = "fleet/+/sensors",
    publish: Annotated[str, typer.Option(help="Where healths go; empty for nowhere.")] = "fleet/{unit}/health",
    head: Head = None,
    username: Annotated[str | None, typer.Option(help="Name to log in with.")] = None,
    password_file: Annotated[Path | None, typer.Option(help="File with the password.")] = None,
    tls: Annotated[bool, typer.Option("--tls", help="Encrypt, and check the broker's certificate.")] = False,
    ca: Annotated[Path | None, typer.Option(help="Certificates to trust; implies --tls.")] = None,
    client_id: Annotated[str, typer.Option(help="Name of this session at the broker.")] = "fedprognos-watch",
    plant: Plant = None,
    threshold: Annotated[
        float | None, typer.Option(help="Health at which maintenance is due.", show_default="a fifth of the RUL's cap")
    ] = None,
    state: Annotated[Path | None, typer.Option(help="Keep what was received here.", show_default="in memory")] = None,
    max_units: Annotated[int, typer.Option(min=1, help="Units watched; further ones are refused.")] = 20_000,
    keep_rows: KeepRows = None,
    trust: TrustFile = None,
) -> None:
    """Read rows from an MQTT broker and publish health back; other sources are in the plant file.

    Needs the extra `serve`.

    Example: fedprognos watch runs/fleet/bundle --mqtt broker:1883 --topic fleet/+/sensors
    """
    import asyncio

    try:
        from fedprognos.service import FleetService
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "aiomqtt", "serve", "reading from a broker") from None
    from fedprognos.prognosis import Predictor
    from fedprognos.service import ServiceOptions, read_plant, usual_threshold

    broker: dict[str, Any] | None = None
    if mqtt is not None:
        host, port = _address(mqtt)
        if password_file is not None:
            warn_of_exposed(password_file)
        broker = {
            "kind": "mqtt",
            "host": host,
            "port": port,
            "topic": topic,
            "publish": publish,
            "username": username,
            "password_file": password_file,
            "tls": tls,
            "ca": ca,
            "client_id": client_id,
        }
    options = read_plant(plant, broker)
    if not options.sources:
        raise ConfigError("there is nothing to read from", hint="give --mqtt HOST:PORT, or --plant with [[sources]]")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    predictor = Predictor.load(bundle, head, read_trust(trust))
    logging.getLogger(__name__).info("model: %s", predictor.signature)
    service = FleetService(
        predictor,
        ServiceOptions(
            state=state,
            threshold=usual_threshold(predictor.recipe) if threshold is None else threshold,
            max_units=max_units,
            keep_rows=keep_rows,
            plant=options,
        ),
    )

    async def until_stopped() -> None:
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        async with service.running():
            await stopped.wait()

    asyncio.run(until_stopped())
    for name, feed in service.feeds.items():
        Console(stderr=True).print(f"{name}: {feed.tally}", highlight=False, markup=False)


def _address(text: str) -> tuple[str, int | None]:
    """Host and port of `host`, `host:port` or `[address]:port`."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]") or (":" in host and not host.startswith("[")):
        return text.strip("[]"), None
    if not port.isdecimal() or not 1 <= int(port[:6]) <= 65535:
        raise ConfigError(f"'{port}' is not a port", where=f"--mqtt {text}", hint="as in --mqtt broker:1883")
    return host.strip("[]"), int(port)
