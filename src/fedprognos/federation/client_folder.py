"""A client's own folder: its ledger, its log, its personal heads. Nothing here is ever sent."""

from __future__ import annotations

import contextlib
import json
import re
import traceback
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from fedprognos.errors import DataNotFoundError, MessageError
from fedprognos.federation.codec import LedgerLine
from fedprognos.files import parse_json, replacing
from fedprognos.networks import KEPT_OUT

LEDGER, LOG = "ledger.jsonl", "errors.jsonl"


class ClientFolder:
    """What a client keeps on its own disk.

    Parameters
    ----------
    folder
        Made when first written to.
    bundle
        A model the owner trained earlier, to federate instead of training anew.
    """

    def __init__(self, folder: Path, bundle: Path | None = None) -> None:
        self.folder, self.bundle = folder, bundle
        self.heads = folder / "heads"
        """Where personal heads are kept."""

    def record(self, line: LedgerLine) -> None:
        """Note a message that is about to leave."""
        self._append(LEDGER, json.dumps(asdict(line)))

    def log_error(self, error: BaseException) -> None:
        """Keep the full text of an error. Peers learn only its kind."""
        self._append(LOG, json.dumps({"error": str(error), "trace": "".join(traceback.format_exception(error))}))

    def last_error(self) -> str | None:
        """Full text of the latest error, for the owner's eyes."""
        path = self.folder / LOG
        if not path.is_file():
            return None
        with contextlib.suppress(ValueError, KeyError, TypeError, IndexError):  # a power cut may leave half a line
            return str(parse_json(path.read_text("utf-8").splitlines()[-1])["error"])
        return None

    def _append(self, name: str, text: str) -> None:
        if not self.folder.is_dir():
            self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / name).open("a", encoding="utf-8") as file:
            file.write(text + "\n")

    def ledger(self) -> list[LedgerLine]:
        """Every message that left so far."""
        path = self.folder / LEDGER
        if not path.is_file():
            return []
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        return [
            LedgerLine(raw["kind"], raw["bytes"], {k: tuple(v) for k, v in raw["tensors"].items()}) for raw in lines
        ]

    def save_head(self, name: str, head: NDArray[np.float64], kept_out: NDArray[np.float64] | None = None) -> None:
        """Keep a personal head, and what it says of machines that it was not fitted to (3, N), where there are such."""
        with replacing(self._head_path(name)) as temporary:
            tensors = {"head": head} if kept_out is None else {"head": head, KEPT_OUT: np.ascontiguousarray(kept_out)}
            save_file(tensors, temporary)

    def load_head(self, name: str) -> NDArray[np.float64]:
        """A personal head made earlier."""
        path = self._head_path(name)
        if not path.is_file():
            raise DataNotFoundError("no such personal head", where=str(path))
        head: NDArray[np.float64] = load_file(path)["head"]
        return head

    def load_kept_out(self, name: str) -> NDArray[np.float64] | None:
        """Predictions, labels and units (3, N) that the head of this name was not fitted to; None for none."""
        path = self._head_path(name)
        return load_file(path).get(KEPT_OUT) if path.is_file() else None

    def _head_path(self, name: str) -> Path:
        if not re.fullmatch("[0-9a-f]{32}", name):  # names come from elsewhere: none may leave the folder
            raise MessageError("not the name of a personal head")
        return self.heads / f"{name}.safetensors"
