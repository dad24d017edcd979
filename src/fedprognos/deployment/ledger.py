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
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedprognos.errors import MessageError
from fedprognos.federation.client_folder import LEDGER, ClientFolder
from fedprognos.federation.messages import LedgerLine

MAX_REFUSALS_A_DAY = 1000
"""Refusals that are written down; the next line counts further ones."""
TELLS = {
    "HelloReply": "this site's name and public key: nothing of the data",
    "ContractReply": "whether the contract is approved: nothing of the data",
    "JoinReply": "names of columns, and a seal that changes with the data",
    "SurveyReply": "counts, means and variances of columns, by operating condition, and of labels",
    "ImportReply": "the weights of a model trained here earlier",
    "FitReply": "weights trained here: whoever has a row can guess whether it was trained on",
    "EvaluateReply": "sums of errors, and the head's H'H and H'y: second moments of features, no row",
    "OutputsReply": "sums of the neurons' outputs and of their products",
    "PoolReply": "centred sums of the head's features and labels",
    "PersonalReply": "a number of points; the head itself stays",
    "ResidualReply": "how many errors are how large, by range of the prediction",
    "ScoreReply": "sums of errors on test units",
    "OutlineReply": "names of columns, operating conditions that there are enough rows of, the shortest cycle",
    "MaskedReply": "numbers that tell nothing without the other members' parts: only their total can be read",
    "KeysReply": "public one-time keys: nothing of the data",
    "SharesReply": "sealed shares of one-time secrets: nothing of the data",
    "BeginReply": "that shares arrived",
    "SurvivorsReply": "a signature of who is in a sum",
    "UnmaskReply": "shares of one-time secrets: with most members' shares a total can be read, no part of it",
    "DeliverReply": "that the model arrived",
    "TensorsMissing": "that a message must be sent in full",
    "StepsMissing": "that earlier steps must be sent again",
    "RefusalReply": "that a reason was shown",
    "Failure": "that a request was not answered, and which kind of reason",
}
"""What a message could tell whoever reads it."""


class SiteLedger(ClientFolder):
    """A client's folder whose ledger is chained, and counts what left in a run and in a month."""

    def __init__(self, folder: Path, bundle: Path | None = None) -> None:
        super().__init__(folder, bundle)
        self.about: dict[str, Any] = {}
        """What is said of the request that is being answered."""
        self._lines: list[dict[str, Any]] | None = None
        self._refusals: Counter[str] = Counter()
        self._unwritten = 0

    def record(self, line: LedgerLine) -> None:
        """Note a message that is about to leave, with the request it answers."""
        today = time.strftime("%Y-%m-%d", time.gmtime())
        if "refused" in self.about:  # anybody can cause these: they must not fill the disk
            self._refusals[today] += 1
            if self._refusals[today] > MAX_REFUSALS_A_DAY:
                self._unwritten += 1
                return
        previous = str(self.lines()[-1].get("chain", "")) if self.lines() else ""
        entry = {**asdict(line), "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **self.about}
        if self._unwritten:
            entry["refusals_not_written"], self._unwritten = self._unwritten, 0
        entry = json.loads(json.dumps({**entry, "previous": previous}))
        entry["chain"] = _digest(entry)
        self._append(LEDGER, json.dumps(entry, sort_keys=True))
        self.lines().append(entry)

    def lines(self) -> list[dict[str, Any]]:
        """Every line so far; one that was cut off by a crash is left out."""
        if self._lines is None:
            path, self._lines = self.folder / LEDGER, []
            for text in path.read_text("utf-8").splitlines() if path.is_file() else ():
                with contextlib.suppress(ValueError):
                    self._lines.append(json.loads(text))
            if path.is_file() and not path.read_bytes().endswith(b"\n"):  # a crash cut the last line off
                self._append(LEDGER, "")
        return self._lines

    def answered(self, contract: str, month: str) -> tuple[int, int]:
        """How many steps were answered for a contract, and in a month such as 2026-11; repeats do not count."""
        new = [line for line in self.lines() if line.get("step") and not line.get("repeat") and "refused" not in line]
        return (
            sum(line.get("contract") == contract for line in new),
            sum(str(line.get("time", "")).startswith(month) for line in new),
        )


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


def in_words(lines: list[dict[str, Any]]) -> Iterator[str]:
    """What left this site, contract by contract, and what it could tell."""
    for contract in dict.fromkeys(str(line.get("contract", "")) for line in lines):
        own = [line for line in lines if str(line.get("contract", "")) == contract]
        yield f"Contract {contract[:16]}" if contract else "Before any contract"
        kinds = Counter(str(line["kind"]) for line in own if "refused" not in line)
        for kind, count in kinds.items():
            size = sum(int(line["bytes"]) for line in own if line["kind"] == kind and "refused" not in line)
            yield f"  {count} x {kind}, {size / 1e6:.2f} MB: {TELLS.get(kind, 'a message of another version')}"
        for line in own:
            if "refusals_not_written" in line:
                yield f"  {line['refusals_not_written']} more requests were REFUSED before {line.get('time', '')}"
            if "refused" in line:
                yield f"  REFUSED {line.get('time', '')} {line.get('request', 'a request')}: {line['refused']}"
    if (number := broken_at(lines)) is not None:
        yield f"The chain is broken at line {number}: the ledger was changed, or a crash cut a line off."


def check_budget(ledger: SiteLedger, contract: str, per_run: int, per_month: int) -> None:
    """Raise where a site has answered as often as its owner allows."""
    run, month = ledger.answered(contract, time.strftime("%Y-%m", time.gmtime()))
    if run >= per_run:
        raise MessageError(f"this site's budget of {per_run} answers for a run is spent")
    if month >= per_month:
        raise MessageError(f"this site's budget of {per_month} answers for a month is spent")
