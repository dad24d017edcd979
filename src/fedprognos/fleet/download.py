"""Fetching a data set from its official address: download, unpack, check, and only then put in place."""

from __future__ import annotations

import logging
import shutil
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Protocol

from fedprognos.errors import DataError, DataNotFoundError
from fedprognos.files import replacing
from fedprognos.fleet.catalog import DataSet, data_set, download_place
from fedprognos.fleet.catalog_check import Check, check, check_folder

if TYPE_CHECKING:
    import requests

MAX_UNPACKED_IN_BYTES = 8 * 1024**3
"""An archive that claims more than this is not one of ours."""
_TIMEOUT_IN_S = 30
_MAX_DEPTH = 3


class ProgressBar(Protocol):
    """What pooch reports about a download: the total (once known) and bytes as they come."""

    total: int

    def update(self, amount: int) -> object: ...
    def reset(self) -> object: ...
    def close(self) -> object: ...


def get(
    name: str,
    data_dir: str | Path | None = None,
    *,
    address: str | None = None,
    progress: ProgressBar | None = None,
    force: bool = False,
) -> Check:
    """Download a data set unless it is there already, and check it.

    An interrupted or failed download leaves what was there before.

    Parameters
    ----------
    data_dir
        Where to; None means `$FEDPROGNOS_DATA` or the user's cache.
    address
        Another address of the same zip archive (a mirror).
    progress
        Gets the progress of the download.
    force
        Download even when it is there.
    """
    data = data_set(name)
    place = download_place(data_dir)
    target = place / data.folder
    if not force and target.is_dir() and any(target.iterdir()):
        try:
            present = check(name, place)
        except DataNotFoundError:
            raise DataError(
                "the folder holds something else", where=str(target), hint="use --force to replace it"
            ) from None
        if not present.sound:
            raise DataError("the files there are damaged", where=str(target), hint="use --force to replace them")
        return present
    with replacing(target) as unpacked:
        archive = unpacked.with_name("archive.zip")
        _download(address or data.address, archive, progress)
        unpack(archive, unpacked)
        archive.unlink()
        _check_unpacked(data, unpacked, address or data.address)
    return check(name, place)


def unpack(archive: Path, folder: Path, depth: int = 0) -> None:
    """Unpack a zip archive, and archives inside it into folders named like them; nothing lands outside `folder`."""
    try:
        with zipfile.ZipFile(archive) as content:
            size = sum(info.file_size for info in content.infolist())
            if size > MAX_UNPACKED_IN_BYTES:
                raise DataError(f"archive would unpack to {size / 1024**3:.0f} GB", where=archive.name)
            for info in content.infolist():
                _unpack_one(content, info, folder)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise DataError(
            f"not a complete zip archive ({error})",
            where=archive.name,
            hint="the download was cut short or the address serves something else: try again",
        ) from None
    for inner in sorted(folder.rglob("*.zip")):
        if depth < _MAX_DEPTH:
            unpack(inner, inner.with_suffix(""), depth + 1)
            inner.unlink()


def _unpack_one(content: zipfile.ZipFile, info: zipfile.ZipInfo, folder: Path) -> None:
    name = PurePosixPath(info.filename.replace("\\", "/"))
    is_link = stat.S_ISLNK(info.external_attr >> 16)
    if name.is_absolute() or ".." in name.parts or ":" in name.parts[:1] or is_link:
        raise DataError(f"archive holds a path that leads outside: '{info.filename}'", hint="do not use this archive")
    target = folder.joinpath(*name.parts)
    if info.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with content.open(info) as source, target.open("wb") as sink:
        shutil.copyfileobj(source, sink)


def _download(address: str, archive: Path, progress: ProgressBar | None) -> None:
    import pooch  # loaded late: prediction never needs it
    import requests

    pooch.get_logger().setLevel(logging.WARNING)
    fetch = pooch.HTTPDownloader(progressbar=progress or False, chunk_size=1 << 16, timeout=_TIMEOUT_IN_S)
    try:
        pooch.retrieve(address, known_hash=None, fname=archive.name, path=archive.parent, downloader=fetch)
    except requests.HTTPError as error:
        code = error.response.status_code if error.response is not None else "an error"
        raise DataError(
            f"the server answered {code}", where=address, hint="the address may have moved; see the data set's page"
        ) from None
    except requests.RequestException as error:
        raise DataError(
            f"download failed: {_reason(error)}",
            where=address,
            hint="check the connection and run the command again; nothing was changed",
        ) from None


def _reason(error: requests.RequestException) -> str:
    import requests

    if isinstance(error, requests.Timeout):
        return f"no answer within {_TIMEOUT_IN_S} s"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection broke off"
    if isinstance(error, requests.ConnectionError):
        return "no connection to the server"
    return type(error).__name__


def _check_unpacked(data: DataSet, folder: Path, address: str) -> None:
    """Refuse an archive that holds something else than the data set as published."""
    candidates = [folder, *sorted(p for p in folder.rglob("*") if p.is_dir())]
    holding = next((c for c in candidates if data.holds(c)), None)
    if holding is None:
        raise DataError(f"the archive holds no files of '{data.name}'", where=address, hint="is the address right?")
    checked = check_folder(data.name, folder if data.spread else holding)
    wrong = [part for part in checked.parts if part.status == "wrong"]
    if wrong:
        raise DataError(
            f"{wrong[0].name} is not as published {wrong[0].detail}".rstrip(), where=address, hint="download again"
        )
