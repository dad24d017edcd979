"""Health of machines from a CSV file with nothing but NumPy and ONNX Runtime.

    python predict_edge.py model.onnx rows.csv [--unit machine] [--time cycle] [--cycle cycle] [--state edge.json]

`model.onnx` comes from `fedprognos export BUNDLE --onnx model.onnx`. Columns are called as in training and the rows of
a machine are in order. A model of whole lives reads row after row and keeps a state for each machine; one of windows
looks at a machine's last rows, a cyclic one (--cycle) at its last cycle.

Blank cells and impossible values are held as `fedprognos predict` holds them; flags and intervals are its own. With
--state, machines go on where the last call left them, and rows that were read before are passed over. Faults stay until
--acknowledge MACHINE; what is still broken is flagged again.

With --trust, keys of that file must have signed the model (`fedprognos sign model.onnx --key KEY`). Checking needs the
package `cryptography`.
"""
# ruff: noqa: T201

import argparse
import csv
import hashlib
import json
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import onnxruntime

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("rows")
parser.add_argument("--unit", default="unit")
parser.add_argument("--time", default="time")
parser.add_argument("--cycle")
parser.add_argument("--state", type=Path, help="file that keeps what is known of each machine")
parser.add_argument("--acknowledge", nargs="+", default=[], help="machines whose faults somebody has looked at")
parser.add_argument("--coverage", type=float, default=0.9, help="share of true values that intervals should hold")
parser.add_argument("--trust", type=Path, help="keys that must have signed the model (TOML)")
options = parser.parse_args()


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


content = Path(options.model).read_bytes()
if options.trust is not None:
    check_signatures(content, options.model, tomllib.loads(options.trust.read_text("utf-8")))

threads = onnxruntime.SessionOptions()
threads.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(content, threads, providers=["CPUExecutionProvider"])
facts = session.get_modelmeta().custom_metadata_map
recipe = json.loads(facts["recipe"])
table = json.loads(facts.get("table") or "{}")
calibration = json.loads(facts.get("calibration") or "null")
columns = recipe["sensors"] + recipe["settings"]
sensors, window, cyclic = len(recipe["sensors"]), recipe["window"], recipe["cycle"] is not None
wanted = [given.name for given in session.get_inputs()]
tells_novelty = "novelty" in [output.name for output in session.get_outputs()]
mean, std = np.array(recipe["mean"]), np.array(recipe["std"])
keys = np.array(recipe["condition_keys"], dtype=float).reshape(len(mean), -1)
missing = table.get("missing", "hold")
uses_mean = np.array([(missing if isinstance(missing, str) else missing.get(c, "hold")) == "mean" for c in columns])
# The texts that fedprognos.tables counts as blank, and those that the training table named.
BLANKS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"),
    *("NULL", "NaN", "None", "n/a", "nan", "null", "-", "--", "?", "#VALUE!", "#DIV/0!", "#REF!", "#NUM!"),
)
blanks = {*BLANKS, *(text.strip() for text in table.get("blanks", ()))}

# --- sensors: the limits of fedprognos.prognosis.sensor_faults -----------------------------------
SETTLED, SMOOTHING, FAR = 10, 0.1, 10.0
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
span = 20 if recipe["life"] else window
ARRAYS = ("known", "raw", "still", "blank", "level", "motion", "seen", "good", "far", "held", "latched")


def new_machine():
    """What is remembered of a machine: its sensors as in SensorWatch, its rows or its state."""
    watch = {name: np.zeros(sensors) for name in ARRAYS}
    watch |= {"known": np.full(len(columns), np.nan), "raw": np.full(sensors, np.nan), "far": np.full(sensors, 1e9)}
    rest = {"cycle": None, "last": None, "time": [], "rows": [], "state": None, "health": None}
    return {**watch, **rest, "novel_rows": 0, "novel": False, "excess": 0.0}


def acknowledge(machine):
    """Drop faults after somebody has looked, as SensorWatch.acknowledge and NoveltyWatch.acknowledge do."""
    for name in ("still", "blank", "seen", "latched", "held"):
        machine[name] = np.zeros(sensors)
    machine.update(far=np.full(sensors, 1e9), novel_rows=0, novel=False)


def condition(settings):
    """Which operating condition a row is in; the nearest known one where it is none of them."""
    names = list(recipe["conditions"])
    if not names:
        return 0
    at = [round(settings[recipe["settings"].index(name)], recipe["conditions"][name]) for name in names]
    width = np.ptp(keys, axis=0)
    return int((((keys - np.array(at)) / np.where(width > 0, width, 1.0)) ** 2).sum(axis=1).argmin())


def smoothed(before, now, count):
    return before + np.maximum(SMOOTHING, 1 / np.maximum(count, 1)) * (now - before)


def visible(machine, numbers):
    """A row (columns,) as the network may see it: blanks filled, impossible values held; the watch goes on."""
    row, blank = np.array(numbers), np.isnan(numbers)
    row = np.where(blank & ~uses_mean, machine["known"], row)
    if np.isnan(row[sensors:]).any():
        return None  # an operating setting that was never known
    at = condition(row[sensors:])
    row[:sensors] = np.where(np.isnan(row[:sensors]), mean[at], row[:sensors])
    if cyclic:
        machine["known"] = np.where(blank, machine["known"], row)
        return row
    m, empty, value = machine, blank[:sensors], row[:sensors].copy()
    deviation = (value - mean[at]) / std[at]
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
    m["known"] = np.where(blank | np.append(impossible, np.zeros(len(row) - sensors, bool)), m["known"], row)
    return row


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


def flags_of(m):
    """Flags under which a value has no interval, with the sensors that raise them."""
    latched = m["latched"].astype(int)
    found = {
        "out-of-range": (m["far"] < span) | (latched & 1 > 0),
        "drift": (latched & 2 > 0) | ((latched & 8 > 0) & ((latched & 8 > 0).sum() < 3)),
        "stuck": latched & 4 > 0,
        "missing": m["blank"] > still_limit,
        "unknown-wear": (latched & 8 > 0) & ((latched & 8 > 0).sum() >= 3),
    }
    names = np.array(recipe["sensors"])
    flags = {flag: ", ".join(names[which]) for flag, which in found.items() if which.any() and not cyclic}
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
        machine["novel"] = machine["novel"] or machine["novel_rows"] >= 5
    return float(results["health"].ravel()[-1]), results.get("state_after")


def window_of(machine):
    """Rows (window, columns) as the model wants them, None where there are too few."""
    rows, time = np.array(machine["rows"]), np.array(machine["time"])
    if recipe["cycle"] == "grid":
        grid = np.linspace(0.0, recipe["grid_end_in_s"], window)
        return np.stack([np.interp(grid, time, rows[:, c]) for c in range(rows.shape[1])], axis=1)
    if recipe["cycle"] == "levels":
        level, end = recipe["sensors"].index(recipe["levels"]), recipe["grid_end_in_s"]
        at = np.append(time[time < end], end)
        seen = np.stack([np.interp(at, time, rows[:, c]) for c in range(rows.shape[1])], axis=1)
        lowest, levels = np.minimum.accumulate(seen[:, level]), np.linspace(*recipe["level_bounds"], window)
        when = np.interp(-levels, -lowest, at)
        when[levels >= lowest[0]], when[levels < lowest[-1]] = 0.0, end
        then = np.stack([np.interp(when, at, seen[:, c]) for c in range(rows.shape[1])], axis=1)
        then[:, level] = when  # the model expects times in the place of the sensor whose levels are met
        return then
    missing_rows = window - len(rows)
    if missing_rows > 0 and recipe["short"] == "exclude":
        return None
    return np.concatenate([np.repeat(rows[:1], max(missing_rows, 0), axis=0), rows[:window]])


def read(machine, row):
    """Take one row of the file."""
    time = float(row.get(options.time) or 0)
    place = [float(row[options.cycle]) if options.cycle else 0.0, time]
    if options.state is not None and machine["last"] is not None and place <= machine["last"]:
        return  # read by an earlier call
    if options.cycle and machine["cycle"] != row[options.cycle]:  # a new cycle begins, and blanks are its own
        machine.update(cycle=row[options.cycle], time=[], rows=[], known=np.full(len(columns), np.nan))
    machine["last"] = place
    seen = visible(machine, [np.nan if row[name].strip() in blanks else float(row[name]) for name in columns])
    if seen is None:
        return
    if "state" in wanted:  # a whole life: the state is all that is kept of it
        new = np.full((1, int(facts["state_size"])), np.nan, dtype=np.float32)
        state = new if machine["state"] is None else np.array([machine["state"]], dtype=np.float32)
        machine["health"], after = run(machine, seen[None], state)
        machine["state"] = after[0].tolist()
        return
    machine["time"].append(time)
    machine["rows"].append(seen.tolist())
    if not cyclic:  # a series: the last window is enough
        del machine["rows"][:-window], machine["time"][:-window]


def load(path):
    """Machines as an earlier call left them."""
    if path is None or not path.is_file():
        return {}
    kept = json.loads(path.read_text("utf-8"))
    if kept["recipe"] != facts["recipe"]:
        raise SystemExit(f"{path} belongs to another model; give another --state")
    arrays = set(ARRAYS)
    return {
        unit: {name: np.array(value, dtype=float) if name in arrays else value for name, value in machine.items()}
        for unit, machine in kept["machines"].items()
    }


def save(path, machines):
    """Keep machines for the next call, as a whole or not at all."""
    plain = {
        unit: {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in machine.items()}
        for unit, machine in machines.items()
    }
    temporary = path.with_name(path.name + ".part")
    temporary.write_text(json.dumps({"recipe": facts["recipe"], "machines": plain}), "utf-8")
    temporary.replace(path)


machines = load(options.state)
for name in options.acknowledge:
    if name not in machines:
        raise SystemExit(f"no machine {name} in {options.state}; there are: {', '.join(machines) or 'none'}")
    acknowledge(machines[name])
with Path(options.rows).open(newline="", encoding="utf-8") as file:
    for line in csv.DictReader(file):
        read(machines.setdefault(line[options.unit], new_machine()), line)
for name, machine in machines.items():
    rows = None if machine["health"] is not None or not machine["rows"] else window_of(machine)
    if machine["health"] is None and rows is None:
        print(f"{name}: {len(machine['rows'])} of {window} rows, more are needed")
        continue
    health = machine["health"] if rows is None else run(machine, rows)[0]
    flags, text = flags_of(machine), ""
    at_cap = recipe["cap"] is not None and health > recipe["cap"] - 0.5
    if calibration is not None and not flags:
        stretch = min(max(machine["excess"] / 0.5, 1.0), 2.0)
        least, most = (max(health + stretch * (bound - health), 0.0) for bound in interval(health))
        is_open = at_cap or np.isinf(most) or (recipe["cap"] is not None and most > recipe["cap"] - 0.5)
        text = f" ({least:.6g} or more)" if is_open else f" ({least:.6g} to {most:.6g})"
    notes = "".join(f"; {flag}: {which}" for flag, which in flags.items())
    more = " or more" if at_cap else ""
    print(f"{name}: {facts['target']} {health:.6g} {facts['target_measure']}{more}{text}{notes}")
if options.state is not None:
    save(options.state, machines)
