"""Which presets make up the results, and where everything lies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LIFE = ("turbofan-life", "turbofan-literature", "turbofan-fd001-literature", "turbofan-reservoir")
"""Presets that read whole lives."""
PRESETS = ("battery-paper", "battery-tuned", "turbofan-paper", "turbofan-tuned", "battery-linear", *LIFE)
REMARKS = "remarks.md"
TIMES = ".times.json"
"""How the file ends that has the times of a preset's runs."""


@dataclass(frozen=True)
class Places:
    """Folders of one set of results.

    Parameters
    ----------
    out
        Holds `results.md`, and in `results/` the tables behind it, the JSON files and pictures.
    runs
        Run folders, one a preset: what was interrupted goes on there.
    """

    out: Path
    runs: Path
    presets: tuple[str, ...]

    @property
    def page(self) -> Path:
        return self.out / "results.md"

    @property
    def tables(self) -> Path:
        return self.folder / "tables.md"

    @property
    def folder(self) -> Path:
        return self.out / "results"

    def json(self, preset: str) -> Path:
        """The results of a preset: equal runs give equal bytes."""
        return self.folder / f"{preset}.json"

    def times(self, preset: str) -> Path:
        """What differs from run to run: times and the machine."""
        return self.folder / f"{preset}{TIMES}"


COMMITTED = Places(Path("docs"), Path("build/results"), PRESETS)
"""Where the committed results lie."""
