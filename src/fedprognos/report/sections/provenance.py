"""How this was made: the command, the experiment in full, versions. And what the report could not show, and why."""

from __future__ import annotations

import shlex

from fedprognos.files import toml_text
from fedprognos.report.page_elements import Section
from fedprognos.report.run_data import RunData
from fedprognos.report.sections import ReportSection, sections

FACTS = ("finished", "seconds", "python", "platform", "processors")


def build(run: RunData) -> Section:
    """Command, versions, and the experiment behind a click."""
    recorded = run.provenance.get("versions")
    versions = {str(k): str(v) for k, v in recorded.items()} if isinstance(recorded, dict) else {}
    facts = {key: str(run.provenance[key]) for key in FACTS if key in run.provenance}
    terms = {"fedprognos": run.results.version, **versions, **facts}
    experiment = Section("The experiment in full", code=toml_text(run.results.config), folded=True)
    command = f"fedprognos run {shlex.quote(run.results.experiment)}"
    return Section("How this was made", terms=list(terms.items()), code=command, parts=[experiment], folded=True)


sections.add(ReportSection("provenance", 120, "How this was made", build, once=True))


def build_missing(run: RunData) -> Section:
    """One sentence for each part that the run's folder does not hold."""
    return Section("Not shown", words=run.missing)


sections.add(ReportSection("not_shown", 130, "Not shown", build_missing, lambda run: bool(run.missing)))
