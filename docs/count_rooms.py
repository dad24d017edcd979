"""Counts files and lines of every room, and writes them into the table of rooms in CONTRIBUTING.md: `make rooms`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOUSE, PAGE = ROOT / "src" / "fedprognos", ROOT / "CONTRIBUTING.md"
ROW = re.compile(r"^\| (`(\w+)/`|front door|all) \| [\d,]+ \| [\d,]+ \|", re.MULTILINE)


def counted(page: str) -> str:
    """The page with the numbers of today; a room without a row raises."""
    rooms = {folder.name for folder in HOUSE.iterdir() if (folder / "__init__.py").is_file()} - {"presets"}
    rooms |= {"front door", "all"}
    rows = {row[2] or row[1] for row in ROW.finditer(page)}
    if rows != rooms:
        raise SystemExit(f"the table of rooms and the folders differ: {sorted(rows ^ rooms)}")
    return ROW.sub(lambda row: f"| {row[1]} | {_numbers(row[2] or row[1])} |", page)


def _numbers(room: str) -> str:
    files: Iterable[Path] = HOUSE.rglob("*.py")
    if room == "front door":
        files = HOUSE.glob("*.py")
    elif room != "all":
        files = (HOUSE / room).rglob("*.py")
    lines = [len(file.read_text("utf-8").splitlines()) for file in files]
    return f"{len(lines):,} | {sum(lines):,}"


if __name__ == "__main__":
    PAGE.write_text(counted(PAGE.read_text("utf-8")), "utf-8")
