"""Tiers of tests, what each test costs, and where NASA's data is found.

`make test` leaves out what is marked `long` or `soak` and says so at its end. Each test is measured in processor
seconds, its own and those of processes that it started and waited for: unlike the time on the clock they do not depend
on what else the machine does. With `--cpu-each` and `--cpu-total` a run fails whose tests cost more.
Properties that are checked on random examples get fewer of them unless `--hypothesis-profile=thorough` is given.
"""

from __future__ import annotations

import resource
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import is_hypothesis_test, settings

from fedprognos.errors import DataNotFoundError
from fedprognos.fleet.catalog import CATALOG, find

TIERS = {"soak": "make test-soak", "long": "make test-long"}
"""What a test can be marked as beside the fast ones, and the command that runs it; the first that applies counts."""
SHOWN = 10
"""Tests that the summary names as the most expensive ones."""

FEWER = 4
"""Random examples of a property are divided by this in the fast tier; `make test-long` draws all of them."""

torch.set_num_threads(1)  # several test processes share the machine
settings.register_profile("thorough")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("processor time")
    group.addoption("--cpu-each", type=float, metavar="S", help="fail if a test takes more processor seconds")
    group.addoption("--cpu-total", type=float, metavar="S", help="fail if all tests together take more")


def pytest_configure(config: pytest.Config) -> None:
    # Tests that run in the background ignore Ctrl-C, and what they start would too.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(Costs(config), "costs")


class Costs:
    """Adds up what tests cost and counts those that were left out, also over the processes of pytest-xdist."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.started = 0.0
        self.seconds: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        self.started = processor_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Any:
        report, now = (yield), processor_seconds()
        # An attribute of a report travels with it from the process that ran the test.
        report.processor_seconds, self.started = now - self.started, now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += getattr(report, "processor_seconds", 0.0)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        for item in items:
            tier = next((name for name in TIERS if item.get_closest_marker(name)), None)
            if tier is not None:
                self.left_out[tier] += 1

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        # Every process of pytest-xdist collects all tests, so that any one of them knows what was left out.
        self.left_out = Counter(getattr(node, "workeroutput", {}).get("left_out", {}))

    def too_expensive(self) -> list[str]:
        """A line for each limit that was broken."""
        each, most = self.config.getoption("--cpu-each"), self.config.getoption("--cpu-total")
        lines = [f"{s:.1f} s, more than {each:g} s: {name}" for name, s in self.seconds.items() if each and s > each]
        total = self.seconds.total()
        return lines + ([f"{total:.0f} s in all, more than {most:g} s"] if most and total > most else [])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["left_out"] = dict(self.left_out)
        elif session.exitstatus == 0 and self.too_expensive():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        if len(self.seconds) > SHOWN:
            terminalreporter.section(f"processor time: {self.seconds.total():.0f} s")
            for name, seconds in self.seconds.most_common(SHOWN):
                write(f"{seconds:6.1f} s {name}")
        if lines := self.too_expensive():
            terminalreporter.section("too expensive: make it faster, or mark it long", red=True)
            for line in lines:
                write(line)
        if self.left_out:
            terminalreporter.section("left out")
            for tier, count in self.left_out.items():
                write(f"{count} {tier} tests: run them with `{TIERS[tier]}`")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if settings.get_current_profile_name() == "thorough":
        return
    tests = {}  # by id: all cases of a parametrised test share one function
    for item in items:
        test = getattr(item, "obj", None)
        test = getattr(test, "__func__", test)  # a method of a class takes no attributes, its function does
        if is_hypothesis_test(test) and not item.get_closest_marker("long"):
            tests[id(test)] = test
    for test in tests.values():
        # Hypothesis has no public way to change the settings of a test that has its own.
        written = test._hypothesis_internal_use_settings
        fewer = max(written.max_examples // FEWER, min(written.max_examples, 5))
        test._hypothesis_internal_use_settings = settings(written, max_examples=fewer)


def processor_seconds() -> float:
    """Processor time of this process and of the ended processes that it started."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs_data"):
        for name in marker.args or CATALOG:
            try:
                find(name)
            except DataNotFoundError as error:
                pytest.skip(f"{error.what}; {error.hint}")


@pytest.fixture
def cmapss_folder() -> Path:
    """NASA's C-MAPSS files; for tests marked needs_data("cmapss")."""
    return find("cmapss")


@pytest.fixture
def battery_folder() -> Path:
    """NASA's battery files; for tests marked needs_data("nasa-battery")."""
    return find("nasa-battery")
