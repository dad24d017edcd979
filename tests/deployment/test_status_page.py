"""The coordinator's page: who is late, what came from each site, errors by round, and nothing that a name can do."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedprognos.deployment.coordinator.status_page import PAGE, UNKNOWN, CurrentStep, StatusPage
from fedprognos.errors import printable
from fedprognos.experiment import folder_name
from fedprognos.federation.exchanges import words_for

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7 * 7 }}\x1b[2J\u202e\ud800"


class Elements(HTMLParser):
    """Elements of a page with their attributes, and the text in them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.texts.setdefault(tag, []).append("")
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open[-1]][-1] += data


def status(sites: Mapping[str, bool], **changes: Any) -> dict[str, Any]:
    presence = {name: {"online": online, "last_seen": None, "session": "1"} for name, online in sites.items()}
    return {"phase": "training", "since": 1000.0, "waiting_for": [], "late": [], "pid": 1, "sites": presence} | changes


def add_lines(path: Path, *lines: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))


def round_line(number: int, error: float) -> dict[str, Any]:
    errors = {"exact": error, "mean": None}
    return {
        "job": "sites fedavg seed 0",
        "round": number,
        "errors": errors,
        "scored_on": "test",
        "cap": None,
        "bytes": 10,
    }


def test_a_site_is_late_where_it_is_offline_or_takes_twice_as_long_as_the_slowest_other() -> None:
    step = CurrentStep()
    step.follow("training", ("a", "b", "c"), 100.0)
    assert step.late({"a", "b", "c"}, 9000.0) == []  # nobody has answered: all work
    assert step.late({"a", "b"}, 101.0) == ["c"]
    step.follow("training", ("b", "c"), 120.0)
    step.follow("training", ("c",), 130.0)
    assert step.late({"a", "b", "c"}, 160.0) == []
    assert step.late({"a", "b", "c"}, 160.1) == ["c"]
    step.follow("training", (), 170.0)
    assert step.late(set(), 9000.0) == []
    step.follow("training", ("c",), 200.0)  # the same question again is a new step
    assert (step.asked_at, step.late({"c"}, 9000.0)) == (200.0, [])
    step.follow("training", ("a", "c"), 300.0)
    assert step.asked_at == 300.0


def test_the_page_shows_what_came_from_each_site_and_the_errors_by_round(tmp_path: Path) -> None:
    run, page = tmp_path / "runs" / "pumps", StatusPage(tmp_path)
    add_lines(run / "sites" / "all" / "plant-a" / "ledger.jsonl", {"kind": "FitReply", "bytes": 2000, "tensors": {}})
    add_lines(run / "sites" / "all" / "plant-b" / "ledger.jsonl", {"kind": "NewReply", "bytes": 7, "tensors": {}})
    add_lines(run / "events.jsonl", {"time": "09:00:00", "text": "plant-b approved the contract"})
    add_lines(run / "rounds.jsonl", round_line(1, 21.5), {"job": "cut"}, round_line(2, 19.25))
    now = status({"plant-a": True, "plant-b": False}, experiment="pumps", waiting_for=["plant-b"], late=["plant-b"])
    words = words_for("FitReply")
    assert words is not None
    html = page.render(now, 1200.0)
    texts = Elements(html).texts
    assert texts["h3"] == ["plant-a", "plant-b"]
    assert [text.strip() for text in texts["li"]] == [f"1 × {words.leaves}", f"1 × {UNKNOWN}"]
    assert "plant-b approved the contract" in texts["td"]
    assert [text for text in texts["strong"] if text[0].isdigit()] == ["19.25", "21.5"]
    assert "training, for 3 min" in texts["span"]

    # The next writing reads only what was added; a coordinator that starts again repeats rounds.
    add_lines(run / "sites" / "all" / "plant-a" / "ledger.jsonl", {"kind": "FitReply", "bytes": 2000, "tensors": {}})
    add_lines(run / "rounds.jsonl", round_line(1, 21.5), round_line(2, 19.25), round_line(3, 18.0))
    texts = Elements(page.render(now, 1202.0)).texts
    assert texts["li"][0].strip() == f"2 × {words.leaves}"
    assert [text for text in texts["strong"] if text[0].isdigit()] == ["18", "19.25", "21.5"]


def test_a_run_that_ended_is_shown_with_its_report(tmp_path: Path) -> None:
    for name, state in {"good #1": {"state": "done"}, "bad": {"state": "failed", "error": "too few sites"}}.items():
        add_lines(tmp_path / "runs" / folder_name(name) / "state.json", state)
    report = tmp_path / "runs" / folder_name("good #1") / "report.html"
    report.write_text("")
    elements = Elements(StatusPage(tmp_path).render(status({}), 1001.0))
    (link,) = [attributes["href"] for tag, attributes in elements.elements if tag == "a"]
    assert link is not None
    assert (tmp_path / unquote(link)).is_file()
    assert {"good #1", "done", "bad", "failed: too few sites"} <= set(elements.texts["td"])


@given(st.text(min_size=1, max_size=50))
@example(HOSTILE)
def test_names_and_texts_from_sites_are_only_text(name: str) -> None:
    with TemporaryDirectory() as folder:
        run = Path(folder) / "runs" / "pumps"
        add_lines(run / "events.jsonl", {"time": name, "text": name})
        add_lines(run / "state.json", {"state": name, "error": name})
        add_lines(run / "sites" / "all" / "plant-a" / "ledger.jsonl", {"kind": name, "bytes": 1})
        add_lines(run / "rounds.jsonl", {**round_line(1, 2.0), "job": name, "scored_on": name, "errors": {name: 3.0}})
        now = status({name: True, "plant-a": True}, experiment="pumps", waiting_for=[name], late=[name], phase=name)
        StatusPage(Path(folder)).write(now)
        page = Elements((Path(folder) / PAGE).read_text("utf-8"))
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == 1
    assert not {"img", "iframe", "link", "a"} & set(tags)
    attributes = {key for _, pairs in page.elements for key in pairs}
    assert attributes <= {
        *("lang", "charset", "http-equiv", "content", "name", "class", "role", "id", "data-written", "hidden")
    }
    shown = printable(name).encode("utf-8", "replace").decode()
    assert page.texts["h3"][0].split() == shown.split()


@pytest.mark.parametrize(("folder_mode", "page_mode"), [(0o700, 0o600), (0o750, 0o640), (0o755, 0o644)])
def test_only_who_may_read_the_folder_may_read_the_page(tmp_path: Path, folder_mode: int, page_mode: int) -> None:
    tmp_path.chmod(folder_mode)
    StatusPage(tmp_path).write(status({"plant-a": True}))
    assert stat.S_IMODE((tmp_path / PAGE).stat().st_mode) == page_mode
    assert [path.name for path in tmp_path.iterdir()] == [PAGE]


def test_the_page_needs_no_network_and_loads_itself_again(tmp_path: Path) -> None:
    page = Elements(StatusPage(tmp_path).render(status({"plant-a": True}), 1.0))
    heads = {pairs["http-equiv"]: pairs["content"] or "" for _, pairs in page.elements if "http-equiv" in pairs}
    assert heads["Content-Security-Policy"].startswith("default-src 'none';")
    assert int(heads["refresh"]) > 0
    assert not [pairs for _, pairs in page.elements if "src" in pairs]
