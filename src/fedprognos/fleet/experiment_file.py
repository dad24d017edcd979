"""The experiment file that `fedprognos init` writes for a table it has looked at."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

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
    """Write the commented TOML; refuses to replace a file unless told to."""
    if path.exists() and not force:
        raise OutputError("file exists", where=str(path), hint="give --force to replace it, or another --out")
    write_text(path, experiment_toml(guess, path.parent))
    return path


def experiment_toml(guess: Guess, folder: Path) -> str:
    """The experiment as TOML, its data path relative to `folder`."""
    return "\n".join([*_data(guess, folder), *_partition(guess), *_recipe(guess), *_training()]) + "\n"


def _data(guess: Guess, folder: Path) -> list[str]:
    columns = guess.columns
    relative = Path(os.path.relpath(guess.path.resolve(), folder.resolve())).as_posix()
    lines = [
        f"# {guess.units} units, {guess.rows} rows. Every line below is a guess: check it, then run the experiment.",
        "",
        "[data]",
        'kind = "table"',
        f"path = {_text(relative)}  # relative to this file",
    ]
    if columns.task == "rul":
        lines += ['task = "rul"  # remaining useful life; "soh" is the health of each cycle']
    else:
        lines += ['task = "soh"  # health of each cycle; "rul" is remaining useful life']
    if columns.unit is not None:
        lines += [f"unit = {_text(columns.unit)}"]
    lines += [f"time = {_text(columns.time)}" + ("  # within a cycle" if columns.cycle else "")]
    if columns.cycle is not None:
        lines += [f"cycle = {_text(columns.cycle)}"]
    lines += [f"sensors = {_texts(columns.sensors or ())}"]
    if guess.constant:
        kind = "in all rows of an operating condition" if guess.conditions else "in every row"
        lines += [_remark(f"left out, the same {kind}: {', '.join(guess.constant)}")]
    if guess.text:
        lines += [_remark(f"left out, not numbers in every row: {', '.join(guess.text)}")]
    for column, gap in guess.gaps.items():
        lines += [_remark(f"left out, fill it to use it: {column} ({gap})")]
    if columns.settings:
        lines += [f"settings = {_texts(columns.settings)}  # operating conditions"]
    if columns.site is not None:
        lines += [f"site = {_text(columns.site)}"]
    if columns.target is not None:
        lines += [f"target = {_text(columns.target)}"]
    elif columns.failed is None:
        lines += ["# no target and no failed column: every unit is taken to fail after its last row"]
    if columns.failed is not None:
        lines += [f"failed = {_text(columns.failed)}"]
    share = "units" if columns.task == "rul" else "each unit's cycles, the last ones,"
    return [*lines, f"test_fraction = 0.25  # share of {share} held out for the test"]


def _remark(text: str) -> str:
    """A comment of one line, whatever the names in it."""
    return "# " + " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _partition(guess: Guess) -> list[str]:
    lines = ["", "[partition]  # who owns which units"]
    if len(guess.sites) > 1:
        return [*lines, 'by = "column"', 'column = "site"']
    if guess.columns.task == "soh":
        return [*lines, 'by = "unit"  # every unit is a client']
    return [*lines, 'by = "random"', f"clients = {max(1, min(3, guess.units // 2))}"]


def _recipe(guess: Guess) -> list[str]:
    lines = ["", "[recipe]"]
    if guess.shortest_cycle is None or guess.cycle_samples is None:
        window = min(50, max(2, round(0.15 * guess.median_rows)))
        cap = max(5, 5 * round(0.125 * guess.median_life))
        lines += [
            f"window = {window}  # rows; the median unit has {guess.median_rows}",
            f"cap = {cap}  # RUL above this counts as this; the median life is {guess.median_life:g}",
        ]
    else:
        end = float(f"{_CYCLE_SHARE * guess.shortest_cycle:.3g}")
        lines += [
            'cycle = "grid"  # every cycle resampled onto the same times',
            f"grid_end_in_s = {end}  # the shortest cycle lasts {guess.shortest_cycle:g}; never feed its whole length",
            f"grid_points = {min(171, max(2, guess.cycle_samples))}",
        ]
    if guess.conditions:
        places = ", ".join(f"{_key(c)} = {d}" for c, d in guess.conditions.items())
        lines += [f"conditions = {{{places}}}  # decimals to which settings are rounded into operating conditions"]
    return lines


def _training() -> list[str]:
    return ["", "[model]", "widths = [32]", "", "[train]", "epochs = 30"]


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _texts(values: Sequence[str]) -> str:
    return "[" + ", ".join(_text(v) for v in values) + "]"


def _key(name: str) -> str:
    return name if name.isascii() and name.replace("_", "").replace("-", "").isalnum() else _text(name)
