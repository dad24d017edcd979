"""Which entries may be called best, and which ones figures show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedprognos.report.entries import Entry, scored
from fedprognos.report.material import Setting

MANY = 6
"""With more networks than this, figures begin with the few that matter most."""


def comparable(found: Sequence[Entry]) -> list[Entry]:
    """Entries that answered for the whole test and were chosen without it: among these there may be a best."""
    whole = max((entry.n_test for entry in found), default=0)
    return [entry for entry in found if entry.n_test == whole and entry.honest]


def best(found: Iterable[Entry], field: str = "rmse") -> Entry | None:
    """The entry with the smallest mean error."""
    known = [(mean, k, entry) for k, entry in enumerate(found) if (mean := entry.mean(field)) is not None]
    return min(known, key=lambda item: item[:2])[2] if known else None


def of_head(found: Sequence[Entry], head: str | None) -> list[Entry]:
    """Yardsticks, networks with this head (or whatever a method has instead), and personal ones."""
    methods = {(e.method, e.scope) for e in found if e.head == head}
    return [e for e in found if e.head in (None, head) or e.is_personal or (e.method, e.scope) not in methods]


def drawn(found: Sequence[Entry]) -> list[Entry]:
    """Entries for figures: every honest network, and each yardstick on the data that suits it best."""
    fair = comparable(found)
    kept = [e for e in found if not e.is_yardstick and e.honest]
    methods = dict.fromkeys(e.method for e in found if e.is_yardstick)
    for method in methods:
        winner = best([e for e in fair if e.method == method]) or best([e for e in found if e.method == method])
        kept += [winner] if winner is not None else []
    return kept


def with_points(setting: Setting, found: Sequence[Entry]) -> list[Entry]:
    """Entries that have predictions."""
    return [e for e in found if len(scored(setting, e))]


def shown(found: Sequence[Entry], head: str | None) -> list[str]:
    """What is switched on at first: the networks and the best yardstick; of many networks the telling ones."""
    fair = comparable(found)
    networks = [e for e in of_head(found, head) if not e.is_yardstick]
    if len(networks) > MANY:
        federated = best([e for e in fair if e.is_federated and e in networks and not e.is_personal])
        networks = [e for e in networks if e is federated or e.method in ("local", "central")]
    yardstick = best([e for e in fair if e.is_yardstick])
    return [e.key for e in [*networks, *([yardstick] if yardstick else [])]]
