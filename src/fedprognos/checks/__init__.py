"""Checks that anyone can run on a thing of one's own: does it keep the promises that the package relies on?

Each check is a plain function. It returns None, or raises :class:`CheckError`, which says what is wrong, where, and
what to do. The package's own tests run these checks over everything that is registered.

>>> import fedprognos as fp
>>> fp.checks.check_channel(fp.registry.channels["slope"])
"""

from fedprognos.checks.data_checks import check_partition, check_reader
from fedprognos.checks.engine_checks import check_engine
from fedprognos.checks.evaluation_checks import check_baseline, check_metric
from fedprognos.checks.feature_checks import check_channel, check_history
from fedprognos.checks.federation_checks import check_average, check_exchange, check_mechanism, check_strategy
from fedprognos.checks.network_checks import check_cell
from fedprognos.checks.requirement import CheckError
from fedprognos.checks.service_checks import check_sink, check_source

__all__ = [
    "CheckError",
    "check_average",
    "check_baseline",
    "check_cell",
    "check_channel",
    "check_engine",
    "check_exchange",
    "check_history",
    "check_mechanism",
    "check_metric",
    "check_partition",
    "check_reader",
    "check_sink",
    "check_source",
    "check_strategy",
]
