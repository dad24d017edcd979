"""A site's ledger: every step that was asked, every reply with its tensors, every refusal.

Each line holds the digest of the line before it, so nobody can remove or change one unnoticed. The line of a step
holds the coordinator's signature, which proves that it asked.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedprognos.errors import MessageError
from fedprognos.federation import LEDGER, ClientFolder, LedgerLine
from fedprognos.federation.exchanges import activity_of, words_for
from fedprognos.files import parse_json

MAX_OTHER_LINES_A_DAY = 1000
"""Lines a day for refusals, and as many for handshakes and repeats; the next line counts those that are not written."""


class SiteLedger(ClientFolder):
    """A client's folder whose ledger is chained and counts answers for each run and month."""

    def __init__(self, folder: Path, bundle: Path | None = None) -> None:
        super().__init__(folder, bundle)
        self.about: dict[str, Any] = {}
        """Facts about the message that is being answered; they go into its line."""
        self._lines: list[dict[str, Any]] | None = None
        self._other_lines: Counter[tuple[str, str]] = Counter()
        self._unwritten: Counter[str] = Counter()

    def record(self, line: LedgerLine) -> None:
        """Write down a message that is about to leave, and what it answers."""
        today = time.strftime("%Y-%m-%d", time.gmtime())
        if not _answers({**self.about, "kind": line.kind}):  # anybody can cause these: they must not fill the disk
            what = "refusals" if "refused" in self.about else "repeats"
            self._other_lines[today, what] += 1
            if self._other_lines[today, what] > MAX_OTHER_LINES_A_DAY:
                self._unwritten[what] += 1
                return
        previous = str(self.lines()[-1].get("chain", "")) if self.lines() else ""
        entry = {**asdict(line), "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **self.about}
        entry |= {f"{what}_not_written": count for what, count in self._unwritten.items()}
        self._unwritten.clear()
        entry = json.loads(json.dumps({**entry, "previous": previous}))
        entry["chain"] = _digest(entry)
        self._append(LEDGER, json.dumps(entry, sort_keys=True))
        self.lines().append(entry)

    def lines(self) -> list[dict[str, Any]]:
        """Every line so far, without one that a crash cut off."""
        if self._lines is None:
            path = self.folder / LEDGER
            texts = path.read_text("utf-8", "replace").split("\n") if path.is_file() else []
            self._lines = [line for text in texts if (line := _read(text)) is not None]
            if path.is_file() and not path.read_bytes().endswith(b"\n"):  # a crash cut the last line off
                self._append(LEDGER, "")
        return self._lines

    def answered(self, contract: str, month: str) -> tuple[int, int]:
        """How many steps were answered for a contract, and in a month such as 2026-11, without repeats."""
        answers = [line for line in self.lines() if _answers(line)]
        return (
            sum(line.get("contract") == contract for line in answers),
            sum(str(line.get("time", "")).startswith(month) for line in answers),
        )

    def sums_by_seed(self, contract: str) -> Counter[int]:
        """How many sums over the outputs of others' networks left for a contract, by seed."""
        lines = [line for line in self.lines() if line.get("contract") == contract]
        return _sums_by_seed(lines)


def _sums_by_seed(lines: list[dict[str, Any]]) -> Counter[int]:
    left = [line for line in lines if _answers(line) and line["kind"] != "Failure"]
    return Counter(seed for line in left if type(seed := line.get("seed")) is int)


def _answers(line: Mapping[str, Any]) -> bool:
    """Whether a line is the first answer to a step."""
    again = line.get("repeat") or line.get("kind") == "StepsMissing"
    return bool(line.get("step")) and not again and "refused" not in line


def _read(text: str) -> dict[str, Any] | None:
    """A line, or None where it is damaged; the chain then shows that it is missing."""
    with contextlib.suppress(ValueError):
        line = parse_json(text)
        if isinstance(line, dict) and type(line.get("bytes")) is int and isinstance(line.get("kind"), str):
            return line
    return None


def _digest(line: Mapping[str, Any]) -> str:
    bare = {key: value for key, value in line.items() if key != "chain"}
    return hashlib.sha256(json.dumps(bare, sort_keys=True).encode()).hexdigest()


def broken_at(lines: list[dict[str, Any]]) -> int | None:
    """The number, from 1, of the first line that is not chained to the one before it; None where all are."""
    previous = ""
    for number, line in enumerate(lines, start=1):
        if line.get("previous") != previous or line.get("chain") != _digest(line):
            return number
        previous = str(line["chain"])
    return None


def check_budget(ledger: SiteLedger, contract: str, per_run: int, per_month: int) -> None:
    """Raise where a site has given as many answers as its owner allows."""
    run, month = ledger.answered(contract, time.strftime("%Y-%m", time.gmtime()))
    if run >= per_run:
        raise MessageError(f"this site's budget of {per_run} answers for a run is spent")
    if month >= per_month:
        raise MessageError(f"this site's budget of {per_month} answers for a month is spent")


def check_exposure(ledger: SiteLedger, contract: str, seed: int, per_seed: int) -> None:
    """Raise where a seed of a run has got as many sums over others' networks as the owner allows."""
    if ledger.sums_by_seed(contract)[seed] >= per_seed:
        raise MessageError(f"this site's budget of {per_seed} sums for a seed is spent")


def check_runs(ledger: SiteLedger, per_month: int) -> None:
    """Raise where as many runs have begun this month as the owner allows; a run approved again counts again."""
    month = time.strftime("%Y-%m", time.gmtime())
    begun = [line for line in ledger.lines() if line.get("step") == 1 and _answers(line)]
    if sum(str(line.get("time", "")).startswith(month) for line in begun) >= per_month:
        raise MessageError(f"this site's budget of {per_month} runs for a month is spent")


def ledger_in_words(lines: list[dict[str, Any]], runs: Mapping[str, str]) -> Iterator[str]:
    """What left this site, what it could reveal and what was refused; `runs` names the run of each contract."""
    size = sum(int(line["bytes"]) for line in lines)
    yield f"{len(lines)} messages left this site, {_size(size)} in all. Times are in UTC."
    for contract in dict.fromkeys(str(line.get("contract", "")) for line in lines):
        under = [line for line in lines if str(line.get("contract", "")) == contract]
        run = f"Run '{runs.get(contract, 'unknown')}', contract {contract[:16]}" if contract else "Before any contract"
        yield f"{run}, {_time(under[0])} to {_time(under[-1])}"
        yield from _sent_in_words([line for line in under if "refused" not in line])
        if sums := _sums_by_seed(under):
            seeds = ", ".join(str(count) for count in sums.values())
            yield f"  Sums over outputs of networks that others had a part in, by seed: {seeds}; in all {sums.total()}."
        for line in under:
            if "repeats_not_written" in line:
                yield f"  {line['repeats_not_written']} more handshakes and repeats before {_time(line)}"
            if "refusals_not_written" in line:
                yield f"  REFUSED: {line['refusals_not_written']} more requests before {_time(line)}"
            if "refused" in line:
                kind = str(line.get("request", ""))
                asked = f" ({activity_of(kind)})" if kind else ""
                yield f"  REFUSED {_time(line)}{asked}: {line['refused']}"
    if (number := broken_at(lines)) is None:
        yield "The ledger is complete: every line is chained to the one before it."
    else:
        yield f"The chain is broken at line {number}: the ledger was changed, or a crash cut a line off."


def _sent_in_words(lines: list[dict[str, Any]]) -> Iterator[str]:
    """What left, how often, and what it could reveal; the line says how many of them are repeats."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        kind = str(line["kind"])
        words = words_for(kind, str(line.get("request", "")))
        meaning = (words.leaves, words.reveals) if words else (f"a message of another version ({kind[:40]})", "unknown")
        groups[meaning].append(line)
    for (leaves, reveals), sent in groups.items():
        again = sum(bool(line.get("repeat")) for line in sent)
        repeated = f" ({again} of them sent again)" if again else ""
        often = "once" if len(sent) == 1 else f"{len(sent)} times"
        size = _size(sum(int(line["bytes"]) for line in sent))
        yield f"  {often}{repeated}, {size}: {leaves}. It reveals: {reveals}."


def _time(line: Mapping[str, Any]) -> str:
    return str(line.get("time", "")).replace("T", " ").removesuffix("Z")


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"
