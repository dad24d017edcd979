"""The service: rows in over HTTP, health out, a page to look at, and a state that survives being killed."""

from fedprognos.service.keeper import Keeper, Outcome
from fedprognos.service.settings import ServiceSettings

__all__ = ["Keeper", "Outcome", "ServiceSettings"]
