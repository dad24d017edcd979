from __future__ import annotations

import gzip
import time
from pathlib import Path

import numpy as np
import pytest
from engines import cmapss_lines, write_cmapss

from fedprognos.errors import ConfigError, DataError, DataNotFoundError
from fedprognos.fleet.readers.cmapss import (
    ALL_SENSORS,
    DEFAULT_SENSORS,
    read_cmapss,
    read_cmapss_test,
    read_cmapss_train,
    read_rul,
)
from refusals import refuses


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_cmapss(tmp_path)
    return tmp_path


@pytest.mark.needs_data("cmapss")
def test_published_counts_of_fd004_come_out(cmapss_folder: Path) -> None:
    begin = time.perf_counter()
    train, test = read_cmapss(cmapss_folder, "FD004")
    taken_in_s = time.perf_counter() - begin
    assert (len(train), train.rows, len(test), test.rows) == (249, 61249, 248, 41214)
    assert sum(unit.rows >= 50 for unit in test) == 228
    assert test["FD004-test-1"].rul_at_end == 22.0
    assert train["FD004-1"].sensors[0, 0] == 549.68
    assert train.schema.sensors == DEFAULT_SENSORS
    assert taken_in_s < 1.5


def test_values_units_and_labels_are_those_of_the_files(folder: Path) -> None:
    train, test = read_cmapss(folder, "FD001", ALL_SENSORS)
    expected = np.loadtxt(folder / "train_FD001.txt")
    assert train.ids == ("FD001-1", "FD001-2")
    assert test.ids == ("FD001-test-1", "FD001-test-2")
    assert np.array_equal(np.concatenate([u.sensors for u in train]), expected[:, 5:])
    assert np.array_equal(np.concatenate([u.settings for u in train]), expected[:, 2:5])
    assert train["FD001-2"].labels().tolist() == [6, 5, 4, 3, 2, 1, 0]
    assert test["FD001-test-2"].labels().tolist() == [14, 13, 12, 11]
    assert train.units[0].failed
    assert not test.units[0].failed


def test_compressed_files_give_the_same_fleet(folder: Path) -> None:
    plain, _ = read_cmapss(folder, "FD001")
    for path in list(folder.glob("*.txt")):
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    zipped, test = read_cmapss(folder, "FD001")
    assert zipped.ids == plain.ids
    assert np.array_equal(zipped.units[1].sensors, plain.units[1].sensors)
    assert test.units[0].rul_at_end == 10


def test_sensors_go_by_name_or_number(folder: Path) -> None:
    train, _ = read_cmapss(folder, "FD001", [21, "sensor_2"])
    assert train.schema.sensors == ("sensor_21", "sensor_2")
    assert np.array_equal(train.units[0].sensors[:, 0], np.loadtxt(folder / "train_FD001.txt")[:5, 25])
    with refuses(DataError, "sensor_22"):
        read_cmapss(folder, "FD001", [22])


def test_a_test_file_alone_has_no_labels(folder: Path) -> None:
    assert read_cmapss_test(folder / "test_FD001.txt").units[0].labels() is None


def test_a_missing_file_says_how_to_get_it(tmp_path: Path) -> None:
    with refuses(DataNotFoundError, "train_FD002.txt", "fedprognos data get cmapss"):
        read_cmapss(tmp_path, "FD002")
    with refuses(ConfigError, "FD004"):
        read_cmapss(tmp_path, "FD04")


def _line(number: int, change: str) -> str:
    lines = cmapss_lines([4, 4]).splitlines(keepends=True)
    lines[number - 1] = change + "\n" if change else "".join(lines[number - 1].rsplit(maxsplit=1)[:1]) + "\n"
    return "".join(lines)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", ()),
        (_line(3, ""), ("line 3", "25", "26")),
        (_line(3, "1 3 " + "0 " * 25), ("line 3", "27", "26")),
        (_line(1, "1 1 0"), ("line 1", "3", "26")),
        (cmapss_lines([4, 4])[:-120], ("line 8", "26")),
        (_line(2, "1 2 0 0 0 1 " + "x " * 20), ("line 2", "'x'", "sensor_2")),
        (_line(2, "1 2 0 0 0 1 nan " + "1 " * 19), ("line 2", "nan", "sensor_2")),
        (_line(2, "1 2 0 0 inf " + "1 " * 21), ("line 2", "inf", "setting_3")),
        (_line(3, "1 2 " + "0 " * 24), ("cycle", "row 2", "2 after 2")),
        (_line(7, "1 9 " + "0 " * 24), ("engine 1", "line 7")),
        (cmapss_lines([4, 1]), ("unit cmapss-2", "1 row")),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, text: str, values: tuple[str, ...]) -> None:
    path = tmp_path / "train.txt"
    path.write_text(text)
    with refuses(DataError, path, *values):
        read_cmapss_train(path)


def test_rul_values_must_match_the_engines(folder: Path) -> None:
    (folder / "RUL_FD001.txt").write_text("1\n2\n3\n")
    with refuses(DataError, "3", "2", "test_FD001.txt"):
        read_cmapss(folder, "FD001")
    (folder / "RUL_FD001.txt").write_text("1\nten\n")
    with refuses(DataError, "line 2", "'ten'", "RUL"):
        read_rul(folder / "RUL_FD001.txt")


def test_damaged_compression_and_binary_files_are_refused(tmp_path: Path) -> None:
    whole = gzip.compress(cmapss_lines([40, 40]).encode())
    path = tmp_path / "train.txt.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with refuses(DataError, "train.txt.gz", "line"):
        read_cmapss_train(path)
    binary = tmp_path / "train.txt"
    binary.write_bytes(whole)
    with refuses(DataError, binary):
        read_cmapss_train(binary)
