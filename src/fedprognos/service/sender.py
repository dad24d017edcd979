"""Sends rows of files to a running service.

The service is asked first how far each unit has got, so that repeating a broken send is safe.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import requests
from pydantic import ValidationError

from fedprognos.errors import ConfigError, DataError, OutputError
from fedprognos.prognosis import ModelInputs, Verdict, read_pieces
from fedprognos.service.row_readers import new_rows
from fedprognos.tables import TableLayout

ROWS = 1000
"""Rows in a request."""
PAGE = 1000
NOWHERE = (-math.inf, -math.inf)
TIMEOUT_IN_S = 60.0
FIRST_ANSWER_IN_S = 4.0
"""How long to wait for a service that has never answered: the address may be wrong."""
LONGEST_PAUSE_IN_S = 30.0


@dataclass
class Sent:
    """What became of the rows.

    Parameters
    ----------
    already_stored
        Rows that the service had, or whose unit had later rows there.
    first_refusal
        Place of the first refused row, and the reason.
    """

    rows: int = 0
    accepted: int = 0
    already_stored: int = 0
    refused: int = 0
    first_refusal: str = ""


class Link:
    """A connection to a service; it retries while the service is busy or unreachable.

    Parameters
    ----------
    patience_in_s
        How long to try again before giving up, once the service has answered.
    """

    def __init__(self, url: str, token: str | None = None, patience_in_s: float = 60.0) -> None:
        self._url = url.rstrip("/")
        self._patience_in_s = patience_in_s
        self._answered = False
        self._session = requests.Session()
        if token is not None:
            self._session.headers["Authorization"] = f"Bearer {token}"

    def inputs(self) -> ModelInputs:
        """The columns that the service needs in a row."""
        answer = self._ask("GET", "/v1/fleet")
        try:
            layout = answer["table"]
            return ModelInputs(
                tuple(answer["sensors"]),
                tuple(answer["settings"]),
                answer["cyclic"],
                answer["time_measure"],
                tuple(answer["policies"]),
                None if layout is None else TableLayout.model_validate(layout),
            )
        except (KeyError, TypeError, ValidationError):
            raise DataError("this is not a fedprognos service", where=self._url) from None

    def reached(self) -> dict[str, tuple[float, float]]:
        """Latest cycle (0 for units without cycles) and position of each unit at the service."""
        places: dict[str, tuple[float, float]] = {}
        cursor = ""
        while True:
            answer = self._ask("GET", f"/v1/units?limit={PAGE}&sort=unit&cursor={cursor}")
            for status in answer["units"]:
                place = (status["cycle"] or 0, status["position"])
                places[status["unit"]] = places[status["machine"]] = place  # rows may name the machine or its life
            cursor = answer["next"]
            if cursor is None:
                return places

    def post(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Send rows; the result of each."""
        results: list[dict[str, Any]] = self._ask("POST", "/v1/rows", json=list(rows))["results"]
        return results

    def post_events(self, events: str) -> dict[str, Any]:
        """Send a CSV text of maintenance events; what became of them."""
        headers = {"content-type": "text/csv; charset=utf-8"}
        answer: dict[str, Any] = self._ask("POST", "/v1/maintenance", data=events.encode(), headers=headers)
        return answer

    def _ask(self, method: str, path: str, **more: Any) -> Any:
        started, pause = time.monotonic(), 0.5
        while True:
            try:
                read_in_s = TIMEOUT_IN_S if self._answered else FIRST_ANSWER_IN_S
                answer = self._session.request(method, self._url + path, timeout=(FIRST_ANSWER_IN_S, read_in_s), **more)
                self._answered = True
                problem, wait = answer.reason, float(answer.headers.get("retry-after", 0) or 0)
                if answer.status_code not in (429, 503):
                    return self._read(answer)
            except requests.ConnectionError:
                problem, wait = "no answer", 0.0
            except requests.RequestException as error:
                raise OutputError(f"cannot send: {error}", where=self._url, hint="check the address") from None
            patience_in_s = self._patience_in_s if self._answered else FIRST_ANSWER_IN_S
            if time.monotonic() + max(wait, pause) > started + patience_in_s:
                hint = "is it running there? Sending again does no harm"
                raise OutputError(f"the service takes no rows: {problem}", where=self._url, hint=hint)
            time.sleep(min(max(wait, pause), LONGEST_PAUSE_IN_S))
            pause = min(2 * pause, LONGEST_PAUSE_IN_S)

    def _read(self, answer: requests.Response) -> Any:
        if answer.status_code == 401:
            raise ConfigError("the service asks for a token", where=self._url, hint="give --token-file FILE")
        try:
            body = answer.json()
        except ValueError:
            hint = "give the address that fedprognos serve shows when it starts"
            raise DataError(f"not a fedprognos service ({answer.status_code})", where=self._url, hint=hint) from None
        if answer.status_code not in (200, 409, 422) or not isinstance(body, dict) or "detail" in body:
            detail = body.get("detail", answer.reason) if isinstance(body, dict) else answer.reason
            raise OutputError(f"the service refused: {detail}", where=self._url)
        return body


def send_files(
    link: Link,
    source: str | Path | Sequence[str | Path],
    *,
    unit: str | None = None,
    time: str | None = None,
    cycle: str | None = None,
    progress: Callable[[float], None] | None = None,
) -> Sent:
    """Send the rows of files to a service, in their order; parameters as for `fedprognos predict`."""
    inputs, reached = link.inputs(), link.reached()
    tables = inputs.open(source)
    reader, sent = inputs.reader(tables, unit, time, cycle), Sent()
    for rows, share in read_pieces(reader, tables, ROWS):
        new = new_rows(rows, inputs, lambda name: reached.get(name, NOWHERE))
        sent.rows += len(rows)
        sent.already_stored += len(rows) - len(new)
        results = link.post([asdict(row) for _, row in new]) if new else []
        for (n, _), result in zip(new, results, strict=True):
            verdict = Verdict(result["result"])
            if verdict is Verdict.ACCEPTED:
                sent.accepted += 1
            elif verdict in (Verdict.DUPLICATE, Verdict.LATE):
                sent.already_stored += 1
            else:
                sent.refused += 1
                sent.first_refusal = sent.first_refusal or f"{rows.at(n)}: {result['reason']}"
        if progress is not None:
            progress(share)
    return sent
