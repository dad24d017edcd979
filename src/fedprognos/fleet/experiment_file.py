"""The experiment file that `fedprognos init` writes for a table it has looked at."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import tomli_w

from fedprognos.errors import OutputError
from fedprognos.files import write_text
from fedprognos.fleet.inspect import Guess

_CYCLE_SHARE = 0.9


def default_path(table: Path) -> Path:
    """Where the experiment of a table goes: beside it, named like it.

    >>> default_path(Path("plant/fleet.2024.csv.gz")).as_posix()
    'plant/fleet.2024.toml'
    """
    return table.with_name(re.sub(r"(\.csv|\.parquet)?(\.gz)?$", "", table.name) + ".toml")


def write_experiment(guess: Guess, path: Path, force: bool = False) -> Path:
    """Write the commented TOML; an existing file is replaced with `force` only."""
    if path.exists() and not force:
        raise OutputError("file exists", where=str(path), hint="use --force to replace it, or another --out")
    write_text(path, experiment_toml(guess, path.parent))
    return path


def experiment_toml(guess: Guess, folder: Path) -> str:
    """The experiment as TOML, its data path relative to `folder`."""
    head = (
        f"# {guess.units} units, {guess.rows} rows. Every line below is a guess: check it, then run the experiment.\n"
    )
    return "".join([head, *_data(guess, folder), *_partition(guess), *_recipe(guess), *_training()])


def _key(name: str, value: Any, comment: str = "") -> str:
    return tomli_w.dumps({name: value}).rstrip("\n") + (f"  {_comment(comment)}" if comment else "\n")


def _comment(text: str) -> str:
    """A comment of one line, whatever the names in it."""
    return "# " + " ".join("".join(c if c.isprintable() else " " for c in text).split()) + "\n"


def _data(guess: Guess, folder: Path) -> list[str]:
    columns = guess.columns
    relative = Path(os.path.relpath(guess.path.resolve(), folder.resolve())).as_posix()
    meanings = {"rul": "remaining useful life", "soh": "the health of each cycle"}
    other = "soh" if columns.task == "rul" else "rul"
    lines = [
        "\n[data]\n",
        _key("kind", "table"),
        _key("path", relative, "relative to this file"),
        _key("task", columns.task, f'{meanings[columns.task]}; "{other}" is {meanings[other]}'),
    ]
    if columns.unit is not None:
        lines += [_key("unit", columns.unit)]
    lines += [_key("time", columns.time, "within a cycle" if columns.cycle else "")]
    if columns.cycle is not None:
        lines += [_key("cycle", columns.cycle)]
    lines += [_key("sensors", columns.sensors)]
    if guess.constant:
        kind = "in all rows of an operating condition" if guess.conditions else "in every row"
        lines += [_comment(f"left out, the same {kind}: {', '.join(guess.constant)}")]
    if guess.text:
        lines += [_comment(f"left out, not numbers in every row: {', '.join(guess.text)}")]
    for column, gap in guess.gaps.items():
        lines += [_comment(f"left out, fill it to use it: {column} ({gap})")]
    if columns.settings:
        lines += [_key("settings", columns.settings, "operating settings")]
    if columns.site is not None:
        lines += [_key("site", columns.site, "who owns the unit")]
    if columns.target is not None:
        lines += [_key("target", columns.target)]
    elif columns.failed is None:
        lines += [_comment("no target and no failed column: every unit is taken to fail after its last row")]
    if columns.failed is not None:
        lines += [_key("failed", columns.failed)]
    share = "units" if columns.task == "rul" else "each unit's cycles, the last ones,"
    return [*lines, _key("test_fraction", 0.25, f"share of {share} held out for the test")]


def _partition(guess: Guess) -> list[str]:
    lines = ["\n[partition]  # who owns which units\n"]
    if len(guess.sites) > 1:
        return [*lines, _key("by", "column"), _key("column", "site")]
    if guess.columns.task == "soh":
        return [*lines, _key("by", "unit", "every unit is a client")]
    return [*lines, _key("by", "random"), _key("clients", max(1, min(3, guess.units // 2)))]


def _recipe(guess: Guess) -> list[str]:
    lines = ["\n[recipe]\n"]
    if guess.shortest_cycle is None or guess.cycle_samples is None:
        window = min(50, max(2, round(0.15 * guess.median_rows)))
        cap = max(5, 5 * round(0.125 * guess.median_life))
        lines += [
            _key("window", window, f"rows; the median unit has {guess.median_rows}"),
            _key("cap", cap, f"RUL above this counts as this; the median life is {guess.median_life:g}"),
        ]
    else:
        end = float(f"{_CYCLE_SHARE * guess.shortest_cycle:.3g}")
        lines += [
            _key("cycle", "grid", "every cycle resampled onto the same times"),
            _key("grid_end_in_s", end, f"must end before every cycle; the shortest lasts {guess.shortest_cycle:g}"),
            _key("grid_points", min(171, max(2, guess.cycle_samples))),
        ]
    if guess.conditions:
        lines += ["\n[recipe.conditions]  # decimals to which settings are rounded into operating conditions\n"]
        lines += [_key(column, decimals) for column, decimals in guess.conditions.items()]
    return lines


def _training() -> list[str]:
    return ["\n[model]\n", _key("widths", [32]), "\n[train]\n", _key("epochs", 30)]
