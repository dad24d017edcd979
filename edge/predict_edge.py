"""Health of machines from a CSV file with nothing but NumPy and ONNX Runtime.

    python predict_edge.py model.onnx rows.csv [--unit machine] [--time cycle] [--cycle cycle]

`model.onnx` comes from `fedprognos export BUNDLE --onnx model.onnx`. Columns are called as in training and the rows of
a machine are in order. A series model looks at a machine's last rows, a cyclic one (--cycle) at its last cycle.
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

machines = {}
with Path(options.rows).open(newline="", encoding="utf-8") as file:
    for row in csv.DictReader(file):
        machine = machines.setdefault(row[options.unit], {"cycle": None, "time": [], "rows": []})
        if options.cycle and machine["cycle"] != row[options.cycle]:  # a new cycle begins
            machine.update(cycle=row[options.cycle], time=[], rows=[])
        machine["time"].append(float(row.get(options.time) or 0))
        machine["rows"].append([float(row[name]) for name in columns])
        if recipe["cycle"] is None:  # a series: the last window is enough
            del machine["rows"][:-window], machine["time"][:-window]


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


for name, machine in machines.items():
    rows = window_of(machine)
    if rows is None:
        print(f"{name}: {len(machine['rows'])} of {window} rows, more are needed")
        continue
    inputs = {"sensors": rows[None, :, :sensors], "settings": rows[None, :, sensors:]}
    wanted = {i.name: inputs[i.name] for i in session.get_inputs()}
    print(f"{name}: {facts['target']} {session.run(['health'], wanted)[0][0]:.6g} {facts['target_unit']}")
