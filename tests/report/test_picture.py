"""The picture of a report in README is of the page and the demo as they are."""

from __future__ import annotations

import importlib.util
import json
import struct
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_picture_in_the_readme_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("make_report_picture", DOCS / "make_report_picture.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert "docs/pictures/report.png" in (DOCS.parent / "README.md").read_text("utf-8")
    picture: Path = script.PICTURE
    head = picture.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", head[16:24]) == script.SIZE
    assert json.loads(picture.with_suffix(".json").read_text("utf-8")) == script.made_from(), "make pictures"
