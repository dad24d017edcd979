"""A site's ledger in plain words: what left, what it could tell, what was refused, and whether the ledger is whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from fedprognos.deployment.site.site_ledger import broken_at
from fedprognos.deployment.site_messages import ACTIVITIES

NOTHING = "nothing of the data"
MEMBERSHIP = "whoever has a row can guess whether it was trained on"
LEFT = {
    "HelloReply": ("this site's name, its public key, and which recipe a model for import has", NOTHING),
    "ContractReply": ("whether a contract is approved here", NOTHING),
    "JoinReply": ("names of the columns, and a seal that changes with the data", "which columns there are"),
    "SurveyReply": (
        "counts, means and variances of columns and labels, by operating condition",
        "the level and spread of every column",
    ),
    "ImportReply": ("the weights of a model trained here earlier", MEMBERSHIP),
    "FitReply": ("weights trained here", MEMBERSHIP),
    "EvaluateReply": (
        "sums of errors, and of the head's features and labels (H'H, H'y)",
        "how features vary together; no row",
    ),
    "OutputsReply": ("sums of the neurons' outputs and of their products", "how outputs vary together; no row"),
    "PoolReply": ("centred sums of the head's features and labels", "how features vary together; no row"),
    "PersonalReply": ("on how many points a head of this site's own was made; the head stays", "a number of points"),
    "ResidualReply": ("how many errors are how large, by range of the prediction", "how well the model does here"),
    "ScoreReply": ("sums of errors of a finished model", "how well the model does here"),
    "OutlineReply": (
        "names of the columns, operating conditions with enough rows, the shortest cycle",
        "which conditions this site has",
    ),
    "KeysReply": ("public one-time keys", NOTHING),
    "SharesReply": ("sealed shares of one-time secrets", NOTHING),
    "BeginReply": ("that the shares arrived", NOTHING),
    "SurvivorsReply": ("a signature of who is in a sum", NOTHING),
    "UnmaskReply": ("shares of one-time secrets", "with most members' shares, a total of all members; no part of it"),
    "DeliverReply": ("that the model arrived", NOTHING),
    "StepsMissing": ("that earlier steps must be sent again", NOTHING),
    "RefusalReply": ("that a reason was shown", NOTHING),
    "Failure": ("that a request could not be answered, and which kind of reason", NOTHING),
}
"""What leaves with each kind of message, and what it could tell whoever reads it."""
MASKED = {
    "MomentsRequest": "counts, means and variances of columns and labels",
    "FitRequest": "weights trained here",
    "EvaluateRequest": "sums of errors, and of the head's features and labels (H'H, H'y)",
    "OutputsRequest": "sums of the neurons' outputs and of their products",
    "PoolRequest": "centred sums of the head's features and labels",
    "ResidualRequest": "how many errors are how large",
    "ScoreRequest": "sums of errors of a finished model",
}
"""What is under the mask, by the request that it answers."""


def in_words(lines: list[dict[str, Any]], runs: Mapping[str, str]) -> Iterator[str]:
    """What left this site, contract by contract; `runs` names the run of each contract."""
    size = sum(int(line["bytes"]) for line in lines)
    yield f"{len(lines)} messages left this site, {_size(size)} in all. Times are in UTC."
    for contract in dict.fromkeys(str(line.get("contract", "")) for line in lines):
        own = [line for line in lines if str(line.get("contract", "")) == contract]
        whose = (
            f"Run '{runs.get(contract, 'unknown')}', contract {contract[:16]}" if contract else "Before any contract"
        )
        yield f"{whose}, {_time(own[0])} to {_time(own[-1])}"
        yield from _left([line for line in own if "refused" not in line])
        for line in own:
            if "repeats_not_written" in line:
                yield f"  {line['repeats_not_written']} more handshakes and repeats before {_time(line)}"
            if "refusals_not_written" in line:
                yield f"  REFUSED: {line['refusals_not_written']} more requests before {_time(line)}"
            if "refused" in line:
                kind = str(line.get("request", ""))
                asked = f" ({ACTIVITIES.get(kind, kind)})" if kind else ""
                yield f"  REFUSED {_time(line)}{asked}: {line['refused']}"
    if (number := broken_at(lines)) is None:
        yield "The ledger is whole: every line is chained to the one before it."
    else:
        yield f"The chain is broken at line {number}: the ledger was changed, or a crash cut a line off."


def _left(lines: list[dict[str, Any]]) -> Iterator[str]:
    """What left, how often, and what it could tell; the same once more is counted apart."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        kind = str(line["kind"])
        groups[_meaning(kind, str(line.get("request", "")))].append(line)
    for (what, tells), own in groups.items():
        again = sum(bool(line.get("repeat")) for line in own)
        repeated = f" ({again} of them sent again)" if again else ""
        often = "once" if len(own) == 1 else f"{len(own)} times"
        size = _size(sum(int(line["bytes"]) for line in own))
        yield f"  {often}{repeated}, {size}: {what}. It tells: {tells}."


def _meaning(kind: str, request: str) -> tuple[str, str]:
    if kind == "MaskedReply":
        return (
            f"{MASKED.get(request, 'numbers')}, masked",
            "nothing by itself; only the total of all members can be read",
        )
    return LEFT.get(kind, (f"a message of another version ({kind[:40]})", "unknown"))


def _time(line: Mapping[str, Any]) -> str:
    return str(line.get("time", "")).replace("T", " ").removesuffix("Z")


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"
