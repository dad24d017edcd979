"""Feed damaged things to what reads them: `python tests/fuzz --cases 2000`, or `make fuzz CASES=2000`.

Each line says what was fed, how often it was refused in words (the rest did no harm), the time it took, and by how much
memory grew. The first traceback, hang or leap of memory ends it with an error.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
for place in (
    HERE,
    HERE.parent,
    *(HERE.parent / name for name in ("federation", "deployment", "prognosis", "report", "service")),
):
    sys.path.insert(0, str(place))

from feeds import MAKERS, NAMES, check, requests_over_http  # noqa: E402
from mutations import peak_in_mb  # noqa: E402
from services import running, small_bundle  # noqa: E402

from small_fleets import series_fleet  # noqa: E402

OVER_HTTP = "requests over HTTP"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=2000, help="how many, over all kinds")
    parser.add_argument("--first", type=int, default=0, help="number of the first case of each kind")
    wanted = parser.parse_args()
    each = -(-wanted.cases // (len(NAMES) + 1))
    cases, done = range(wanted.first, wanted.first + each), 0
    with tempfile.TemporaryDirectory() as folder, running(small_bundle(series_fleet([28, 14]))) as client:
        feeds = {OVER_HTTP: requests_over_http(Path(folder), client)}
        for maker in MAKERS:
            place = Path(folder) / maker.__name__
            place.mkdir()
            feeds |= maker(place)
        for name, feed in feeds.items():
            begun, before, refused = time.process_time(), peak_in_mb(), 0
            for at in range(cases.start, cases.stop, 20):
                refused += check(name, feed, range(at, min(at + 20, cases.stop)))
            done += each
            spent, grown = time.process_time() - begun, peak_in_mb() - before
            sys.stdout.write(f"{name}: {each} cases, {refused} refused, {spent:.1f} s, memory grew by {grown:.0f} MB\n")
            sys.stdout.flush()
        assert client.get("/readyz").status_code == 200
    sys.stdout.write(f"{done} cases: no traceback, no hang, no memory blow-up\n")


if __name__ == "__main__":
    main()
