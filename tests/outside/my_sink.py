"""Alerts as lines of a file, for a program that follows it."""

import os
from pathlib import Path
from typing import Literal

from fedprognos.service.alert_sinks import AlertSink, SinkOptions


class LogbookOptions(SinkOptions):
    """Its keys in [[alerts.sinks]]."""

    kind: Literal["logbook"] = "logbook"
    file: Path


def open_logbook(options: LogbookOptions):
    """A function that returns when the lines are on disk; what it raises is tried again later."""

    async def send(alerts):
        with options.file.open("r+b") as file:
            file.seek(0, os.SEEK_END)
            file.write(b"".join(alert.payload + b"\n" for alert in alerts))
            file.flush()
            os.fsync(file.fileno())

    return send


LOGBOOK = AlertSink("logbook", "lines of a file", 90, LogbookOptions, open_logbook, at_once=100)
