"""A source at work over a stream, without the rest of a service, so that a test can stop and start it."""

from __future__ import annotations

from typing import Any

from fedprognos.prognosis import ModelInputs
from fedprognos.service import DurableStream
from fedprognos.service.batching import Batcher
from fedprognos.service.fleet_view import FleetView
from fedprognos.service.sources import Feed, SourceOptions, Tally


class Watcher:
    """Runs a source of a kind over a stream; what it has brought is in `tally`."""

    def __init__(self, stream: DurableStream, options: SourceOptions, kind: Any) -> None:
        self.stream, self.view = stream, FleetView()
        inputs = ModelInputs.from_model(stream.model)
        no_batcher: Any = None  # there is one while it runs
        self.feed = Feed(
            "test", no_batcher, stream.model.recipe, inputs, stream.stream.health, self.view, options.retry_in_s
        )
        self.source = kind(options, self.feed)

    @property
    def tally(self) -> Tally:
        return self.feed.tally

    async def run(self) -> None:
        batcher = self.feed._batcher = Batcher(self.stream, 50_000, lambda batch: self.view.apply(batch) and None)
        try:
            await self.source.run()
        finally:
            batcher._task.cancel()
            batcher._thread.shutdown()
