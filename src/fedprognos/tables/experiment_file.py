"""The experiment file that `fedprognos init` writes for a table it has looked at."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

import tomli_w

from fedprognos.errors import OutputError
from fedprognos.files import write_text
from fedprognos.tables.cycle_rules import READ_SHARE
from fedprognos.tables.proposal import WHY_LEFT_OUT, Proposal

_COLUMNS = (
    *("task", "unit", "time", "clock", "time_measure", "time_format", "sort"),
    *("life", "new_life", "cycle", "sensors"),
)
_MOST_POINTS = 171
"""Moments of a cycle, as in the presets."""
_LEVELS = 19
"""Levels at which a cycle is read, as in the preset, which was tuned on training cycles."""
_CAP_SHARE = 0.8
"""The cap as a share of a short life: nearly every unit then has rows at the cap, where it is as good as new."""
_STEPS_AN_EPOCH, _STEPS = 20, 1500
"""Least optimizer steps: in an epoch, and in all."""
_KEPT_OUT = 0.25
"""Share of an owner's last cycles by which recipes and heads are chosen."""
_FEWEST_CYCLES = 20
"""A client says nothing about fewer (:data:`fedprognos.privacy.floors.MIN_COUNT`)."""
TEST_FRACTION = 0.25
"""Share of the units, or of each unit's cycles, that is held out for the test."""


def default_path(table: Path) -> Path:
    """Where the experiment of a table goes: beside it, named like it.

    >>> default_path(Path("plant/fleet.2024.csv.gz")).as_posix()
    'plant/fleet.2024.toml'
    """
    return table.with_name(re.sub(r"(\.csv|\.tsv|\.txt|\.xlsx|\.parquet|\.mat)?(\.gz)?$", "", table.name) + ".toml")


def write_experiment(proposal: Proposal, path: Path, force: bool = False) -> Path:
    """Write the commented TOML; an existing file is replaced with `force` only."""
    if path.exists() and not force:
        raise OutputError("file exists", where=str(path), hint="use --force to replace it, or another --out")
    write_text(path, experiment_toml(proposal, path.parent))
    return path


def experiment_toml(proposal: Proposal, folder: Path) -> str:
    """The experiment as TOML, its data path relative to `folder`."""
    head = _comment(f"{proposal.units} units, {proposal.rows} rows. Check every guess below, then run the experiment.")
    clients, partition = _partition(proposal)
    search = []
    if proposal.columns.task == "rul":
        search = [_key("search", "10m", "other recipes are tried on units kept out, in this time; 0: none")]
    sections = [*_data(proposal, folder), *partition, *_recipe(proposal), *_training(proposal, clients)]
    return "".join([head, *search, *sections])


def _key(name: str, value: Any, comment: str = "") -> str:
    return tomli_w.dumps({name: value}).rstrip("\n") + (f"  {_comment(comment)}" if comment else "\n")


def _comment(text: str) -> str:
    """A comment of one line, whatever the names in it."""
    return "# " + " ".join("".join(c if c.isprintable() else " " for c in text).split()) + "\n"


def _data(proposal: Proposal, folder: Path) -> list[str]:
    columns = proposal.columns
    relative = Path(os.path.relpath(proposal.path.resolve(), folder.resolve())).as_posix()
    meanings = {
        "rul": "remaining useful life",
        "soh": "the health of each cycle",
        "forecast": "a column some time ahead",
    }
    other_tasks = "; ".join(f'"{task}" is {meaning}' for task, meaning in meanings.items() if task != columns.task)
    comments = {
        "task": f"{meanings[columns.task]}; {other_tasks}",
        "sheet": "all sheets with the same columns",
        "blanks": "texts among numbers that count as blank cells",
        "time": "within a cycle" if columns.cycle not in (None, columns.time) else "",
        "cycle": "every cycle is one row" if columns.cycle == columns.time else "",
        "clock": "the time of day, beside the date",
        "sort": "rows are not in the order of time; they are sorted",
        "time_measure": "labels and errors are in it, too" if columns.task == "rul" else "",
        "life": "a machine that was repaired is a unit of its own in each life",
        "new_life": "a machine that was repaired begins a new life "
        + ("where the time goes back" if columns.new_life == "time" else "after a row that says failed"),
        "settings": "operating settings",
        "site": "who owns the unit: each owner becomes a client"
        + ("; a guess: its numbers are whole and never change within a unit" if proposal.owners_are_numbers else ""),
    }
    lines = ["\n[data]\n", _key("kind", "table"), _key("path", relative, "relative to this file")]
    if proposal.note:
        lines += [_comment(f"{proposal.note}; other files may need separator, decimal, thousands or encoding")]
    for name in ("sheet", "blanks"):
        if value := getattr(proposal.file_format, name):
            lines += [_key(name, value, comments[name])]
    for name in _COLUMNS:
        if value := getattr(columns, name):
            lines += [_key(name, value, comments.get(name, ""))]
    if columns.time_measure is None:
        lines += [_comment('time_measure = "hours" would name what time, labels and errors are counted in; now: steps')]
    lines += [
        _comment(f"left out, {WHY_LEFT_OUT[why]}: {', '.join(unfit)}") for why, unfit in proposal.left_out.items()
    ]
    if columns.settings:
        lines += [_key("settings", columns.settings, comments["settings"])]
    if proposal.gaps:
        lines += [_key("missing", "hold", 'blanks keep the last value; or "interpolate", "mean", "refuse"')]
        lines += [_comment(f"{column}: {gap}") for column, gap in proposal.gaps.items()]
    lines += [] if columns.site is None else [_key("site", columns.site, comments["site"])]
    others = [c for c in proposal.owners if c != columns.site]
    other = "columns" if columns.site is None else "other columns"
    lines += [_comment(f"{other} that may name the owner: {', '.join(others)}")] if others else []
    if columns.site is None and not proposal.sites:
        lines += [_comment('site = "COLUMN" would say who owns a unit; then use by = "column" in [partition]')]
    lines += [_key(n, v) for n in ("target", "target_measure", "failed") if (v := getattr(columns, n)) is not None]
    if columns.ahead is not None:
        lines += [_key("health", columns.health, "what is predicted; its values so far are seen, too")]
        lines += [_key("ahead", columns.ahead, f"how far ahead, in {columns.time_measure or 'steps'}")]
    elif columns.health is not None:
        says = f"a life ends where {columns.health} stays below this share of its first value"
        lines += [_key("health", columns.health), _key("end_of_life", columns.end_of_life, says)]
        lines += [_comment(f"{proposal.worn} of {proposal.units} units get there; the others are taken to run still")]
    elif columns.target is None and columns.failed is None:
        lines += [_comment("no target and no failed column: every unit is taken to fail after its last row")]
    share = "units" if columns.task != "soh" else "each unit's cycles, the last ones,"
    return [*lines, _key("test_fraction", _test_fraction(proposal), f"share of {share} held out for the test")]


def _test_fraction(proposal: Proposal) -> float:
    """The usual share, or less where a cell has so few cycles that too few were left for its sums to leave a site."""
    cycles = proposal.lengths.fewest_cycles or 0
    if cycles * (1 - TEST_FRACTION) >= _FEWEST_CYCLES or cycles < _FEWEST_CYCLES + 2:
        return TEST_FRACTION
    return math.floor(100 * (cycles - _FEWEST_CYCLES) / cycles) / 100


def _partition(proposal: Proposal) -> tuple[int, list[str]]:
    """Number of clients and the section that makes them."""
    lines = ["\n[partition]  # who owns which units\n"]
    if proposal.separator is not None:
        begins = _key("separator", proposal.separator, "what ends the owner at the beginning of a unit's name")
        return len(proposal.sites), [*lines, _key("by", "name", "nothing else names owners"), begins]
    if len(proposal.sites) > 1:
        return len(proposal.sites), [*lines, _key("by", "column"), _key("column", "site", "the owner named in [data]")]
    clients, why = max(1, min(3, proposal.units // 2)), "nobody is named as owner"
    if proposal.columns.task == "soh":
        cycles_to_train_on = max(1.0, (proposal.lengths.fewest_cycles or 1) * (1 - _test_fraction(proposal)))
        units_a_client = math.ceil(_FEWEST_CYCLES / cycles_to_train_on)
        if units_a_client == 1:
            return proposal.units, [*lines, _key("by", "unit", "every unit is a client")]
        clients, why = max(1, proposal.units // units_a_client), "a unit alone has too few cycles to be a client"
    return clients, [*lines, _key("by", "random", why), _key("clients", clients)]


def _recipe(proposal: Proposal) -> list[str]:
    lengths = proposal.lengths
    lines = ["\n[recipe]\n"]
    measure = proposal.columns.time_measure or ""
    if proposal.columns.task == "forecast":
        seen = f"rows up to each moment; the median unit has {lengths.median_rows}"
        lines += [_key("history", _window(proposal), seen), _key("short", "pad", "shorter units are seen, too")]
    elif lengths.shortest_cycle is None or lengths.cycle_samples is None:
        cap = float(f"{_CAP_SHARE * lengths.short_life:.3g}")
        whole = "every row since the unit was new; or a number: so many rows up to each moment"
        window = f'rows; the median unit has {lengths.median_rows}. "life" would be all rows since the first'
        lines += [
            _key("columns", "wear", "leave out sensors that do not move with wear; the run says which are used"),
            _key("history", "life", whole) if lengths.from_new else _key("history", _window(proposal), window),
            _key(
                "cap",
                cap,
                f"RUL above this counts as this; the median life is {lengths.median_life:.4g} {measure}".strip(),
            ),
        ]
    elif proposal.columns.cycle == proposal.columns.time:
        lines += [_key("cycle", "index", "what was measured in a cycle, as it stands")]
    else:
        end = float(f"{READ_SHARE * lengths.shortest_cycle:.3g}")
        lasts = f"only this part is looked at; the shortest cycle lasts {lengths.shortest_cycle:g}, under load"
        if lengths.levels is not None:
            lines += [
                _key("cycle", "levels", "when one sensor falls to each level: nearly a straight line of the health"),
                _key("levels", lengths.levels),
                _key("level_points", _cycle_points(proposal)),
            ]
        else:
            lines += [_key("cycle", "grid", "every cycle resampled onto the same times")]
            lines += [_key("grid_points", _cycle_points(proposal))]
        lines += [_key("grid_end_in_s", end, lasts)]
    if proposal.conditions:
        lines += ["\n[recipe.conditions]  # decimals to which settings are rounded into operating conditions\n"]
        lines += [_key(column, decimals) for column, decimals in proposal.conditions.items()]
    return lines


def _cycle_points(proposal: Proposal) -> int:
    """Moments of a cycle that the network sees: one where every cycle is a row."""
    lengths = proposal.lengths
    if proposal.columns.cycle == proposal.columns.time:
        return 1
    if lengths.levels is not None:
        return _LEVELS
    return min(_MOST_POINTS, max(2, lengths.cycle_samples or 2))


def _window(proposal: Proposal) -> int:
    return min(50, max(2, round(0.15 * proposal.lengths.median_rows)))


def _training(proposal: Proposal, clients: int) -> list[str]:
    """The network, training and methods of the presets, which were chosen on training units kept out."""
    lengths = proposal.lengths
    lines = ["\n[model]\n", _key("widths", [64])]
    if lengths.shortest_cycle is not None:
        seen = "heads also see every moment of a cycle itself: a linear model of it is hard to beat"
        lines += [_key("direct", _cycle_points(proposal), seen)]
    if proposal.columns.task == "forecast":
        seen = "heads also see the rows themselves: a line through them is hard to beat"
        lines += [_key("direct", _window(proposal), seen)]
    from_new = lengths.from_new and proposal.columns.task == "rul"
    if from_new:
        lines += ["\n[train]\n", _key("learning_rate", 0.004)]
        lines += [_key("steps", 1000, "as many for small owners as for large")]
        lines += [_key("forget_bias", 3.0, "the network remembers from the start; without it an LSTM learns slowly")]
        lines += [_key("noise", 0.3)]
        lines += [_key("warp", 0.7, "lives shown faster and slower, so that age alone tells little")]
        lines += [_key("validation_fraction", 0.2, "share of each owner's units kept out to choose by")]
    else:
        lines += _epochs(proposal, clients)
    linear = [] if lengths.shortest_cycle is None else ["direct"]  # of a cycle it is hard to beat, and nearly free
    methods = ["local", "concat", "absorb", *linear, "central"]
    others = [m for m in ("fedavg", "reservoir", "fedprox", "fedma", "single", "direct") if m not in methods]
    lines += ["\n[federation]\n", _key("methods", methods, f"also: {', '.join(others)}")]
    chosen = "each owner ends with what is best for its own machines: together, a blend, or alone"
    lines += [_key("heads", ["exact", "choice"], chosen)]
    if from_new:
        lines += [_key("ridge", 0.01, "strength of exact heads")]
        lines += [_key("alike", True, "heads: every unit counts alike, however many rows it has")]
    if linear:
        lines += ["\n[federation.direct]\n", _key("steps", _cycle_points(proposal), "every moment, as the ridge sees")]
    lines += ["\n[evaluation]\n", _key("seeds", 1, "repetitions")]
    lines += [_key("intervals", "published", "the model says how sure it is: about one training more; or none")]
    lines += [_key("refit", True, "the model to use is trained on all units, after its error was measured on some")]
    return lines


def _epochs(proposal: Proposal, clients: int) -> list[str]:
    """Batches small enough and epochs enough for the windows that the median client trains on."""
    lengths = proposal.lengths
    a_unit = lengths.median_life if lengths.shortest_cycle is not None else lengths.median_rows - _window(proposal) + 1
    windows = max(1.0, (1 - TEST_FRACTION) * 0.8 * a_unit * proposal.units / clients)  # without the validation
    batch = int(2 ** min(7, max(3, math.floor(math.log2(max(windows / _STEPS_AN_EPOCH, 1))))))
    epochs = min(300, max(30, math.ceil(_STEPS * batch / windows)))
    lines = ["\n[train]\n", _key("epochs", epochs), _key("batch_size", batch, f"about {windows:.0f} windows a client")]
    if lengths.shortest_cycle is not None:
        lines += [_key("warmup", epochs, "the last epoch is kept: what is kept out judges models, and nothing else")]
        lines += [_key("validation_fraction", _KEPT_OUT, "share of each owner's last cycles kept out to choose by")]
    return lines
