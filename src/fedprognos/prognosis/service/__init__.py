"""The service: rows in over HTTP, health out, a page to look at, and a state that survives being killed."""

from fedprognos.prognosis.service.keeper import Keeper, Outcome
from fedprognos.prognosis.service.settings import ServiceSettings

__all__ = ["Keeper", "Outcome", "ServiceSettings"]
