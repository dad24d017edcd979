"""Sections are an open shelf: one file each, and anybody can add one."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from run_folders import write_run

from fedprognos import report
from fedprognos.errors import ConfigError
from fedprognos.report import Figure, Panel, ReportSection, RunData, Section, sections, write_report
from refusals import refuses


def mine(run: RunData) -> Section:
    """What another package might show."""
    plot = Panel("", [{"type": "bar", "x": list(run.clients), "y": [1, 2]}], {"xaxis": {}, "yaxis": {}})
    return Section("Mine", "Seen from outside.", figures=[Figure("bars", "Bars", "Of clients.", [("", [plot])])])


def test_a_section_from_outside_is_on_the_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    with sections.including([ReportSection("mine", 15, "Mine", mine)]):
        page = write_report(folder).read_text("utf-8")
    answer, own, methods = (page.index(f'<section id="{name}"') for name in ("answer", "mine", "methods"))
    assert answer < own < methods
    assert "Seen from outside." in page
    assert '"mine0-bars"' in page
    assert '<section id="mine"' not in write_report(folder).read_text("utf-8")


def test_a_section_that_does_not_apply_is_left_out(tmp_path: Path) -> None:
    with sections.including([ReportSection("mine", 15, "Mine", mine, lambda run: run.task == "soh")]):
        assert '<section id="mine"' not in write_report(write_run(tmp_path)).read_text("utf-8")


def test_a_name_that_is_taken_is_refused() -> None:
    with refuses(ConfigError, "methods"):
        sections.add(ReportSection("methods", 15, "Mine", mine))


def test_every_file_is_a_section_and_nothing_else_lists_them() -> None:
    shelf = importlib.import_module("fedprognos.report.sections")
    assert {m.name for m in pkgutil.iter_modules(shelf.__path__) if not m.name.startswith("_")} <= set(sections)
    for module in pkgutil.iter_modules(report.__path__):
        source = Path(report.__path__[0], f"{module.name}.py")
        assert module.ispkg or "report.sections." not in source.read_text("utf-8"), module.name
