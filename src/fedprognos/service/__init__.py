"""The service: rows in over HTTP, health out, a page to look at, and a state that survives being killed."""

from fedprognos.service.durable_stream import Batch, DurableStream
from fedprognos.service.service_options import ServiceOptions

__all__ = ["Batch", "DurableStream", "ServiceOptions"]
