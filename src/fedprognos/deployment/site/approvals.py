"""The contracts that came to a site: which of them its engineer approved, and which the site will refuse.

Two approved runs can differ by a few rows. Label caps of 368 and 369 differ by the machines that lived so long;
yesterday's data and today's differ by the machine that was added. Whoever has the sums of both runs can subtract them.
So a site refuses a run that would differ from an earlier one by fewer rows or units than its floors.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from fedprognos.arrays import BoolArray, FloatArray, IntArray
from fedprognos.deployment.contract import Contract
from fedprognos.deployment.folders import SiteOptions
from fedprognos.deployment.site.site_data import SiteData
from fedprognos.deployment.site.site_ledger import SiteLedger, check_runs
from fedprognos.errors import ConfigError, MessageError
from fedprognos.features import CountedRows, RecipeOptions, conditions, labelled_only
from fedprognos.federation import ReplyJournal
from fedprognos.files import read_json, read_object, write_json, write_text
from fedprognos.fleet import Fleet, Unit, fleet_digest
from fedprognos.identity import fingerprint
from fedprognos.privacy import Floors

CONTRACTS, TEXT, STATE, CHECKED, UNITS = "contracts", "contract.json", "state.json", "checked.json", "units.json"
MAX_WAITING = 20
"""Contracts that may wait for approval; further ones are refused."""
ApprovalState = Literal["waiting", "approved", "running", "finished"]


@dataclass(frozen=True)
class Approval:
    """A contract, its state, and the fingerprint of the data that its run is about."""

    contract: Contract
    state: ApprovalState
    data: str = ""


class Approvals:
    """The contracts of a site, each in a folder named by its digest.

    Parameters
    ----------
    folder
        The site's folder.
    approved_digests
        Digests approved in the site's settings.
    confirmed
        Fingerprints of members that the site's engineer has confirmed, by name. If there are any, contracts with
        other members are refused.
    """

    def __init__(
        self, folder: Path, approved_digests: Iterable[str] = (), confirmed: Mapping[str, str] | None = None
    ) -> None:
        self._folder, self._approved, self._confirmed = folder / CONTRACTS, set(approved_digests), confirmed or {}

    def place(self, digest: str) -> Path:
        """The folder of a contract."""
        return self._folder / digest

    def journal(self, digest: str) -> ReplyJournal:
        """What a contract's run needs after a restart: outcomes of its steps and this site's own replies."""
        return ReplyJournal(self.place(digest) / "journal")

    def entry(self, digest: str) -> Approval | None:
        """A contract that came to this site, None where none with this digest did."""
        place = self.place(digest)
        if not (len(digest) == 64 and digest.isalnum() and (place / TEXT).is_file()):
            return None
        contract = Contract.parse((place / TEXT).read_text("utf-8", "replace"))
        if contract.digest != digest:
            raise MessageError("this contract was changed after it came")
        kept = read_object(place / STATE)  # a damaged state is none: the engineer is asked once more
        state: ApprovalState = kept["state"] if kept.get("state") in get_args(ApprovalState) else "waiting"
        return Approval(contract, state, str(kept.get("data", "")))

    def entries(self) -> list[Approval]:
        """All contracts, the latest last, without those of another version of this program."""
        paths = sorted(self._folder.glob("*/" + TEXT), key=lambda path: path.stat().st_mtime)
        entries = []
        for path in paths:
            with contextlib.suppress(MessageError):
                entries.append(self.entry(path.parent.name))
        return [entry for entry in entries if entry is not None]

    def put(self, contract: Contract, site: str, public: str) -> Approval:
        """Keep a contract that came from the coordinator; raise where it can never be approved."""
        if contract.members.get(site) != public:
            raise MessageError("the contract does not name this site with its key")
        for name, key in contract.members.items():
            if self._confirmed and name != site and fingerprint(key).replace(" ", "") != self._confirmed.get(name):
                raise MessageError(f"the key of '{name}' is not the one that this site has confirmed")
        entry = self.entry(contract.digest)
        if entry is None:
            if sum(other.state == "waiting" for other in self.entries()) >= MAX_WAITING:
                raise MessageError("too many contracts wait for an answer")
            write_text(self.place(contract.digest) / TEXT, contract.text)
            entry = Approval(contract, "waiting")
        if entry.state == "waiting" and contract.digest in self._approved:
            entry = self.set_state(entry, "approved")
        return entry

    def answered(self) -> list[str]:
        """The runs that were answered here, with the data they were about: what a new run is compared with."""
        places = sorted(path.parent for path in self._folder.glob("*/" + TEXT))
        runs = []
        for place in places:
            state = read_object(place / STATE)
            if state.get("state") in ("running", "finished") or (place / UNITS).is_file():
                runs.append(f"{place.name} {state.get('data', '')}")
        return runs

    def keep_differences(self, digest: str, differences: Sequence[str], basis: str) -> None:
        """Keep what the site found on the basis of its data and floors: `deploy approve` does not have the data."""
        checked = {"compared_with": self.answered(), "basis": basis, "differences": list(differences)}
        write_json(self.place(digest) / CHECKED, checked)

    def differences(self, digest: str, basis: str | None = None) -> list[str] | None:
        """What the site found when it compared a contract with all runs answered so far; None where it has not yet.

        Parameters
        ----------
        basis
            Names the site's data and floors now, where they are there: findings on another basis do not count.
        """
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            checked = read_json(self.place(digest) / CHECKED)
            if checked["compared_with"] == self.answered() and basis in (None, checked["basis"]):
                return [str(text) for text in checked["differences"]]
        return None

    def set_state(self, entry: Approval, state: ApprovalState, data: str = "") -> Approval:
        """Keep the state of a contract."""
        write_json(self.place(entry.contract.digest) / STATE, {"state": state, "data": data})
        return Approval(entry.contract, state, data)

    def approve(self, digest: str) -> Approval:
        """Approve the contract whose digest begins so; a finished one may then run once more."""
        entries = [entry for entry in self.entries() if entry.contract.digest.startswith(digest)]
        if len(entries) != 1:
            raise ConfigError(f"{len(entries)} contracts begin with '{digest}'", where=str(self._folder))
        self.journal(entries[0].contract.digest).clear()
        return self.set_state(entries[0], "approved")


def reasons_to_refuse(
    contract: Contract, approvals: Approvals, ledger: SiteLedger, options: SiteOptions
) -> list[str] | None:
    """Why a site will refuse the first step of a contract, whoever approves it; None where its check is outstanding.

    `deploy approve` shows these reasons, and the site refuses for them.
    """
    differences = approvals.differences(contract.digest)
    if differences is None:
        return None
    reasons = []
    if not options.small_differences:
        reasons += [f"{text}; small_differences = true in settings.toml allows it" for text in differences]
    try:
        check_runs(ledger, options.max_runs_per_month)
    except MessageError as error:
        reasons.append(error.what)
    return reasons


@dataclass(frozen=True)
class Differences:
    """Compares a new run with all runs that a site has answered.

    Parameters
    ----------
    secret
        Keys the seals of units that a site keeps: without it they reveal nothing.
    """

    data: SiteData
    floors: Floors
    secret: bytes

    def too_small(self, contract: Contract, approvals: Approvals) -> Iterator[str]:
        """In words, where the new run and an earlier one would differ by fewer rows or units than the floors."""
        if not self.floors.parts:
            return
        units = self._units(contract)
        if any(self._few_changed(units, before) for before in _remembered(approvals)):
            yield "since an earlier run, this site's data changed by fewer units or rows than the floors"
        for entry in approvals.entries():
            digest = entry.contract.digest
            answered = entry.state in ("running", "finished") or (approvals.place(digest) / UNITS).is_file()
            if answered and digest != contract.digest:
                pairs = zip(self._views(contract), self._views(entry.contract), strict=False)
                for what in dict.fromkeys(w for view, other in pairs for w in view.differences(other, self.floors)):
                    run = entry.contract.run
                    yield f"its {what} differ from those of run '{run}' by fewer rows or units than the floors"

    def remember(self, contract: Contract, place: Path) -> None:
        """Keep which data a run is about, in its contract's folder."""
        write_json(place / UNITS, self._units(contract))

    def _views(self, contract: Contract) -> Iterator[View]:
        """What a run's recipe makes of the training units, then of all units where it asks about all of them."""
        recipe = contract.experiment().recipe
        yield view_of(self.data.train, recipe, self.floors)
        if (whole := self._refitted(contract)) is not None:
            yield view_of(whole, recipe, self.floors)

    def _refitted(self, contract: Contract) -> Fleet | None:
        """All units, where a run trains on them and the floors let it (as `ClientOfAllUnits` does)."""
        test, whole = self.data.test, self.data.whole
        if not contract.experiment().evaluation.refit or test is None or whole is None:
            return None
        enough = len(test) >= self.floors.units and sum(len(unit.positions) for unit in test) >= self.floors.rows
        return whole if enough else None

    def _units(self, contract: Contract) -> dict[str, list[Any]]:
        """By kind and the seal of a unit's name: the seal of its data, and its number of points."""
        whole = self._refitted(contract)
        return self._sealed if whole is None else {**self._sealed, **self._seals("all", whole)}

    @cached_property
    def _sealed(self) -> dict[str, list[Any]]:
        """The same of the training and test units."""
        return self._seals("train", self.data.train) | self._seals("test", self.data.test or ())

    def _seals(self, kind: str, fleet: Iterable[Unit]) -> dict[str, list[Any]]:
        units = {}
        for unit in fleet:
            name = hmac.new(self.secret, unit.id.encode(), hashlib.sha256).hexdigest()[:32]
            seal = fleet_digest(self.data.train.select([unit]), self.secret)
            units[f"{kind} {name}"] = [seal, len(unit.positions)]
        return units

    def _few_changed(self, now: dict[str, Any], before: dict[str, Any]) -> bool:
        """Whether two runs sum over units that differ by fewer than the floors.

        A site that trains on a single unit counts points instead. Sums over all units are also compared with sums over
        training units: one run's training units can be all but one of the other run's.
        """
        for kind, other in (("train", "train"), ("test", "test"), ("all", "all"), ("train", "all"), ("all", "train")):
            units, others = _of_kind(now, kind), _of_kind(before, other)
            if "all" in (kind, other) and not (units and others):
                continue  # one of the runs asks about no test units
            changed = [name for name in units.keys() | others.keys() if units.get(name) != others.get(name)]
            points = sum(abs(units.get(name, ["", 0])[1] - others.get(name, ["", 0])[1]) for name in changed)
            single = kind != "test" and len(self.data.train) == 1
            if changed and (points < self.floors.rows if single else len(changed) < self.floors.units):
                return True
        return False


def _of_kind(units: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The units of a kind, by the seal of their name."""
    return {name.partition(" ")[2]: unit for name, unit in units.items() if name.startswith(f"{kind} ")}


def _remembered(approvals: Approvals) -> Iterator[dict[str, Any]]:
    """The units of every run that was answered, also of contracts of other versions of this program."""
    for path in sorted(approvals.place("").glob(f"*/{UNITS}")):
        with contextlib.suppress(ValueError, OSError):
            yield read_json(path)


@dataclass(frozen=True, eq=False)
class View:
    """What a recipe makes of a site's N labelled points; every array is (N,).

    Parameters
    ----------
    condition
        Number of the operating condition, -1 for rows in no statistic.
    label
        Capped label; NaN for rows in no statistic.
    point
        Whether a history ends at the point.
    """

    unit: IntArray
    condition: IntArray
    label: FloatArray
    point: BoolArray

    def differences(self, other: View, floors: Floors) -> Iterator[str]:
        """What differs, by name, in fewer rows or units than the floors."""

        def few(rows: BoolArray) -> bool:
            units = len(np.unique(self.unit[rows]))
            return 0 < int(rows.sum()) < floors.rows or 0 < units < floors.units

        if few(_unlike(self.label, other.label)):
            yield "labels"
        points = (np.where(view.point, view.label, np.nan) for view in (self, other))
        if few(_unlike(*points)):
            yield "histories"
        # A condition of one run meets a condition of the other: the rows in both are the difference of two sums.
        pairs, which = np.unique(np.stack([self.condition, other.condition]), axis=1, return_inverse=True)
        parts = (which.reshape(-1) == k for k in range(pairs.shape[1]) if pairs[:, k].max() >= 0)
        if any(map(few, parts)):
            yield "operating conditions"


def _unlike(first: FloatArray, second: FloatArray) -> BoolArray:
    return np.asarray(~((first == second) | (np.isnan(first) & np.isnan(second))))


def view_of(fleet: Fleet, recipe: RecipeOptions, floors: Floors) -> View:
    """The labelled points of a fleet as a recipe will see them."""
    fleet = labelled_only(fleet, relative=False)
    series = fleet.schema.task != "soh"
    lengths = [len(unit.positions) for unit in fleet]
    labels = np.concatenate([unit.labels() for unit in fleet])
    if recipe.cap is not None and fleet.schema.task == "rul":
        labels = np.minimum(labels, recipe.cap)
    if not series:
        return View(_numbers(lengths), np.zeros(len(labels), dtype=np.int64), labels, np.ones(len(labels), dtype=bool))
    rule = {name: places for name, places in recipe.conditions.items() if name in fleet.schema.settings}
    counted = np.concatenate(CountedRows(floors.rows, floors.units).rows_of(fleet, rule))
    keys = np.concatenate([conditions.keys(unit.settings, rule, fleet.schema.settings) for unit in fleet])
    _, condition = np.unique(keys, axis=0, return_inverse=True)
    points = np.concatenate([_ends(length, recipe) for length in lengths])
    return View(
        _numbers(lengths),
        np.where(counted, condition.reshape(-1), -1),
        np.where(counted, labels, np.nan),
        points & counted,
    )


def _numbers(lengths: list[int]) -> IntArray:
    return np.repeat(np.arange(len(lengths)), lengths)


def _ends(rows: int, recipe: RecipeOptions) -> BoolArray:
    """At which rows (rows,) of a unit histories end: every `stride` rows, counted back from the last."""
    window, ends = min(recipe.length or 1, rows), np.zeros(rows, dtype=bool)
    if recipe.short == "pad" or rows >= (recipe.length or 1):
        ends[np.arange(rows - 1, window - 2, -recipe.stride)] = True
    return ends
