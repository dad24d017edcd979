"""Puts the exchanges of a deployment on the shelf: handshake, contract, joining, delivery.

They live in their own room, which is above this one. They are named by text, as entry points of another package would
be, so that ledgers and reports can word every message, and nothing here depends on the deployment.
"""

from importlib import import_module

import_module("fedprognos.deployment.site_messages")
