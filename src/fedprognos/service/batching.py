"""Requests that arrive together share one forward pass and one transaction.

While a batch is worked on in its own thread, further requests gather for the next. The busier the service, the larger
the batches: nothing has to be tuned, and a lone request does not wait.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from fedprognos.errors import FedprognosError
from fedprognos.prognosis import Row, Update
from fedprognos.service.durable_stream import Batch, DurableStream

LARGEST_BATCH = 4096
MOST_BEHIND = 1024
"""Rows that a second model may fall behind by while requests wait; many at a time cost it less."""
Request = tuple[Sequence[Row], asyncio.Future[Sequence[Update]]]
Answer = TypeVar("Answer")


class BusyError(FedprognosError):
    """More rows are waiting than the service will hold."""

    code = "busy"


class Batcher:
    """Hands rows to the stream, many requests at a time.

    Parameters
    ----------
    stream
        Used from one thread only.
    max_waiting
        Rows that may wait.
    after
        Called in the event loop with each batch, before its requests are answered.
    """

    def __init__(self, stream: DurableStream, max_waiting: int, after: Callable[[Batch], None]) -> None:
        self._stream = stream
        self._max_waiting = max_waiting
        self._after = after
        self._waiting: deque[Request] = deque()
        self._rows = 0
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="stream")
        self._task = asyncio.create_task(self._work())
        self._closing = False
        self._began: float | None = None  # when the running batch was handed to the stream

    @property
    def stalled_in_s(self) -> float:
        """How long the running batch has taken so far; 0 where nothing runs. The event loop lives on meanwhile."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    @property
    def waiting(self) -> int:
        """Rows that wait."""
        return self._rows

    @property
    def alive(self) -> bool:
        """Whether rows can be taken."""
        return not self._closing and not self._task.done()

    async def submit(self, rows: Sequence[Row]) -> Sequence[Update]:
        """What became of the rows, once they are stored."""
        if not self.alive:
            raise BusyError("the service is stopping")
        if self._rows + len(rows) > self._max_waiting:
            raise BusyError(f"{self._rows} rows are waiting already")
        future: asyncio.Future[Sequence[Update]] = asyncio.get_running_loop().create_future()
        self._waiting.append((rows, future))
        self._rows += len(rows)
        self._arrived.set()
        return await future

    async def ask(self, question: Callable[[], Answer]) -> Answer:
        """Run something in the stream's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, question)

    async def close(self) -> None:
        """Finish what is waiting, then let the stream tidy up."""
        self._closing = True
        self._arrived.set()
        await self._task
        await self.ask(self._stream.close)
        self._thread.shutdown()

    async def _work(self) -> None:
        while True:
            await self._arrived.wait()
            if not self._waiting:
                if self._closing:
                    return
                self._arrived.clear()
                continue
            requests = self._next()
            rows = [row for request_rows, _ in requests for row in request_rows]
            self._began = time.monotonic()
            try:
                batch = await self.ask(partial(self._stream.take, rows))
            except Exception as error:  # the batch failed as a whole; the next one may not
                for _, future in requests:
                    if not future.done():
                        future.set_exception(error)
                continue
            finally:
                self._began = None
            self._after(batch)
            place = 0
            for request_rows, future in requests:
                if not future.done():  # a client that went away has its rows stored all the same
                    future.set_result(batch.updates[place : place + len(request_rows)])
                place += len(request_rows)
            if self._stream.behind and (not self._waiting or self._stream.behind >= MOST_BEHIND):
                await self.ask(self._stream.follow)

    def _next(self) -> list[Request]:
        requests: list[Request] = []
        size = 0
        while self._waiting and (not requests or size + len(self._waiting[0][0]) <= LARGEST_BATCH):
            requests.append(self._waiting.popleft())
            size += len(requests[-1][0])
        self._rows -= size
        return requests
