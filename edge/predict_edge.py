"""Health of machines from a CSV file with nothing but NumPy and ONNX Runtime.

    python predict_edge.py model.onnx rows.csv [--unit machine] [--time cycle] [--cycle cycle] [--state edge.json]

`model.onnx` comes from `fedprognos export BUNDLE --onnx model.onnx`. Columns are called as in training and the rows of
a machine are in order. A model of whole lives reads row after row and keeps a state for each machine; one of windows
looks at a machine's last rows, a cyclic one at its last cycle.

Values, intervals and flags are those of `fedprognos.prognosis.Stream`: blanks and impossible values are held, and a row
that repeats, goes back in time, jumps ahead or holds no number is passed over, counted, and the first one reported on
the error output. With --state, machines go on where the last call left them, so the same file may be given again.
Faults stay until --acknowledge MACHINE; what is still broken is flagged again. After a repair give --forget MACHINE, or
let a column count the machine's lives (--life): a later one is called `pump#2`.

With --trust, keys of that file must have signed the model (`fedprognos sign model.onnx --key KEY`). Checking needs the
package `cryptography`.
"""
# ruff: noqa: T201

import argparse
import csv
import hashlib
import json
import math
import os
import statistics
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import onnxruntime

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("rows")
parser.add_argument("--unit", help="column that names machines; by default that of training, or `unit`")
parser.add_argument("--time", help="column of positions; by default that of training, or `time`")
parser.add_argument("--cycle", help="column of cycle numbers, where the model reads cycles")
parser.add_argument("--life", help="column that counts the lives of a machine: 1, 2, ...")
parser.add_argument("--state", type=Path, help="file that keeps what is known of each machine")
parser.add_argument("--acknowledge", nargs="+", default=[], help="machines whose faults somebody has looked at")
parser.add_argument("--forget", nargs="+", default=[], help="machines that begin a new life after a repair")
parser.add_argument("--coverage", type=float, default=0.9, help="share of true values that intervals should hold")
parser.add_argument("--trust", type=Path, help="keys that must have signed the model (TOML)")
options = parser.parse_args()
if not 0 < options.coverage < 1:
    raise SystemExit(f"--coverage {options.coverage:g} is not between 0 and 1")


def check_signatures(content, path, trust):
    """End unless enough trusted keys signed the model, as fedprognos.networks.trust asks."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    signed = Path(f"{path}.signatures.json")
    signatures = json.loads(signed.read_text("utf-8"))["signatures"] if signed.is_file() else {}
    text, good = f"fedprognos model|file|{hashlib.sha256(content).hexdigest()}".encode(), 0
    for key in trust["keys"]:
        expired = "until" in key and datetime.now(UTC).date() > key["until"]
        if key["public"] not in signatures or key.get("revoked", False) or expired:
            continue
        try:
            public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key["public"]))
            public.verify(bytes.fromhex(signatures[key["public"]]), text)
        except (InvalidSignature, ValueError):
            raise SystemExit(
                f"{path}: the signature of {key['name']} is not of this model; get the model again"
            ) from None
        good += 1
    if good < trust.get("needed", 1):
        raise SystemExit(f"{path}: signed by {good} of {trust.get('needed', 1)} trusted keys that are needed")


try:
    content = Path(options.model).read_bytes()
except OSError as error:
    raise SystemExit(f"{options.model}: {error.strerror}") from None
if options.trust is not None:
    check_signatures(content, options.model, tomllib.loads(options.trust.read_text("utf-8")))

threads = onnxruntime.SessionOptions()
threads.intra_op_num_threads = 1
try:
    session = onnxruntime.InferenceSession(content, threads, providers=["CPUExecutionProvider"])
    facts = session.get_modelmeta().custom_metadata_map
    recipe = json.loads(facts["recipe"])
except Exception as error:  # ONNX Runtime documents no exception types
    raise SystemExit(f"{options.model} is not a model of `fedprognos export`: {error}") from None
table = json.loads(facts.get("table") or "{}")
calibration = json.loads(facts.get("calibration") or "null")
columns = recipe["sensors"] + recipe["settings"]
sensors, window, cyclic, life = len(recipe["sensors"]), recipe["window"], recipe["cycle"] is not None, recipe["life"]
unit_column, time_column = options.unit or table.get("unit") or "unit", options.time or table.get("time") or "time"
cycle_column = (options.cycle or table.get("cycle") or "cycle") if cyclic else None
if options.cycle and not cyclic:
    raise SystemExit("this model takes no cycle column; the cycle number is the time: --time COLUMN")
life_column = options.life or table.get("life")
wanted = [given.name for given in session.get_inputs()]
tells_novelty = "novelty" in [output.name for output in session.get_outputs()]
mean, std = np.array(recipe["mean"]), np.array(recipe["std"])
keys = np.array(recipe["condition_keys"], dtype=float).reshape(len(mean), -1)
missing = table.get("missing", "hold")
if isinstance(missing, str):  # an operating setting is held, never averaged
    policies = [missing] * sensors + ["refuse" if missing == "refuse" else "hold"] * len(recipe["settings"])
else:
    policies = [missing.get(name, "hold") for name in columns]
uses_mean = np.array([policy == "mean" for policy in policies])
refuses = np.array([policy == "refuse" for policy in policies])
# The texts that fedprognos.tables counts as blank, and those that the training table named.
BLANKS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"),
    *("NULL", "NaN", "None", "n/a", "nan", "null", "-", "--", "?", "#VALUE!", "#DIV/0!", "#REF!", "#NUM!"),
)
blanks = {*BLANKS, *(text.strip() for text in table.get("blanks", ()))}

# --- sensors: the limits of fedprognos.prognosis.sensor_faults -----------------------------------
SETTLED, SMOOTHING, FAR = 10, 0.1, 10.0
DOUBT = 0.45
usual = recipe.get("usual")
ones = np.ones(sensors)
if usual is None:
    reach, jump, motion_limit, still_limit = 10.0 * ones, np.inf * ones, 0 * ones, max(50, window) * ones
    low, high, joint = -3.0 * ones, 3.0 * ones, None
else:
    reach = np.maximum(1.5 * np.array(usual["reach"]), 6.0)
    jump = np.maximum(1.5 * np.array(usual["jump"]), 6.0) if usual.get("jump") else np.inf * ones
    motion_limit = 0.5 * np.array(usual["motion"]) if usual.get("motion") else 0 * ones
    still_limit = np.maximum(2 * np.array(usual["still"]), 10)
    low, high, joint = np.array(usual["low"]) - 0.5, np.array(usual["high"]) + 0.5, usual.get("joint")
if joint is not None and joint["units"] < 20:
    joint = None
span = 20 if life else window
SECONDS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0, "weeks": 604800.0}
dates = 9.4e8 / SECONDS[recipe["time_measure"]] if recipe["time_measure"] in SECONDS else math.inf
latest_first = usual["first"] if life and usual is not None else math.inf
level = recipe["sensors"].index(recipe["levels"]) if recipe["cycle"] == "levels" else None
if level is not None:  # what the network sees of this sensor are times; deviations are of its values all the same
    mean, std = mean.copy(), std.copy()
    mean[:, level], std[:, level] = (usual["level_mean"], usual["level_std"]) if usual else (0.0, np.inf)
health_column = recipe["sensors"].index(table["health"]) if table.get("health") in recipe["sensors"] else None
worn_share = table.get("end_of_life", 0.8) if recipe["task"] == "rul" and health_column is not None else None
ARRAYS = ("known", "raw", "still", "blank", "level", "motion", "seen", "good", "far", "held", "latched")
FAULTS = ("out-of-range", "drift", "stuck", "missing", "unknown-wear")
STEPS, ENOUGH_STEPS, JUMP = 15, 3, 1000.0
GAP_SHARE = 0.1
end = recipe["grid_end_in_s"] if recipe["cycle"] in ("grid", "levels") else None


def new_machine():
    """What is remembered of a machine: its sensors as in SensorWatch, its clock, its rows or its state."""
    watch = {name: np.zeros(sensors) for name in ARRAYS}
    watch |= {"known": np.full(len(columns), np.nan), "raw": np.full(sensors, np.nan), "far": np.full(sensors, 1e9)}
    clock = {"cycle": None, "first": None, "last": None, "count": 0, "steps": [], "suspect": None, "origin": 0.0}
    kept = {"rows": [], "time": [], "odd": [], "state": None, "health": None, "flags": {}, "excess": 0.0}
    ends = {"novel_rows": 0, "novel": False, "first_health": [], "latest_health": [], "worn": False, "complete": False}
    return {**watch, **clock, **kept, **ends}


def acknowledge(machine):
    """Drop faults after somebody has looked, as SensorWatch.acknowledge and NoveltyWatch.acknowledge do."""
    for name in ("still", "blank", "seen", "latched", "held"):
        machine[name] = np.zeros(sensors)
    machine.update(far=np.full(sensors, 1e9), novel_rows=0, novel=False)
    machine["flags"] = {flag: which for flag, which in machine["flags"].items() if flag not in FAULTS}


def condition(settings):
    """Which operating condition a row is in, the nearest known one where it is none of them, and whether it is one."""
    names = list(recipe["conditions"])
    if not names:
        return 0, True
    values = [settings[recipe["settings"].index(name)] for name in names]
    at = np.array([np.round(x, recipe["conditions"][name]) for x, name in zip(values, names, strict=True)])
    width = np.ptp(keys, axis=0)
    nearest = int((((keys - at) / np.where(width > 0, width, 1.0)) ** 2).sum(axis=1).argmin())
    return nearest, bool((keys[nearest] == at).all())


def smoothed(before, now, count):
    return before + np.maximum(SMOOTHING, 1 / np.maximum(count, 1)) * (now - before)


def visible(machine, row, blank, at):
    """A row (columns,) as the network may see it: impossible values held; the watch goes on."""
    m, empty, value = machine, blank[:sensors], row[:sensors].copy()
    deviation = ((value - mean[at]) / std[at]).astype(np.float32).astype(float)
    impossible = ~(np.abs(deviation) <= reach)
    impossible |= (m["seen"] >= SETTLED) & ~(np.abs(deviation - m["level"]) <= jump)
    held, good = impossible & ~empty, ~impossible & ~empty
    seen = np.where(impossible, m["good"], deviation)
    m["still"] = np.where(empty, 1, np.where(value == m["raw"], m["still"] + 1, 1))
    m["raw"] = np.where(empty, np.nan, value)
    m["blank"] = np.where(empty, m["blank"] + 1, 0)
    step = np.minimum(np.abs(seen - m["good"]), FAR)
    m["motion"] = np.where(good & (m["seen"] > 0), smoothed(m["motion"], step, m["seen"]), m["motion"])
    m["seen"] = m["seen"] + good
    m["level"] = np.where(good, smoothed(m["level"], np.clip(seen, -FAR, FAR), m["seen"]), m["level"])
    m["good"] = np.where(good, seen, m["good"])
    m["far"] = np.where(held, 0, m["far"] + 1)
    m["held"] = m["held"] + SMOOTHING * (held - m["held"])
    drifted = (m["seen"] >= SETTLED) & ((m["level"] < low) | (m["level"] > high))
    stuck = (m["still"] > still_limit) | ((m["seen"] > SETTLED) & (m["motion"] < motion_limit))
    bits = np.where(m["held"] > 0.4, 1, 0) | np.where(drifted, 2, 0) | np.where(stuck, 4, 0)
    m["latched"] = (m["latched"].astype(int) | bits).astype(float)
    note_odd(m)
    row[:sensors] = np.where(impossible, mean[at] + std[at] * seen, value)
    hidden = blank | np.append(impossible, np.zeros(len(row) - sensors, bool))
    m["known"] = np.where(hidden, m["known"], row)
    if worn_share is not None and not hidden[health_column]:
        note_health(m, float(value[health_column]))
    return row


def note_health(m, value):
    """Mark a machine whose health has fallen below its end of life, as WornWatch does; that stays."""
    m["first_health"] = (m["first_health"] + [value])[:5]
    m["latest_health"] = (m["latest_health"] + [value])[-5:]
    if len(m["latest_health"]) == 5:
        first, middle = m["first_health"][0], float(np.median(m["first_health"]))
        new = first if abs(first - middle) <= 0.2 * abs(middle) else middle
        m["worn"] = m["worn"] or float(np.median(m["latest_health"])) < worn_share * new


def note_odd(m):
    """Mark the sensor whose level is furthest from what the others say, where that is too far."""
    m["excess"] = 0.0
    if joint is None:
        return
    among = np.flatnonzero((m["latched"] == 0) & (m["blank"] == 0) & (m["far"] > SETTLED) & (m["seen"] >= SETTLED))
    if len(among) < 2:
        return
    precision = np.linalg.inv(np.array(joint["covariance"])[np.ix_(among, among)] + 0.01 * np.eye(len(among)))
    errors = (m["level"][among] - np.array(joint["mean"])[among]) @ precision / np.sqrt(np.diag(precision))
    most = np.array(joint["most"])[among]
    excess = np.abs(errors) / np.where(most > 4.0, 2 * most, 6.0)
    m["excess"] = float(excess.max())
    if m["excess"] > 1:
        m["latched"][among[excess.argmax()]] += 8


def flags_of(m, odd):
    """All flags in the order of Stream, each with the sensors that raise it; the first ones are of the rows."""
    if m["worn"]:
        return {"worn": f"{columns[health_column]} is below {worn_share:.0%} of its first value"}
    latched = m["latched"].astype(int)
    flags = {flag: "" for flag in ("padded", "stretched", "gap", "unseen-condition") if flag in odd}
    if not m["origin"] and latest_first < m["first"] < dates:
        flags["mid-life"] = f"watched from {m['first']:g} on"
    raised = {
        "out-of-range": (m["far"] < span) | (latched & 1 > 0),
        "drift": (latched & 2 > 0) | ((latched & 8 > 0) & ((latched & 8 > 0).sum() < 3)),
        "stuck": latched & 4 > 0,
        "missing": m["blank"] > still_limit,
        "unknown-wear": (latched & 8 > 0) & ((latched & 8 > 0).sum() >= 3),
    }
    names = np.array(recipe["sensors"])
    flags |= {flag: ", ".join(names[which]) for flag, which in raised.items() if which.any()}
    if m["novel"] and "unknown-wear" not in flags:
        flags["unknown-wear"] = ", ".join(names[np.abs(m["level"]) > 1]) or "its sensors together"
    return flags


def interval(value):
    """Bounds of a value, as fedprognos.networks.calibration makes them; infinite where there is no bound."""
    if calibration is None:
        return -np.inf, np.inf
    c, unit = calibration, calibration["unit"]
    counts, units = np.array(c["counts"], dtype=float), np.array(c["units"], dtype=float)
    if c["bandwidth"]:
        bounds = np.array([0.0, *c["ranges"], unit])
        distance = ((value - (bounds[1:] + bounds[:-1]) / 2) / c["bandwidth"]) ** 2
        weights = np.exp((distance.min() - distance) / 2)
    else:
        weights = np.eye(len(units))[np.searchsorted(c["ranges"], value, side="right")]
    counts, units = weights @ counts, weights @ units / weights.sum()
    edges = np.array([-np.inf, *c["edges"], np.inf])
    scale = value + 0.1 * unit if c["growing"] else unit
    half, at_cap = (1 - options.coverage) / 2, 0.0
    if c["cap"] is not None:  # where lives at the cap are many, the interval is open above and misses below alone
        top, total = (value - (c["cap"] - 0.5)) / scale, np.cumsum(counts)
        at_cap = np.interp(top, c["edges"], total[:-1], left=0.0) / max(total[-1], 1e-12)
    below = tail(c, counts, edges, units, half)
    above = -tail(c, counts[::-1], -edges[::-1], units, min(max(at_cap, half), 2 * half))
    least, most = max(value - above * scale, 0.0), value - below * scale
    if c["cap"] is not None:
        least, most = min(least, c["cap"]), np.inf if most > c["cap"] - 0.5 else most
    return least, most


def tail(c, counts, edges, units, share):
    """The residual below which a share lies; -inf where there are too few units to say."""
    missed = (units + 1) * share + 1e-9
    rank = missed * counts.sum() / max(units, 1)
    return ranked(counts, edges, rank if c["bandwidth"] else np.floor(rank)) if missed >= 1 else -np.inf


def ranked(counts, edges, rank):
    total = np.cumsum(counts)
    k = min(int((total < rank - 1e-9).sum()), len(counts) - 1)
    if k in (0, len(counts) - 1):
        return edges[k]
    share = (rank - 0.5 - (total[k] - counts[k])) / max(counts[k], 1e-12)
    return edges[k] + min(max(share, 0.0), 1.0) * (edges[k + 1] - edges[k])


# --- the network ---------------------------------------------------------------------------------
def run(machine, rows, state=None):
    """Health after rows (T, columns) of one machine, and its state; notes how far the state is from training."""
    given = {"sensors": rows[None, :, :sensors], "settings": rows[None, :, sensors:], "state": state}
    outputs = ["health", *(["novelty"] if tells_novelty else []), *(["state_after"] if "state" in wanted else [])]
    results = dict(zip(outputs, session.run(outputs, {name: given[name] for name in wanted}), strict=True))
    if tells_novelty:
        far = float(results["novelty"].ravel()[-1]) > float(facts["novelty_limit"])
        machine["novel_rows"] = machine["novel_rows"] + 1 if far else 0
        machine["novel"] = machine["novel"] or machine["novel_rows"] >= 5 if life else far
    return float(results["health"].ravel()[-1]), results.get("state_after")


def window_of(machine):
    """Rows (window, columns) as the model wants them."""
    rows, time = np.array(machine["rows"]), np.array(machine["time"])
    if recipe["cycle"] == "grid":
        grid = np.linspace(0.0, end, window)
        return np.stack([np.interp(grid, time, rows[:, c]) for c in range(rows.shape[1])], axis=1)
    if recipe["cycle"] == "levels":
        at = np.append(time[time < end], end)
        seen = np.stack([np.interp(at, time, rows[:, c]) for c in range(rows.shape[1])], axis=1)
        lowest, levels = np.minimum.accumulate(seen[:, level]), np.linspace(*recipe["level_bounds"], window)
        when = np.interp(-levels, -lowest, at)
        when[levels >= lowest[0]], when[levels < lowest[-1]] = 0.0, end
        then = np.stack([np.interp(when, at, seen[:, c]) for c in range(rows.shape[1])], axis=1)
        then[:, level] = when  # the model expects times in the place of the sensor whose levels are met
        return then
    return np.concatenate([np.repeat(rows[:1], max(window - len(rows), 0), axis=0), rows[:window]])


# --- rows ------------------------------------------------------------------------------------------
class PassedOverError(Exception):
    """A row that cannot be used, and why."""


def number(name, text):
    """A cell as a finite number; NaN where it is blank."""
    if text is None:
        raise PassedOverError(f"{name} is missing: the row has too few fields")
    text = text.strip()
    if text in blanks:
        return math.nan
    plain = text.replace(table.get("thousands") or "\0", "").replace(table.get("decimal") or ".", ".")
    try:
        value = float(plain)
    except ValueError:
        raise PassedOverError(f"{name} is {text[:40]!r}, not a number") from None
    if not math.isfinite(value) or "_" in text:
        raise PassedOverError(f"{name} is {text[:40]!r}, not a finite number")
    return value


def position_of(text):
    """A position; a date is the time since 1970 in the model's measure."""
    try:
        value = number(time_column, text)
    except PassedOverError:
        if cyclic or recipe["time_measure"] not in SECONDS:
            raise
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            raise PassedOverError(f"{time_column} is {text[:40]!r}, neither a number nor a date") from None
        value = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() / SECONDS[recipe["time_measure"]]
    if math.isnan(value):
        raise PassedOverError(f"{time_column} is blank")
    return value


def is_jump(steps, step):
    return len(steps) >= ENOUGH_STEPS and step > JUMP * min(steps) and step > JUMP * statistics.median(steps)


def step_of(m, before, now):
    """Take a step of the clock; whether rows are missing before it. A jump is believed once rows go on from there."""
    step, suspect, gap = now - before, m["suspect"], False
    if is_jump(m["steps"], step):
        if suspect is None or now <= suspect or is_jump(m["steps"], now - suspect):
            m["suspect"] = now
            raise PassedOverError(f"{now:g} after {before:g} is a jump of the clock")
        step, gap = now - suspect, True
    m["suspect"], m["steps"] = None, [*m["steps"], step][-STEPS:]
    return gap


def follow(m, position, cycle):
    """Take a row's place in time as row_clock.Clock does; whether rows are missing before it."""
    gap = False
    if cyclic and m["cycle"] is not None and cycle < m["cycle"]:
        raise PassedOverError(f"cycle {cycle:g} comes after {m['cycle']:g}")
    if cyclic and cycle != m["cycle"]:
        if m["cycle"] is not None:
            step_of(m, m["cycle"], cycle)
            close(m)
        m.update(cycle=cycle, count=0, time=[], rows=[], odd=[], complete=False)
        m["known"] = np.full(len(columns), np.nan)  # blanks are the cycle's own
    elif m["last"] is not None and position <= m["last"]:
        raise PassedOverError(f"position {position:g} {'was there already' if position == m['last'] else 'comes late'}")
    elif not cyclic and m["last"] is not None:
        gap = step_of(m, m["last"], position)
    elif cyclic and not m["complete"] and m["count"] > ENOUGH_STEPS and m["last"] > 0:
        kept = m["steps"]
        m["steps"] = [m["last"] / (m["count"] - 1)] * ENOUGH_STEPS  # the cycle's mean step so far
        try:
            gap = step_of(m, m["last"], position)
        finally:
            m["steps"] = kept
    m["first"] = position if m["first"] is None else m["first"]
    m["last"], m["count"] = position, m["count"] + 1
    return gap


def close(m):
    """End a running cycle; the health of one that was not complete stands on what there is, or on the cycle before."""
    if m["rows"] and not m["complete"]:
        if recipe["cycle"] != "index" or recipe["short"] == "pad":
            answer(m, [*m["odd"], "padded" if recipe["cycle"] == "index" else "stretched"])
        m["complete"] = True


def answer(m, odd):
    """Ask the network about the rows that are known; flags and doubt are those of this moment."""
    m["health"], m["flags"], m["shown_excess"] = run(m, window_of(m))[0], flags_of(m, odd), m["excess"]


def read(machine, line):
    """Take one row of the file."""
    position = position_of(line[time_column])
    cycle = number(cycle_column, line[cycle_column]) if cyclic else 0.0
    if cyclic and cycle != math.floor(cycle):
        raise PassedOverError(f"{cycle_column} is {line[cycle_column]!r}, not a whole number")
    row = np.array([number(name, line[name]) for name in columns])
    blank = np.isnan(row)
    if (blank & refuses).any():
        raise PassedOverError(f"{columns[int(np.argmax(blank & refuses))]} is blank")
    if not cyclic or cycle == machine["cycle"]:
        row = np.where(blank & ~uses_mean, machine["known"], row)
    if np.isnan(row[sensors:]).any():
        raise PassedOverError("an operating setting is blank, and nothing is known of it yet")
    at, seen_before = condition(row[sensors:])
    row[:sensors] = np.where(np.isnan(row[:sensors]), mean[at], row[:sensors])
    with np.errstate(over="ignore"):
        if not np.isfinite(((row[:sensors] - mean[at]) / std[at]).astype(np.float32)).all():
            raise PassedOverError("a sensor overflows after scaling")
    gap = follow(machine, position, cycle)
    row = visible(machine, row, blank, at)
    odd = [*(["gap"] if gap else []), *([] if seen_before else ["unseen-condition"])]
    if life:  # the state is all that is kept of it
        new = np.full((1, int(facts["state_size"])), np.nan, dtype=np.float32)
        state = new if machine["state"] is None else np.array([machine["state"]], dtype=np.float32)
        machine["health"], after = run(machine, row[None], state)
        if np.isfinite(after).all():  # a row that no number comes of does not spoil the next
            machine["state"] = after[0].tolist()
        machine["odd"] = odd
    elif not cyclic:  # the last window is enough
        machine["rows"], machine["time"] = [*machine["rows"], row.tolist()][-window:], [*machine["time"], position]
        machine["odd"] = [*machine["odd"], odd][-window:]
        del machine["time"][:-window]
    elif not machine["complete"]:
        if end is not None:
            since = position - (machine["time"][-1] if machine["time"] else min(0.0, position))
            odd += ["gap"] if since > GAP_SHARE * end else []
        machine["rows"].append(row.tolist())
        machine["time"].append(position)
        machine["odd"] += odd
        reached = len(machine["rows"]) >= window if end is None else position >= end
        if reached or (level is not None and row[level] <= recipe["level_bounds"][1]):
            answer(machine, machine["odd"])
            machine["complete"] = True


def look(machine):
    """Health of a machine as it stands; False where there are too few rows for one."""
    if cyclic:
        close(machine)
    elif life:
        machine["flags"], machine["shown_excess"] = flags_of(machine, machine["odd"]), machine["excess"]
    elif len(machine["rows"]) >= window or (machine["rows"] and recipe["short"] == "pad"):
        first, *others = machine["odd"]  # a gap before the first row of a window is none within it
        odd = {*(name for name in first if name != "gap"), *(name for names in others for name in names)}
        answer(machine, odd | ({"padded"} if len(machine["rows"]) < window else set()))
    return machine["health"] is not None


def words(machine):
    """What is known of a machine, in a line."""
    health, flags = machine["health"], machine["flags"]
    notes = "".join(f"; {flag}: {which}" if which else f"; {flag}" for flag, which in flags.items())
    if "worn" in flags:
        health = 0.0
    if not math.isfinite(health):
        return f"cannot say: inputs overflow after scaling{notes}"
    text, top = "", math.inf if recipe["cap"] is None else recipe["cap"] - 0.5
    if calibration is not None and not {"worn", *FAULTS} & set(flags):
        stretch = min(max(machine["shown_excess"], DOUBT), 1.0) / DOUBT
        least, most = interval(health)
        if stretch != 1:
            least, most = (max(health + stretch * (bound - health), 0.0) for bound in (least, most))
        is_open = health > top or most > top or math.isinf(most)
        text = f" ({least:.6g} or more)" if is_open else f" ({least:.6g} to {most:.6g})"
    more = " or more" if health > top and "worn" not in flags else ""
    return f"{facts['target']} {health:.6g} {facts['target_measure']}{more}{text}{notes}"


# --- across calls ----------------------------------------------------------------------------------
MODEL = hashlib.sha256((facts["recipe"] + facts.get("state_digest", "")).encode()).hexdigest()
FORMAT = 2


def load(path):
    """Machines as an earlier call left them."""
    if path is None or not path.is_file():
        return {}
    damaged = SystemExit(f"{path} cannot be read: it is damaged, or no file of this script; start without it")
    try:
        checksum, _, text = path.read_text("utf-8").partition("\n")
        kept = json.loads(text)
        if checksum != hashlib.sha256(text.encode()).hexdigest() or kept["format"] != FORMAT:
            raise damaged
    except (OSError, ValueError, KeyError, TypeError):
        raise damaged from None
    if kept["model"] != MODEL:
        raise SystemExit(f"{path} belongs to another model; give another --state")
    return {
        unit: {name: np.array(value, dtype=float) if name in ARRAYS else value for name, value in machine.items()}
        for unit, machine in kept["machines"].items()
    }


def save(path, machines):
    """Keep machines for the next call, as a whole or not at all."""
    plain = {
        unit: {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in machine.items()}
        for unit, machine in machines.items()
    }
    text = json.dumps({"format": FORMAT, "model": MODEL, "machines": plain})
    temporary = path.with_name(path.name + ".part")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}")
        file.flush()
        os.fsync(file.fileno())  # a power cut must not leave an empty file under the old name
    temporary.replace(path)


def machine_of(machines, line):
    """The machine of a line, begun where there is none; a later life keeps the clock of the one before."""
    name = (line[unit_column] or "").strip()
    count = (line[life_column] or "").strip() if life_column else "1"
    if not name or not count:
        raise PassedOverError(f"{life_column if name else unit_column} is blank")
    unit = name if count == "1" else f"{name}#{count}"
    if unit not in machines:
        machines[unit] = new_machine()
        before = machines.get(name if count == "2" else f"{name}#{int(count) - 1}") if count.isdecimal() else None
        machines[unit]["origin"] = (before["last"] or 0.0) if before is not None else 0.0
    return machines[unit]


machines = load(options.state)
for name in (*options.acknowledge, *options.forget):
    if name not in machines:
        raise SystemExit(f"no machine {name} in {options.state}; there are: {', '.join(machines) or 'none'}")
for name in options.acknowledge:
    acknowledge(machines[name])
for name in options.forget:
    del machines[name]
refusals = []
try:
    with Path(options.rows).open(newline="", encoding=table.get("encoding") or "utf-8-sig") as file:
        reader = csv.DictReader(file, delimiter=table.get("separator") or ",")
        asked = [unit_column, time_column, *filter(None, (cycle_column, life_column)), *columns]
        absent = [name for name in asked if name not in (reader.fieldnames or ())]
        if absent:
            there = ", ".join(reader.fieldnames or ()) or "none"
            raise SystemExit(f"{options.rows} has no column '{absent[0]}'; there are: {there}")
        for line in reader:
            try:
                read(machine_of(machines, line), line)
            except PassedOverError as reason:
                refusals.append(f"line {reader.line_num}: {reason}")
except (OSError, UnicodeError, csv.Error) as error:
    raise SystemExit(f"{options.rows}: {error}") from None
if refusals:
    print(f"{len(refusals)} rows passed over, the first: {refusals[0]}", file=sys.stderr)
running = {name: dict(machine) for name, machine in machines.items()}  # a cycle may go on in the next call
for name, machine in running.items():
    if look(machine):
        print(f"{name}: {words(machine)}")
    elif cyclic:
        print(f"{name}: cannot say: the cycle has {len(machine['rows'])} of {window} samples")
    else:
        print(f"{name}: {len(machine['rows'])} of {window} rows, more are needed")
if options.state is not None:
    save(options.state, machines)
