"""Rows from an OPC UA server: a subscription to the variables of each machine.

The server tells which variables have changed, each with the time of the change. What arrives together is put into the
order of these times before rows are made of it. Values that change while nobody is connected are not read later.
"""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from fedprognos.errors import ConfigError, MissingExtraError
from fedprognos.prognosis import Row
from fedprognos.service.plant_entry import read_secret
from fedprognos.service.row_readers import MetricOptions, MetricRows
from fedprognos.service.sources import LOG, Feed, Source, SourceOptions, sources

if TYPE_CHECKING:
    from asyncua.client.client import Client
    from asyncua.common.node import Node

LONGEST_PAUSE_IN_S = 60.0
CHECKED_IN_S = 2.0
QUEUED_VALUES = 1000
"""Changes of a variable that the server keeps between two of its messages."""
Change = tuple[float, bool, str, str, object]
"""Time, whether it is the position, unit, name, value: sorted, the position comes after what changed with it."""


class OpcuaOptions(SourceOptions, MetricOptions):
    """Its keys in `[[sources]]`."""

    kind: Literal["opcua"] = "opcua"
    url: Annotated[str, Field(pattern=r"^opc\.tcp://[^\s]+$")]
    units: dict[str, str] = Field(default_factory=dict)
    """Node of each unit, such as `{"pump 7" = "ns=2;s=pump7"}`; its variables are looked up by their names."""
    parent: str | None = None
    """A node whose objects are all units, named as the server names them."""
    username: str | None = None
    password_file: Path | None = None
    every_in_s: Annotated[float, Field(gt=0)] = 0.5
    """How often the server sends what has changed."""


def check_opcua(options: OpcuaOptions) -> None:
    """Refuse options that name no unit."""
    if not options.units and options.parent is None:
        raise ConfigError("an OPC UA source needs units or parent", hint="name the nodes of units, or their parent")


class OpcuaSource:
    """Follows a server."""

    def __init__(self, options: OpcuaOptions, feed: Feed) -> None:
        self.options, self.feed = options, feed
        self.rows = MetricRows(options, feed.recipe)
        self._variables: dict[Any, tuple[str, str]] = {}  # unit and name by node id
        self._changes: asyncio.Queue[Change] = asyncio.Queue()

    async def run(self) -> None:
        """Read until cancelled; a server that vanishes is waited for."""
        try:
            from asyncua.client.client import Client
            from asyncua.ua.uaerrors import UaError
        except ModuleNotFoundError as error:
            raise MissingExtraError(error.name or "asyncua", "opcua", "reading from an OPC UA server") from None
        pause_in_s = self.options.retry_in_s
        while True:
            client = Client(self.options.url)
            if self.options.username is not None:
                client.set_user(self.options.username)
            if self.options.password_file is not None:
                client.set_password(read_secret(self.options.password_file))
            messages_before = self.feed.tally.messages
            try:
                async with client:
                    await self._serve(client)
            except (UaError, OSError, TimeoutError, ConnectionError) as error:
                LOG.warning(
                    "no OPC UA server at %s (%s); trying again", self.options.url, error or type(error).__name__
                )
            if self.feed.tally.messages > messages_before:
                pause_in_s = self.options.retry_in_s
            await asyncio.sleep(pause_in_s)
            pause_in_s = min(2 * pause_in_s, LONGEST_PAUSE_IN_S)

    async def _serve(self, client: Client) -> None:
        units = {name: client.get_node(node) for name, node in self.options.units.items()}
        if self.options.parent is not None:
            for node in await client.get_node(self.options.parent).get_children():
                units[str((await node.read_browse_name()).Name)] = node
        variables: list[Node] = []
        self._variables.clear()
        for unit, node in units.items():
            variables += await self._find_variables(unit, node)
        subscription = await client.create_subscription(1000 * self.options.every_in_s, self)
        await subscription.subscribe_data_change(variables, queuesize=QUEUED_VALUES)
        self.feed.tally.connections += 1
        LOG.info("connected to %s, reading %d variables of %d units", self.options.url, len(variables), len(units))
        while True:
            try:
                async with asyncio.timeout(CHECKED_IN_S):
                    first = await self._changes.get()
            except TimeoutError:
                await client.check_connection()
                continue
            await asyncio.sleep(self.options.every_in_s / 2)  # the rest of the server's message
            changes = [first]
            while not self._changes.empty():
                changes.append(self._changes.get_nowait())
            await self.feed.submit(self._rows(changes))

    async def _find_variables(self, unit: str, node: Node) -> list[Node]:
        children = {str((await child.read_browse_name()).Name): child for child in await node.get_children()}
        missing = sorted(self.rows.names - children.keys())
        if missing:
            self.feed.refuse(unit, f"its node has no variable '{missing[0]}'")
            return []
        self._variables.update({children[name].nodeid: (unit, name) for name in self.rows.names})
        return [children[name] for name in sorted(self.rows.names)]

    def datachange_notification(self, node: Node, value: object, data: Any) -> None:
        """What asyncua calls with every change."""
        unit, name = self._variables[node.nodeid]
        facts = data.monitored_item.Value
        when = facts.SourceTimestamp or facts.ServerTimestamp
        good = facts.StatusCode is None or facts.StatusCode.is_good()
        good = good and not (isinstance(value, float) and math.isnan(value))  # how many servers say that there is none
        time_in_s = 0.0 if when is None else when.timestamp()
        self.feed.tally.messages += 1
        self._changes.put_nowait((time_in_s, name == self.options.position, unit, name, value if good else None))

    def _rows(self, changes: list[Change]) -> list[Row]:
        rows: list[Row] = []
        if self.options.position is None:  # what arrived together is one row of each unit
            for unit in dict.fromkeys(change[2] for change in changes):
                of_unit = [change for change in changes if change[2] == unit]
                values = {name: value for _, _, _, name, value in sorted(of_unit, key=lambda change: change[:2])}
                row = self.rows.change(unit, values, max(change[0] for change in of_unit))
                rows += [] if row is None else [row]
            return rows
        for time_in_s, _, unit, name, value in sorted(changes, key=lambda change: change[:2]):
            row = self.rows.change(unit, {name: value}, time_in_s)
            rows += [] if row is None else [row]
        return rows


OPCUA = sources.add(
    Source(
        "opcua",
        "a subscription to an OPC UA server",
        40,
        OpcuaOptions,
        lambda options, feed: OpcuaSource(options, feed).run(),
        check_opcua,
    )
)
