"""Data sets that experiments use by name: where they are looked for and where they come from."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fedprognos.errors import DataNotFoundError, unknown_name
from fedprognos.tables import battery_files

ENVIRONMENT = "FEDPROGNOS_DATA"
SHARED = Path("../shared/data")
"""Relative to the current folder; looked at where it exists."""


@dataclass(frozen=True)
class DataSet:
    """A public data set.

    Parameters
    ----------
    folder
        Name of its folder in a data directory.
    address
        Official download, a zip archive.
    holds
        Whether a folder (not its sub-folders) holds files of this data set.
    spread
        Whether the files may lie in several sub-folders, so that the one above them is meant.
    """

    name: str
    title: str
    folder: str
    address: str
    holds: Callable[[Path], bool]
    spread: bool = False


def _holds_cmapss(folder: Path) -> bool:
    return any(folder.glob("train_FD00?.txt*"))


def _holds_batteries(folder: Path) -> bool:
    return (folder / battery_files.METADATA).is_file() or any(folder.glob("B[0-9][0-9][0-9][0-9].mat"))


CATALOG = {
    data.name: data
    for data in (
        DataSet(
            name="cmapss",
            title="Turbofan engines, simulated run to failure (NASA C-MAPSS, FD001-FD004)",
            folder="cmapss",
            address="https://data.nasa.gov/docs/legacy/CMAPSSData.zip",
            holds=_holds_cmapss,
        ),
        DataSet(
            name="nasa-battery",
            title="Li-ion batteries, discharge cycles until worn out (NASA Ames PCoE)",
            folder="nasa_battery",
            address="https://phm-datasets.s3.amazonaws.com/NASA/5.+Battery+Data+Set.zip",
            holds=_holds_batteries,
            spread=True,
        ),
    )
}


def data_set(name: str) -> DataSet:
    """A data set by name.

    >>> data_set("cmapss").folder
    'cmapss'
    """
    if name not in CATALOG:
        raise unknown_name("data set", name, CATALOG)
    return CATALOG[name]


def public_data_in(folder: Path) -> str | None:
    """The public data set that lies in a folder, if any."""
    return next((data.name for data in CATALOG.values() if folder.is_dir() and data.holds(folder)), None)


def places(data_dir: str | Path | None = None) -> list[Path]:
    """Data directories in the order they are looked at; an explicit one is the only one.

    >>> [place.name for place in places("my-data")]
    ['my-data']
    """
    if data_dir is not None:
        return [Path(data_dir)]
    folders = [Path(os.environ[ENVIRONMENT])] if os.environ.get(ENVIRONMENT) else []
    if SHARED.is_dir():
        folders.append(SHARED)
    return [*folders, user_cache()]


def download_place(data_dir: str | Path | None = None) -> Path:
    """Data directory that downloads go to: the explicit one, that of the environment, or the user's cache."""
    if data_dir is not None:
        return Path(data_dir)
    return Path(os.environ[ENVIRONMENT]) if os.environ.get(ENVIRONMENT) else user_cache()


def user_cache() -> Path:
    """This user's own data directory."""
    import pooch  # loaded late: prediction never needs it

    return Path(pooch.os_cache("fedprognos"))


def find(name: str, data_dir: str | Path | None = None) -> Path:
    """Folder that holds a data set.

    Parameters
    ----------
    data_dir
        Look only here; None looks in `$FEDPROGNOS_DATA`, `../shared/data` and the user's cache.

    Raises
    ------
    DataNotFoundError
        Listing the places looked in and the command that downloads it.
    """
    data = data_set(name)
    looked = places(data_dir)
    for place in looked:
        for folder in _candidates(data, place):
            if data.holds(folder):
                return folder if not data.spread or not _only_in_parts(data, folder, place) else place / data.folder
    listed = ", ".join(str(p) for p in looked)
    raise DataNotFoundError(
        f"data set '{name}' not found; looked in {listed}",
        hint=f"run: fedprognos data get {name}   (or set {ENVIRONMENT}, or give --data-dir)",
    )


def _candidates(data: DataSet, place: Path) -> Iterator[Path]:
    """The data set's own folder and everything below it, then the place itself and its direct children."""
    own_folder = place / data.folder
    if own_folder.is_dir():
        yield own_folder
        yield from sorted(p for p in own_folder.rglob("*") if p.is_dir())
    if place.is_dir():
        yield place
        yield from sorted(p for p in place.iterdir() if p.is_dir() and p != own_folder)


def _only_in_parts(data: DataSet, folder: Path, place: Path) -> bool:
    """Whether the folder found is one of several parts below the data set's own folder."""
    own_folder = place / data.folder
    return folder != own_folder and own_folder in folder.parents and not (folder / battery_files.METADATA).is_file()
