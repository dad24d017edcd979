"""How long rows wait while a backup is written: one row at a time, beside a state of many rows, SQLite on disk.

Prints the waits without and with a backup, how long the backup took, and its size.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from fedprognos.fleet.synthetic import synthetic_engines
from fedprognos.prognosis import Predictor, Row
from fedprognos.service import DurableStream
from fedprognos.service.backups import write_backup
from service import bundle_of

ROWS_AT_ONCE = 2000


def waits_in_ms(stream: DurableStream, rows: list[Row], stop: threading.Event | None) -> np.ndarray:
    """How long each row took until it was on disk; until all are taken, or until `stop`."""
    waits = []
    for row in rows:
        if stop is not None and stop.is_set():
            break
        started = time.perf_counter()
        stream.take([row])
        waits.append(1000 * (time.perf_counter() - started))
    return np.array(waits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000, help="rows in the state")
    parser.add_argument("--units", type=int, default=1000)
    options = parser.parse_args()
    fleet = synthetic_engines(sites=1, units_per_site=4, seed=0)[0]
    bundle = bundle_of(fleet, 64)
    places, _ = bundle.recipe.check(fleet.schema, "benchmark")
    values = fleet.units[0].sensors[:, places].tolist()

    def rows_from(first: int, count: int) -> list[Row]:
        return [
            Row(
                f"engine-{k % options.units}",
                k // options.units + 1,
                dict(zip(bundle.recipe.sensors, values[k // options.units % len(values)], strict=True)),
            )
            for k in range(first, first + count)
        ]

    with tempfile.TemporaryDirectory() as folder:
        stream = DurableStream(Predictor.from_bundle(bundle), Path(folder) / "state", keep_rows=options.rows)
        for first in range(0, options.rows, ROWS_AT_ONCE):
            stream.take(rows_from(first, ROWS_AT_ONCE))
        waits = {"alone": waits_in_ms(stream, rows_from(options.rows, 1000), None)}
        finished, spent = threading.Event(), []

        def back_up() -> None:
            started = time.perf_counter()
            path = write_backup(stream, Path(folder) / "backups", 1, lambda: False)
            spent.extend((time.perf_counter() - started, path.stat().st_size / 1e6))
            finished.set()

        threading.Thread(target=back_up).start()
        waits["backup"] = waits_in_ms(stream, rows_from(options.rows + 1000, 100_000), finished)
        for name, times in waits.items():
            p50, p99 = np.percentile(times, [50, 99])
            print(
                f"{name:6} {len(times):6} rows   p50 {p50:5.1f} ms   p99 {p99:6.1f} ms   longest {times.max():6.1f} ms"
            )
        print(f"the backup of {spent[1]:.0f} MB took {spent[0]:.1f} s")
        stream.store.close()


if __name__ == "__main__":
    main()
