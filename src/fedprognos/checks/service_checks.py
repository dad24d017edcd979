"""What sources of rows and sinks of alerts promise."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from fedprognos.checks.requirement import CheckError, check_named, require
from fedprognos.errors import FedprognosError
from fedprognos.features import Recipe
from fedprognos.options import validated
from fedprognos.prognosis import HealthModel, ModelInputs, Row
from fedprognos.service import Alert, Batcher, DurableStream, FleetView, PlantEntry
from fedprognos.service.alert_sinks import AlertSink, RefusedError
from fedprognos.service.sources import Feed, Source

PATIENCE_IN_S = 30.0
"""Longest time for a few rows or alerts to arrive, on a busy machine."""
QUIET_IN_S = 0.3
"""How long a source must wait for a peer without giving up."""
SEND_AGAIN_IN_S = 1.0
UNITS = ("pump-1", "pump-2")
ROWS = tuple(Row(unit, position, {"heat": position / 4}) for position in range(1, 7) for unit in UNITS)
"""What machines send in a check: two units, a sensor named `heat`. The second half comes after a restart."""


def check_source(source: Source, send: Callable[[Sequence[Row]], object] | None = None, **options: object) -> None:
    """Check a source of rows.

    - Its options have a docstring, and `kind` is its name.
    - It reads until it is cancelled, waits for a peer that is not there, and ends when it is cancelled.
    - Rows that machines send are stored once with their values, also if they are sent again after a restart.

    Parameters
    ----------
    send
        Sends rows the way machines do, for example writes a file or publishes a message. While the source runs, it is
        called in a thread with the first position of every unit, again and again until it is stored, then with one
        position more. Without it no row is sent.
    options
        Its keys in `[[sources]]`.

    Raises
    ------
    CheckError
        The first promise that the source breaks.

    Examples
    --------
    >>> import fedprognos as fp
    >>> from fedprognos.service.sources import sources
    >>> fp.checks.check_source(sources["folder"], folder=".")
    """
    where = check_named("source", source)
    chosen = _options(source, options, where)
    try:
        source.check(chosen)
    except FedprognosError as error:
        raise CheckError(f"`check` refuses its options: {error.what}", where=where) from None
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_check_reading(source, chosen, send, Path(folder), where))


def check_sink(sink: AlertSink, received: Callable[[], str] | None = None, **options: object) -> None:
    """Check a sink of alerts.

    - Its options have a docstring, and `kind` is its name.
    - `open` connects to nobody.
    - When `send` returns, the receiver has every alert, and each with its id.
    - Where no receiver is there, `send` raises, and not `RefusedError`: the alert is sent again later.

    Parameters
    ----------
    received
        All that the receiver has got so far, as text. Without it the options must name a receiver that is not there.
    options
        Its keys in `[[alerts.sinks]]`.

    Raises
    ------
    CheckError
        The first promise that the sink breaks.

    Examples
    --------
    >>> import fedprognos as fp
    >>> from fedprognos.service.alert_sinks import sinks
    >>> fp.checks.check_sink(sinks["webhook"], url="http://127.0.0.1:9/nobody-is-here")
    """
    where = check_named("alert sink", sink)
    require(sink.at_once >= 1, f"one call holds {sink.at_once} alerts", where=where)
    send = sink.open(_options(sink, options, where))
    alerts = [
        Alert(f"check-{number}", f"pump-{number}", f"pump-{number}", "due", "ok", time.time(), None)
        for number in range(sink.at_once)
    ]
    try:
        asyncio.run(asyncio.wait_for(send(alerts), PATIENCE_IN_S))
    except RefusedError as error:
        raise CheckError(f"it refuses an alert for good: {error.what}", where=where) from None
    except Exception as error:
        require(received is None, f"it does not reach its receiver: {error!r}", where=where)
        return
    require(
        received is not None,
        "it confirms alerts although no receiver is there",
        where=where,
        hint="raise the error of the connection, so that alerts are sent again",
    )
    text = "" if received is None else received()
    missing = [alert.id for alert in alerts if alert.id not in text]
    require(not missing, f"the receiver did not get {missing}, although `send` returned", where=where)


def _options(thing: Source | AlertSink, options: dict[str, object], where: str) -> Any:
    """The options, as the plant file would give them."""
    require(issubclass(thing.options, PlantEntry), "its options are no entry of the plant file", where=where)
    require(thing.options.__doc__, "its options have no docstring", where=where, hint="the documentation shows it")
    kind = thing.options.model_fields["kind"].default
    require(kind == thing.name, f"its options have the kind {kind!r}", where=where, hint="`kind` must be the name")
    return validated(thing.options, {"kind": thing.name, **options}, where)


async def _check_reading(
    source: Source, options: Any, send: Callable[[Sequence[Row]], object] | None, folder: Path, where: str
) -> None:
    recipe = Recipe(task="rul", sensors=("heat",), window=1, mean=((0.0,),), std=((1.0,),), label_mean=50.0)
    model = HealthModel(recipe, lambda windows: windows.mean(axis=(1, 2)))
    for start, rows in (("first start", ROWS[: len(ROWS) // 2]), ("restart", ROWS)):
        at = f"{where}, {start}"
        stream, view = DurableStream(model, folder), FleetView()
        view.load(stream)
        batcher = Batcher(stream, 1000, lambda batch, view=view: view.apply(batch) and None)  # type: ignore[misc]
        feed = Feed(source.name, batcher, recipe, ModelInputs.from_model(model), stream.stream.health, view)
        reading = asyncio.ensure_future(source.run(options, feed))
        try:
            if send is None:
                await asyncio.wait([reading], timeout=QUIET_IN_S)
            else:
                # Position after position: a source that connects half-way must not store a later row of a unit first.
                for count in range(len(UNITS), len(rows) + 1, len(UNITS)):
                    await _send_until_stored(send, rows[:count], batcher, stream, reading)
            require(not reading.done(), f"it ends by itself: {_outcome(reading)}", where=at)
            reading.cancel()
            await asyncio.wait([reading], timeout=PATIENCE_IN_S)
            require(reading.cancelled(), f"it does not end when it is cancelled: {_outcome(reading)}", where=at)
            stored = sorted(await batcher.ask(partial(_stored, stream)))
            sent = sorted((row.unit, row.position, row.sensors["heat"]) for row in rows)
            if send is not None:
                require(stored == sent, f"the rows {sent} were sent, and {stored} are stored", where=at)
        finally:
            reading.cancel()
            await batcher.close()


async def _send_until_stored(
    send: Callable[[Sequence[Row]], object],
    rows: Sequence[Row],
    batcher: Batcher,
    stream: DurableStream,
    reading: asyncio.Future[None],
) -> None:
    """Send rows again while some are missing: a source may not be connected yet when the first ones come."""
    deadline, send_at = time.monotonic() + PATIENCE_IN_S, 0.0
    while not reading.done() and time.monotonic() < deadline:
        if time.monotonic() >= send_at:
            with suppress(OSError):  # the source does not listen yet
                await asyncio.to_thread(send, rows)
            send_at = time.monotonic() + SEND_AGAIN_IN_S
        if len(await batcher.ask(partial(_stored, stream))) >= len(rows):
            return
        await asyncio.sleep(0.02)


def _stored(stream: DurableStream) -> list[tuple[str, float, float]]:
    """Unit, position and `heat` of every stored row."""
    tables = [table for unit in stream.names().values() if (table := stream.rows(unit)) is not None]
    return [
        row for table in tables for row in zip(table.units, table.positions, table.sensors[:, 0].tolist(), strict=True)
    ]


def _outcome(reading: asyncio.Future[None]) -> str:
    if not reading.done():
        return "it still runs"
    return "cancelled" if reading.cancelled() else repr(reading.exception() or "it returned")
