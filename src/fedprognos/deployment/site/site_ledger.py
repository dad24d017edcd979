"""A site's ledger: every request with its digest, every reply with its tensors, every refusal; each line chained.

A line holds the digest of the line before it, so that none can be taken out or changed unnoticed. Requests come with
the coordinator's signature, which says that it asked this.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedprognos.errors import MessageError
from fedprognos.federation.client_folder import LEDGER, ClientFolder
from fedprognos.federation.messages import LedgerLine
from fedprognos.files import parse_json

MAX_BESIDE_A_DAY = 1000
"""Refusals that are written down, and handshakes and repeats; the next line counts further ones."""


class SiteLedger(ClientFolder):
    """A client's folder whose ledger is chained, and counts what left in a run and in a month."""

    def __init__(self, folder: Path, bundle: Path | None = None) -> None:
        super().__init__(folder, bundle)
        self.about: dict[str, Any] = {}
        """What is said of the request that is being answered."""
        self._lines: list[dict[str, Any]] | None = None
        self._beside: Counter[tuple[str, str]] = Counter()
        self._unwritten: Counter[str] = Counter()

    def record(self, line: LedgerLine) -> None:
        """Note a message that is about to leave, with the request it answers."""
        today = time.strftime("%Y-%m-%d", time.gmtime())
        if not _answers({**self.about, "kind": line.kind}):  # anybody can cause these: they must not fill the disk
            what = "refusals" if "refused" in self.about else "repeats"
            self._beside[today, what] += 1
            if self._beside[today, what] > MAX_BESIDE_A_DAY:
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
        """Every line so far; one that was cut off by a crash is left out."""
        if self._lines is None:
            path = self.folder / LEDGER
            found = path.read_text("utf-8", "replace").split("\n") if path.is_file() else []
            self._lines = [line for text in found if (line := _read(text)) is not None]
            if path.is_file() and not path.read_bytes().endswith(b"\n"):  # a crash cut the last line off
                self._append(LEDGER, "")
        return self._lines

    def answered(self, contract: str, month: str) -> tuple[int, int]:
        """How many steps were answered for a contract, and in a month such as 2026-11; repeats do not count."""
        new = [line for line in self.lines() if _answers(line)]
        return (
            sum(line.get("contract") == contract for line in new),
            sum(str(line.get("time", "")).startswith(month) for line in new),
        )


def _answers(line: Mapping[str, Any]) -> bool:
    """Whether a message is a step's answer, for the first time."""
    again = line.get("repeat") or line.get("kind") == "StepsMissing"
    return bool(line.get("step")) and not again and "refused" not in line


def _read(text: str) -> dict[str, Any] | None:
    """A line; None where it is damaged, which the chain then shows."""
    with contextlib.suppress(ValueError):
        line = parse_json(text)
        if isinstance(line, dict) and type(line.get("bytes")) is int and isinstance(line.get("kind"), str):
            return line
    return None


def _digest(line: Mapping[str, Any]) -> str:
    bare = {key: value for key, value in line.items() if key != "chain"}
    return hashlib.sha256(json.dumps(bare, sort_keys=True).encode()).hexdigest()


def broken_at(lines: list[dict[str, Any]]) -> int | None:
    """The number of the first line that is not chained to the one before it, from 1; None where all are."""
    previous = ""
    for number, line in enumerate(lines, start=1):
        if line.get("previous") != previous or line.get("chain") != _digest(line):
            return number
        previous = str(line["chain"])
    return None


def check_budget(ledger: SiteLedger, contract: str, per_run: int, per_month: int) -> None:
    """Raise where a site has answered as often as its owner allows."""
    run, month = ledger.answered(contract, time.strftime("%Y-%m", time.gmtime()))
    if run >= per_run:
        raise MessageError(f"this site's budget of {per_run} answers for a run is spent")
    if month >= per_month:
        raise MessageError(f"this site's budget of {per_month} answers for a month is spent")


def check_runs(ledger: SiteLedger, per_month: int) -> None:
    """Raise where as many runs have begun this month as the owner allows; one that is approved again is a new one."""
    month = time.strftime("%Y-%m", time.gmtime())
    begun = [line for line in ledger.lines() if line.get("step") == 1 and _answers(line)]
    if sum(str(line.get("time", "")).startswith(month) for line in begun) >= per_month:
        raise MessageError(f"this site's budget of {per_month} runs for a month is spent")
