"""Whether a data set is complete: counts of rows, units and cycles, and checksums of files known byte for byte."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fedprognos.errors import DataError, FedprognosError
from fedprognos.fleet.catalog import data_set, find
from fedprognos.fleet.readers import cmapss, nasa_battery

Status = Literal["ok", "partial", "missing", "altered", "wrong"]


@dataclass(frozen=True)
class PartCheck:
    """One file or battery.

    Parameters
    ----------
    status
        ok; partial: some cycles are not there; missing; altered: the counts are right but not the checksum;
        wrong: unreadable or other counts than published.
    units
        Engines, or discharge cycles of a battery.
    """

    name: str
    status: Status
    rows: int | None = None
    units: int | None = None
    expected_rows: int | None = None
    expected_units: int | None = None
    checksum: Literal["matches", "differs", "not known"] = "not known"
    detail: str = ""


@dataclass(frozen=True)
class Check:
    """What is there of a data set."""

    name: str
    folder: Path
    parts: tuple[PartCheck, ...]

    @property
    def complete(self) -> bool:
        return all(part.status == "ok" for part in self.parts)

    @property
    def sound(self) -> bool:
        """Whether what is there is as published; parts may be missing."""
        return not any(part.status in ("wrong", "altered") for part in self.parts)


@dataclass(frozen=True)
class _Published:
    units: int
    rows: int | None = None
    sha256: str | None = None


_CMAPSS = {
    "train_FD001.txt": _Published(100, 20631, "963b5e22825b34d8b21c69e1aeb4af3e647050eb672ee8834ba4b5d91d2de0f8"),
    "test_FD001.txt": _Published(100, 13096, "3cda7109ce17bafb5443f2ac926cfcf88154b941b8c4cf95eb55d1ddd6f52851"),
    "RUL_FD001.txt": _Published(100, 100, "a19c8ec94931949d0485bdc35118206e9c81c4547b422efb9cf86f4ceddbceca"),
    "train_FD002.txt": _Published(260),
    "test_FD002.txt": _Published(259),
    "RUL_FD002.txt": _Published(259, 259),
    "train_FD003.txt": _Published(100),
    "test_FD003.txt": _Published(100),
    "RUL_FD003.txt": _Published(100, 100),
    "train_FD004.txt": _Published(249, 61249, "27ef6160b6a1dcb2613a88de9c239f763b223f02cdc41dc5cdedc5dc189b6218"),
    "test_FD004.txt": _Published(248, 41214, "1dc675fff0624bac10786927c6715b37d1297657137400d2b1a3138d777a3ba5"),
    "RUL_FD004.txt": _Published(248, 248, "196b836b85a95ac7fdbbf29c5fdf1657382eafa445644d114ffaaf50dc2975e1"),
}
_DISCHARGES = {"B0005": 168, "B0006": 168, "B0007": 168, "B0018": 132}


def check(name: str, data_dir: str | Path | None = None) -> Check:
    """Check every file of a data set that is there."""
    return check_folder(name, find(name, data_dir))


def check_folder(name: str, folder: Path) -> Check:
    """Check a data set in a given folder."""
    parts = _check_cmapss(folder) if data_set(name).name == "cmapss" else _check_batteries(folder)
    return Check(name, folder, tuple(parts))


def _check_cmapss(folder: Path) -> list[PartCheck]:
    return [_check_text(folder, name, published) for name, published in _CMAPSS.items()]


def _check_text(folder: Path, name: str, published: _Published) -> PartCheck:
    missing = PartCheck(name, "missing", expected_rows=published.rows, expected_units=published.units)
    try:
        path = cmapss.locate(folder, name)
    except DataError:
        return missing
    try:
        rows, units = _count(path, name)
    except FedprognosError as error:
        return replace(missing, name=path.name, status="wrong", detail=error.what)
    present = replace(missing, name=path.name, status="ok", rows=rows, units=units)
    if units != published.units or published.rows not in (None, rows):
        return replace(present, status="wrong")
    if published.sha256 is None:
        return present
    if _sha256(path) == published.sha256:
        return replace(present, checksum="matches")
    return replace(present, status="altered", checksum="differs")


def _count(path: Path, name: str) -> tuple[int, int]:
    if name.startswith("RUL"):
        n = len(cmapss.read_rul(path))
        return n, n
    fleet = cmapss.read_cmapss_train(path)
    return fleet.rows, len(fleet)


def _sha256(path: Path) -> str:
    """Checksum of the content, unpacked where the file is gzipped."""
    digest = hashlib.sha256()
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _check_batteries(folder: Path) -> list[PartCheck]:
    try:
        listed = {entry.battery: entry for entry in nasa_battery.inventory(folder)}
    except DataError as error:
        return [PartCheck(folder.name, "wrong", detail=str(error))]
    parts = []
    for battery in sorted({*listed, *_DISCHARGES}):
        entry = listed.get(battery)
        expected = _DISCHARGES.get(battery, entry.listed if entry else None)
        if entry is None or entry.present == 0:
            parts.append(PartCheck(battery, "missing", expected_units=expected))
            continue
        status: Status = "ok"
        if entry.present != expected:
            status = "partial" if expected is not None and entry.present < expected else "wrong"
        lacking = f"{entry.without_capacity} without capacity" if entry.without_capacity else ""
        parts.append(PartCheck(battery, status, units=entry.present, expected_units=expected, detail=lacking))
    return parts
