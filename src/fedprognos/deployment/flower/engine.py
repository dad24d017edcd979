"""The engine that a deployment is given: how to host the coordinator's end, and how a site joins."""

from fedprognos.deployment.flower.superlink import host
from fedprognos.deployment.flower.supernode import join

__all__ = ["host", "join"]
