"""The download path against a server on this machine."""

from __future__ import annotations

import http.server
import io
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from engines import write_cmapss
from test_nasa_battery import write_mat

from fedprognos.errors import DataError, OutputError
from fedprognos.fleet import download
from fedprognos.fleet.catalog import find
from fedprognos.fleet.download import get, unpack
from refusals import refuses


class Server:
    """Serves bytes by path; a path in `short` announces more than it sends."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.short: set[str] = set()
        self.requests = 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests += 1
                body = outer.content.get(self.path)
                if body is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) // 2] if self.path in outer.short else body)

            def log_message(self, *args: object) -> None:
                """Keep the tests' output quiet."""

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.http.server_port}/{name}"


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    one.thread.start()
    yield one
    one.http.shutdown()
    one.http.server_close()
    one.thread.join()


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def folder_zipped(folder: Path) -> bytes:
    return zipped({str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()})


@pytest.fixture
def archive(tmp_path: Path) -> bytes:
    """Like NASA's archive of the engines, with one subset that has published counts and no known checksum."""
    write_cmapss(tmp_path / "source", "FD003", train=[2] * 100, test=[2] * 100)
    (tmp_path / "source" / "readme.txt").write_text("about")
    return folder_zipped(tmp_path / "source")


class Bar:
    def __init__(self) -> None:
        self.total, self.done, self.closed = 0, 0, False

    def update(self, amount: int) -> None:
        self.done += amount

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        self.closed = True


def left(place: Path) -> list[str]:
    return sorted(p.name for p in place.rglob("*")) if place.exists() else []


def test_a_data_set_is_fetched_unpacked_checked_and_found(server: Server, archive: bytes, tmp_path: Path) -> None:
    server.content["/CMAPSSData.zip"] = archive
    bar = Bar()
    done = get("cmapss", tmp_path / "data", address=server.address("CMAPSSData.zip"), progress=bar)
    assert done.sound
    assert done.folder == find("cmapss", tmp_path / "data") == tmp_path / "data" / "cmapss"
    assert left(tmp_path / "data") == ["RUL_FD003.txt", "cmapss", "readme.txt", "test_FD003.txt", "train_FD003.txt"]
    assert (bar.total, bar.done, bar.closed) == (len(archive), len(archive), True)
    get("cmapss", tmp_path / "data", address=server.address("CMAPSSData.zip"))
    assert server.requests == 1
    get("cmapss", tmp_path / "data", address=server.address("CMAPSSData.zip"), force=True)
    assert server.requests == 2


def test_archives_inside_the_archive_are_unpacked(server: Server, tmp_path: Path) -> None:
    source = tmp_path / "source"
    for battery in ("B0099", "B0098"):
        write_mat(source / f"{battery}.mat", [1.9, 1.8, 1.7])
    inner = zipped({"B0099.mat": (source / "B0099.mat").read_bytes(), "README.txt": b"about"})
    other = zipped({"B0098.mat": (source / "B0098.mat").read_bytes()})
    top = "5. Battery Data Set"
    server.content["/b.zip"] = zipped({f"{top}/1. FY08Q4.zip": inner, f"{top}/2. P1.zip": other})
    done = get("nasa-battery", tmp_path / "data", address=server.address("b.zip"))
    found = {part.name: part.units for part in done.parts if part.units}
    assert found == {"B0098": 3, "B0099": 3}
    assert not list((tmp_path / "data").rglob("*.zip"))


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize(
    ("case", "values"),
    [
        ("404", ("404",)),
        ("cut zip", ("zip",)),
        ("no zip", ("zip",)),
        ("broken off", ("a.zip",)),
        ("refused", ("127.0.0.1:9",)),
        ("something else", ("'cmapss'",)),
        ("other counts", ("train_FD003.txt",)),
        ("outside", ("../../evil.txt",)),
        ("huge", ("unpack",)),
    ],
)
def test_a_failed_download_changes_nothing(
    server: Server,
    archive: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: str,
    values: tuple[str, ...],
    before: bool,
) -> None:
    write_cmapss(tmp_path / "few", "FD003")
    address = server.address("a.zip")
    server.content["/a.zip"] = {
        "cut zip": archive[: len(archive) // 2],
        "no zip": b"<html>moved</html>",
        "something else": zipped({"a.txt": b"a"}),
        "other counts": folder_zipped(tmp_path / "few"),
        "outside": zipped({"train_FD001.txt": b"1", "../../evil.txt": b"evil"}),
    }.get(case, archive)
    if case == "404":
        address = server.address("gone.zip")
    if case == "broken off":
        server.short.add("/a.zip")
    if case == "refused":
        address = "http://127.0.0.1:9/a.zip"
    if case == "huge":
        monkeypatch.setattr(download, "MAX_UNPACKED_IN_BYTES", 100)
    place = tmp_path / "data"
    if before:
        write_cmapss(place / "cmapss", "FD001")
    there = left(place)
    with refuses(DataError, *values):
        get("cmapss", place, address=address, force=True)
    assert left(place) == there
    assert not list(tmp_path.rglob("evil.txt"))


def test_an_interrupt_changes_nothing(server: Server, archive: bytes, tmp_path: Path) -> None:
    class Impatient(Bar):
        def update(self, amount: int) -> None:
            raise KeyboardInterrupt

    server.content["/a.zip"] = archive
    with pytest.raises(KeyboardInterrupt):
        get("cmapss", tmp_path / "data", address=server.address("a.zip"), progress=Impatient())
    assert left(tmp_path / "data") == []


def test_a_folder_with_something_else_is_not_replaced_unasked(server: Server, archive: bytes, tmp_path: Path) -> None:
    server.content["/a.zip"] = archive
    place = tmp_path / "data"
    own = place / "cmapss"
    own.mkdir(parents=True)
    (own / "thesis.txt").write_text("years of work")
    with refuses(DataError, "--force"):
        get("cmapss", place, address=server.address("a.zip"))
    write_cmapss(own, "FD003")
    with refuses(DataError, "cmapss"):
        get("cmapss", place, address=server.address("a.zip"))
    assert (own / "thesis.txt").read_text() == "years of work"


def test_a_place_that_cannot_be_written_is_named(server: Server, archive: bytes, tmp_path: Path) -> None:
    server.content["/a.zip"] = archive
    (tmp_path / "file").write_text("")
    with refuses(OutputError, tmp_path / "file"):
        get("cmapss", tmp_path / "file", address=server.address("a.zip"))


def test_links_in_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    info = zipfile.ZipInfo("link")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(path, "w") as content:
        content.writestr(info, "/etc/passwd")
    with refuses(DataError, "'link'"):
        unpack(path, tmp_path / "out")
