"""The coordinator's page: `status.html` beside `status.json`, for a browser on the coordinator's machine.

It needs no server and no network, and loads itself again every few seconds. Everything on it is in the coordinator's
folder already. Names and texts that come from sites are escaped.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from fedprognos.errors import printable
from fedprognos.experiment import folder_name
from fedprognos.federation import LEDGER
from fedprognos.federation.exchanges import reply_order, words_for
from fedprognos.files import AddedLines, read_object, replacing

PAGE = "status.html"
EVENTS, ROUNDS, RUNS, STATE = "events.jsonl", "rounds.jsonl", "runs", "state.json"
ROUND_KEYS = {"job", "round", "errors", "scored_on", "cap", "bytes"}
"""What a line of a run's rounds has."""
REFRESH_IN_S = 5
SHOWN_EVENTS, SHOWN_ROUNDS, SHOWN_RUNS = 30, 60, 20
PATIENCE_IN_S = 30.0
"""No site is late before this time, however fast the others answered."""
UNKNOWN = "a kind of message that this version does not know"
AGE_SCRIPT = """
const old = document.getElementById("old"), minutes = (Date.now() / 1000 - old.dataset.written) / 60;
old.hidden = minutes < 1;
document.getElementById("minutes").textContent = Math.floor(minutes);
"""


@dataclass
class CurrentStep:
    """What the sites are asked now, since when, and who has not answered.

    A site is late where the run waits for it and it is offline, or where it takes more than twice as long as the
    slowest of those that have answered.
    """

    activity: str = ""
    waiting_for: frozenset[str] = frozenset()
    asked_at: float = 0.0
    slowest_in_s: float | None = None

    def follow(self, activity: str, waiting_for: tuple[str, ...], now: float) -> None:
        """Take note of who is waited for; a new activity or a new name means that a new step has begun."""
        if activity != self.activity or not self.waiting_for or not self.waiting_for.issuperset(waiting_for):
            self.activity, self.asked_at, self.slowest_in_s = activity, now, None
        elif self.waiting_for.difference(waiting_for):
            self.slowest_in_s = now - self.asked_at
        self.waiting_for = frozenset(waiting_for)

    def late(self, online: set[str], now: float) -> list[str]:
        """The sites that are late."""
        slow = self.slowest_in_s is not None and now - self.asked_at > max(PATIENCE_IN_S, 2 * self.slowest_in_s)
        return sorted(self.waiting_for if slow else self.waiting_for - online)


@dataclass
class _RunFiles:
    """What was read of a run's files so far; they only grow, so each line is read once."""

    place: Path
    received: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    received_in_bytes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    rounds: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    events: list[tuple[str, str]] = field(default_factory=list)
    _files: dict[Path, AddedLines] = field(default_factory=dict)

    def read_added(self) -> None:
        for path in sorted(self.place.glob(f"sites/*/*/{LEDGER}")):
            site = unquote(path.parent.name)
            for line in self._added(path):
                kind, size_in_bytes = line.get("kind"), line.get("bytes")
                if isinstance(kind, str) and isinstance(size_in_bytes, int):
                    self.received[site][kind] += 1
                    self.received_in_bytes[site][kind] += size_in_bytes
        for line in self._added(self.place / ROUNDS):
            # A coordinator that starts again repeats the rounds that were settled: they replace themselves.
            if line.keys() >= ROUND_KEYS:
                self.rounds[str(line["job"]), int(line["round"])] = line
        self.events += [
            (str(line.get("time", "")), str(line.get("text", ""))) for line in self._added(self.place / EVENTS)
        ]
        del self.events[:-SHOWN_EVENTS]

    def _added(self, path: Path) -> Iterator[dict[str, Any]]:
        return self._files.setdefault(path, AddedLines(path)).read()


class StatusPage:
    """Writes the page of the coordinator that lives in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._run: _RunFiles | None = None

    def write(self, status: Mapping[str, Any]) -> None:
        """Write the page for a status as `status.json` has it; whoever may read the folder may read the page."""
        html = self.render(status, time.time())
        with replacing(self._folder / PAGE) as temporary:
            temporary.write_bytes(html.encode("utf-8", "replace"))
            temporary.chmod(0o600 | (self._folder.stat().st_mode & 0o044))

    def render(self, status: Mapping[str, Any], now: float) -> str:
        """The page as text."""
        run = self._run_shown(status)
        if run is not None:
            run.read_added()
        rounds = [] if run is None else list(run.rounds.values())
        return _template().render(
            status=status,
            sites=[_site(name, presence, status, run, now) for name, presence in status["sites"].items()],
            run_name=None if run is None else unquote(run.place.name),
            rounds=[_round(line) for line in rounds[::-1][:SHOWN_ROUNDS]],
            rounds_left_out=max(len(rounds) - SHOWN_ROUNDS, 0),
            events=[] if run is None else run.events[::-1],
            runs=self._runs(),
            asked_for=_duration(now - status["since"]),
            written=now,
            written_text=time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now)),
            refresh_in_s=REFRESH_IN_S,
            script=Markup(AGE_SCRIPT),  # noqa: S704 - our own text
            script_hash=base64.b64encode(hashlib.sha256(AGE_SCRIPT.encode()).digest()).decode(),
        )

    def _run_shown(self, status: Mapping[str, Any]) -> _RunFiles | None:
        """The run that is under way, or else the latest one."""
        if "experiment" in status:
            place = self._folder / RUNS / folder_name(str(status["experiment"]))
        else:
            places = [path.parent for path in _newest_first(self._folder, EVENTS)]
            if not places:
                return None
            place = places[0]
        if self._run is None or self._run.place != place:
            self._run = _RunFiles(place)
        return self._run

    def _runs(self) -> list[dict[str, str]]:
        """How the latest runs ended, and where their reports are."""
        runs = []
        for path in _newest_first(self._folder, STATE)[:SHOWN_RUNS]:
            ending = read_object(path)
            if not ending:  # it is being queued again
                continue
            report = path.parent / "report.html"
            link = quote(f"{RUNS}/{path.parent.name}/{report.name}") if report.is_file() else ""
            state, error = str(ending.get("state", "")), str(ending.get("error", ""))
            runs.append({"name": unquote(path.parent.name), "state": state, "error": error, "report": link})
        return runs


def _newest_first(folder: Path, name: str) -> list[Path]:
    return sorted(folder.glob(f"{RUNS}/*/{name}"), key=lambda path: path.stat().st_mtime, reverse=True)


def _site(
    name: str, presence: Mapping[str, Any], status: Mapping[str, Any], run: _RunFiles | None, now: float
) -> dict[str, Any]:
    """What the page says of one site."""
    state = "online" if presence["online"] else "offline"
    awaited = name in status["waiting_for"]
    received = Counter[str]() if run is None else run.received.get(name, Counter[str]())
    order = reply_order()
    kinds = [*(kind for kind in order if kind in received), *sorted(set(received) - set(order))]
    sizes = {} if run is None else run.received_in_bytes.get(name, Counter[str]())
    return {
        "name": name,
        "state": state,
        "late": name in status["late"],
        "awaited": f"{status['phase']}, for {_duration(now - status['since'])}" if awaited else "",
        "last_seen": presence["last_seen"] or "never",
        "received": [
            (words.leaves if (words := words_for(kind)) else UNKNOWN, received[kind], sizes[kind]) for kind in kinds
        ],
        "messages": sum(received.values()),
        "bytes": sum(sizes.values()),
    }


def _round(line: Mapping[str, Any]) -> dict[str, Any]:
    errors = line.get("errors")
    pairs = errors.items() if isinstance(errors, dict) else ()
    return {**line, "errors": [(head, f"{error:.4g}") for head, error in pairs if isinstance(error, int | float)]}


def _duration(seconds: float) -> str:
    """A time in words.

    >>> _duration(12.3), _duration(200.0), _duration(7500.0)
    ('12 s', '3 min', '2 h 5 min')
    """
    minutes = int(seconds) // 60
    if minutes < 1:
        return f"{max(int(seconds), 0)} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


@cache
def _template() -> Template:
    def shown(value: Any) -> Any:
        return printable(value) if type(value) is str else value  # not Markup, which is our own text

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=shown
    )
    return environment.from_string((resources.files(__package__) / "status_page.html").read_text("utf-8"))
