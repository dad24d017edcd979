"""Make the picture of a report that README shows: run the demo, write its report, photograph the first screen.

make pictures

A folder of a finished demo may be given instead of running it again.
Beside the picture stands what it was made from, so that a test can tell when it is out of date.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path

PICTURE = Path(__file__).parent / "pictures" / "report.png"
SOURCES = {
    "fedprognos.report": ("template.html", "style.css", "report_page.js"),
    "fedprognos.presets": ("demo.toml",),
}
SIZE = (1400, 1000)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --virtual-time-budget=20000"
)


def made_from() -> dict[str, str]:
    """Digests of the files that decide what the picture shows."""
    files = [(package, name) for package, names in SOURCES.items() for name in names]
    digests = [hashlib.sha256((resources.files(package) / name).read_bytes()).hexdigest() for package, name in files]
    return {f"{package}/{name}": digest for (package, name), digest in zip(files, digests, strict=True)}


def main() -> None:
    """Run, write, photograph."""
    from fedprognos.experiment.experiment_run import run
    from fedprognos.report import write_report

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("chromium is not installed")
    with tempfile.TemporaryDirectory() as folder:
        report = write_report(sys.argv[1] if len(sys.argv) > 1 else run("demo", out=Path(folder) / "demo").folder)
        where = [f"--user-data-dir={folder}/profile", f"--screenshot={PICTURE}", f"--window-size={SIZE[0]},{SIZE[1]}"]
        subprocess.run([chromium, *FLAGS.split(), *where, report.resolve().as_uri()], check=True, capture_output=True)  # noqa: S603
    PICTURE.with_suffix(".json").write_text(json.dumps(made_from(), indent=1) + "\n", "utf-8")
    print(PICTURE)


if __name__ == "__main__":
    main()
