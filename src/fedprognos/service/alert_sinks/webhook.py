"""Alerts by HTTP: one POST of JSON for each alert; its id is in the body and in the header `Idempotency-Key`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import requests
from pydantic import Field

from fedprognos.service.alert_sinks import AlertSink, RefusedError, Send, SinkOptions, sinks
from fedprognos.service.alerts import Alert
from fedprognos.service.plant_entry import read_secret

TIMEOUT_IN_S = 10.0
WORTH_ANOTHER_TRY = frozenset({401, 403, 404, 408, 425, 429})
"""Answers below 500 that somebody can mend at the receiver; other ones mean that it never takes this alert."""


class WebhookOptions(SinkOptions):
    """Its keys in `[[alerts.sinks]]`."""

    kind: Literal["webhook"] = "webhook"
    url: Annotated[str, Field(pattern=r"^https?://[^\s]+$")]
    token_file: Path | None = None
    """Sent as `Authorization: Bearer`."""


def open_webhook(options: WebhookOptions) -> Send:
    """A function that posts alerts."""
    headers = {"content-type": "application/json", "user-agent": "fedprognos"}
    if options.token_file is not None:
        headers["authorization"] = f"Bearer {read_secret(options.token_file)}"

    def post(alert: Alert) -> None:
        answer = requests.post(
            options.url,
            alert.payload,
            headers={**headers, "idempotency-key": alert.id},
            timeout=TIMEOUT_IN_S,
            allow_redirects=False,
        )
        if 400 <= answer.status_code < 500 and answer.status_code not in WORTH_ANOTHER_TRY:
            raise RefusedError(f"answered {answer.status_code} {answer.reason}")
        if not 200 <= answer.status_code < 300:
            raise OSError(f"answered {answer.status_code} {answer.reason}")

    async def send(alerts: Sequence[Alert]) -> None:
        for alert in alerts:
            await asyncio.to_thread(post, alert)

    return send


WEBHOOK = sinks.add(AlertSink("webhook", "a POST of JSON", 10, WebhookOptions, open_webhook))
