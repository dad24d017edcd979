"""Health of machines from a CSV file with nothing but NumPy and ONNX Runtime.

    python predict_edge.py model.onnx rows.csv [--unit machine] [--time cycle] [--cycle cycle]

`model.onnx` comes from `fedprognos export BUNDLE --onnx model.onnx`. Columns are called as in training and the rows of
a machine are in order. A model of whole lives reads row after row and keeps a state for each machine; one of windows
looks at a machine's last rows, a cyclic one (--cycle) at its last cycle.
"""
# ruff: noqa: T201

import argparse
import csv
import json
from pathlib import Path

import numpy as np
import onnxruntime

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("rows")
parser.add_argument("--unit", default="unit")
parser.add_argument("--time", default="time")
parser.add_argument("--cycle")
options = parser.parse_args()

threads = onnxruntime.SessionOptions()
threads.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(options.model, threads, providers=["CPUExecutionProvider"])
facts = session.get_modelmeta().custom_metadata_map
recipe = json.loads(facts["recipe"])
columns = recipe["sensors"] + recipe["settings"]
sensors, window = len(recipe["sensors"]), recipe["window"]
wanted = [one.name for one in session.get_inputs()]


def run(outputs, rows, state=None):
    """Outputs of the model for rows (T, columns) of one machine."""
    given = {"sensors": rows[None, :, :sensors], "settings": rows[None, :, sensors:], "state": state}
    return session.run(outputs, {name: given[name] for name in wanted})


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
        low, levels = np.minimum.accumulate(seen[:, level]), np.linspace(*recipe["level_bounds"], window)
        when = np.interp(-levels, -low, at)
        when[levels >= low[0]], when[levels < low[-1]] = 0.0, end
        then = np.stack([np.interp(when, at, seen[:, c]) for c in range(rows.shape[1])], axis=1)
        then[:, level] = when  # the model expects times in the place of the sensor whose levels are met
        return then
    missing = window - len(rows)
    if missing > 0 and recipe["short"] == "exclude":
        return None
    return np.concatenate([np.repeat(rows[:1], max(missing, 0), axis=0), rows[:window]])


machines = {}
with Path(options.rows).open(newline="", encoding="utf-8") as file:
    for row in csv.DictReader(file):
        machine = machines.setdefault(row[options.unit], {"cycle": None, "time": [], "rows": []})
        numbers = [float(row[name]) for name in columns]
        if "state" in wanted:  # a whole life: the state is all that is kept of it
            new = np.full((1, int(facts["state_size"])), np.nan, dtype=np.float32)
            state = machine.get("state", new)
            machine["health"], machine["state"] = run(["health", "state_after"], np.array([numbers]), state)
            continue
        if options.cycle and machine["cycle"] != row[options.cycle]:  # a new cycle begins
            machine.update(cycle=row[options.cycle], time=[], rows=[])
        machine["time"].append(float(row.get(options.time) or 0))
        machine["rows"].append(numbers)
        if recipe["cycle"] is None:  # a series: the last window is enough
            del machine["rows"][:-window], machine["time"][:-window]

for name, machine in machines.items():
    rows = None if "health" in machine else window_of(machine)
    if "health" not in machine and rows is None:
        print(f"{name}: {len(machine['rows'])} of {window} rows, more are needed")
        continue
    health = machine["health"][0] if rows is None else run(["health"], rows)[0]
    print(f"{name}: {facts['target']} {health[-1]:.6g} {facts['target_measure']}")
