"""A site's ledger in plain words: what left, what it could tell, what was refused, and whether the ledger is whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from fedprognos.deployment.site.site_ledger import broken_at
from fedprognos.federation.exchanges import activity_of, words_for


def in_words(lines: list[dict[str, Any]], runs: Mapping[str, str]) -> Iterator[str]:
    """What left this site, contract by contract; `runs` names the run of each contract."""
    size = sum(int(line["bytes"]) for line in lines)
    yield f"{len(lines)} messages left this site, {_size(size)} in all. Times are in UTC."
    for contract in dict.fromkeys(str(line.get("contract", "")) for line in lines):
        under = [line for line in lines if str(line.get("contract", "")) == contract]
        run = f"Run '{runs.get(contract, 'unknown')}', contract {contract[:16]}" if contract else "Before any contract"
        yield f"{run}, {_time(under[0])} to {_time(under[-1])}"
        yield from _left([line for line in under if "refused" not in line])
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
        yield "The ledger is whole: every line is chained to the one before it."
    else:
        yield f"The chain is broken at line {number}: the ledger was changed, or a crash cut a line off."


def _left(lines: list[dict[str, Any]]) -> Iterator[str]:
    """What left, how often, and what it could tell; repeats are counted apart."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        kind = str(line["kind"])
        words = words_for(kind, str(line.get("request", "")))
        meaning = (words.leaves, words.tells) if words else (f"a message of another version ({kind[:40]})", "unknown")
        groups[meaning].append(line)
    for (leaves, tells), sent in groups.items():
        again = sum(bool(line.get("repeat")) for line in sent)
        repeated = f" ({again} of them sent again)" if again else ""
        often = "once" if len(sent) == 1 else f"{len(sent)} times"
        size = _size(sum(int(line["bytes"]) for line in sent))
        yield f"  {often}{repeated}, {size}: {leaves}. It tells: {tells}."


def _time(line: Mapping[str, Any]) -> str:
    return str(line.get("time", "")).replace("T", " ").removesuffix("Z")


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"
