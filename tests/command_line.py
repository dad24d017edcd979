"""Commands of the command line, run in this process: a new one takes seconds to load torch."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from fedprognos.cli import main


@dataclass(frozen=True)
class Finished:
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


def fedprognos(*arguments: object, cwd: Path | None = None) -> Finished:
    """Run `fedprognos ARGUMENTS` in a folder, through the entry point that the installed command has."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    here = contextlib.chdir(cwd or Path.cwd())
    plain = mock.patch.dict(os.environ, {"COLUMNS": "80", "NO_COLOR": "1"})
    given = mock.patch.object(sys, "argv", ["fedprognos", *map(str, arguments)])
    with here, plain, given, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return Finished(code, out.getvalue(), err.getvalue())
