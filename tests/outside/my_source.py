"""Rows as lines of JSON over a plain TCP connection; each line is confirmed once its row is stored."""

import asyncio
import json
from typing import Literal

from fedprognos.prognosis import Row
from fedprognos.service.sources import Feed, Source, SourceOptions


class LinesOptions(SourceOptions):
    """Its keys in [[sources]]."""

    kind: Literal["lines"] = "lines"
    port: int = 7100


async def run(options: LinesOptions, feed: Feed) -> None:
    """Serve until cancelled; `feed.submit` returns when the rows are stored."""

    async def serve(reader, writer):
        async for line in reader:
            try:
                value = json.loads(line)
                row = Row(value["unit"], value["position"], value["sensors"])
            except (ValueError, KeyError, TypeError) as error:
                feed.refuse("line", f"not a row: {error!r}")
                continue
            await feed.submit([row])
            writer.write(b"stored\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", options.port)
    async with server:
        await server.serve_forever()


LINES = Source("lines", "lines of JSON over TCP", 90, LinesOptions, run)
