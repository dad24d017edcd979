"""The Python example of the README runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fedprognos

README = Path(__file__).parents[1] / "README.md"


def test_the_python_example_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:  # type: ignore[no-untyped-def]
    example = re.search(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    assert example is not None
    monkeypatch.chdir(tmp_path)
    # The same calls on a smaller fleet: the example at full size takes a minute.
    small = ("data.sites=2", "data.units_per_site=4", "data.test_units_per_site=2", "train.steps=2", "model.widths=[4]")
    small = (*small, "federation.methods=['local', 'central', 'concat']")
    run, load_fleets = fedprognos.run, fedprognos.load_fleets
    monkeypatch.setattr(fedprognos, "run", lambda s, **o: run(s, **o, overrides=small, seeds=1, workers=1))
    monkeypatch.setattr(fedprognos, "load_fleets", lambda s, **o: load_fleets(s, **o, overrides=small))
    exec(compile(example[1], str(README), "exec"), {})  # noqa: S102 - the README's own code
    printed = capsys.readouterr().out
    assert "central" in printed
    assert "s1-t01" in printed
    assert (tmp_path / "runs" / "demo" / "results.json").is_file()
    assert (tmp_path / "runs" / "demo" / "report.html").is_file()
