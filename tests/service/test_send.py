"""A service fed from files by a command."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import pytest
from services import free_port, served, small_bundle
from typer.testing import CliRunner, Result

from fedprognos.cli import app
from fedprognos.errors import ConfigError, DataError, OutputError
from fedprognos.fleet import Fleet
from fedprognos.service.sender import Link
from fedprognos.tables.columns import TableLayout
from refusals import refuses
from small_fleets import cyclic_fleet, series_fleet

TOKEN = "correct-horse-battery"  # noqa: S105
ENGINES, CELLS = series_fleet([24, 31]), cyclic_fleet(units=2, cycles=5)


def file_of(fleet: Fleet, path: Path, rows: int | None = None) -> Path:
    parts = []
    for unit in fleet:
        frame = pd.DataFrame(unit.sensors, columns=list(fleet.schema.sensors))
        frame[list(fleet.schema.settings)] = unit.settings
        frame["machine"] = unit.id
        if unit.cycles is None:
            frame["cycle"] = unit.time
        else:
            frame["cycle"] = np.repeat(unit.cycle_numbers, np.diff(unit.cycles))
            frame["time_in_s"] = unit.time
        parts.append(frame)
    pd.concat(parts)[:rows].to_csv(path, index=False)
    return path


def send(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["send", *map(str, arguments)])


@pytest.mark.parametrize("fleet", [ENGINES, CELLS], ids=["engines", "cells"])
def test_a_file_arrives_as_a_whole_and_may_be_sent_again(fleet: Fleet, tmp_path: Path) -> None:
    path, bundle = file_of(fleet, tmp_path / "rows.csv"), small_bundle(fleet)
    with served(bundle, tmp_path / "state") as address:
        begun = file_of(fleet, tmp_path / "begun.csv", 20)  # as if a first send had been cut off
        assert "20 rows: 20 accepted" in send(address, begun).output
        done = send(address, path)
        assert done.exit_code == 0, done.output
        assert f"{fleet.rows} rows: {fleet.rows - 20} accepted, 20 known already, 0 refused" in done.output
        again = send(address + "/", path)
        assert f"0 accepted, {fleet.rows} known already, 0 refused" in again.output
        last = bundle.predict(fleet, last=False)
        for unit in fleet.ids:
            history = httpx.get(f"{address}/v1/units/{unit}").json()["history"]
            values = [health["value"] for health in history if health["value"] is not None]
            assert values == pytest.approx(last[unit].tolist()[: len(values)], abs=1e-5)


def test_dates_blanks_and_columns_arrive_without_a_word(tmp_path: Path) -> None:
    frame = pd.read_csv(file_of(ENGINES, tmp_path / "rows.csv")).rename(columns={"machine": "what", "cycle": "when"})
    frame["when"] = pd.Timestamp("2024-05-01") + pd.to_timedelta(frame["when"], unit="D")
    frame.loc[5, "pressure"] = None
    frame.to_csv(tmp_path / "rows.csv", index=False)
    plain = small_bundle(ENGINES)
    recipe = plain.recipe.model_copy(update={"time_measure": "days", "target_measure": "days"})
    bundle = replace(plain, recipe=recipe, table=TableLayout(unit="what", time="when"))
    with served(bundle, tmp_path / "state") as address:
        assert "55 accepted" in send(address, tmp_path / "rows.csv").output
        unit = httpx.get(f"{address}/v1/units/engines-0").json()
        assert unit["date"] == "2024-05-25T00:00:00" and unit["end_date"] > unit["date"]
        assert unit["samples"][5]["sensors"]["pressure"] is None
        assert httpx.get(f"{address}/v1/fleet").json()["filled"] == 1
        row = {**unit["samples"][-1], "unit": "engines-0", "position": "2024-05-26T00:00:00"}
        del row["received"], row["cycle"]
        (answer,) = httpx.post(f"{address}/v1/rows", json=row).json()["results"]
        assert answer["result"] == "accepted" and answer["health"]["position"] == unit["position"] + 1
        wrong = httpx.post(f"{address}/v1/rows", json={**row, "position": "soon"}).json()["results"][0]
        assert wrong["reason"] == "position is 'soon', not a number"


def test_a_token_is_shown_and_asked_for(tmp_path: Path) -> None:
    path = file_of(ENGINES, tmp_path / "rows.csv")
    (tmp_path / "token").write_text(TOKEN)
    with served(small_bundle(ENGINES), tmp_path / "state", token=TOKEN) as address:
        refused = send(address, path)
        assert isinstance(refused.exception, ConfigError) and "--token-file" in refused.exception.hint
        assert "55 accepted" in send(address, path, "--token-file", tmp_path / "token").output


def test_what_is_no_service_and_nobody_there_is_said(tmp_path: Path) -> None:
    port = free_port()
    with refuses(OutputError, port):
        Link(f"http://127.0.0.1:{port}", patience_in_s=0.2).inputs()
    with served(small_bundle(ENGINES), tmp_path / "state") as address, refuses(DataError, address):
        Link(address + "/page.css?").inputs()


@pytest.mark.parametrize("listens", [False, True])
def test_nobody_who_answers_is_said_within_five_seconds(listens: bool) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if listens:
            silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        started = time.monotonic()
        with refuses(OutputError, address):
            Link(address).inputs()
    assert time.monotonic() - started < 5.0
