"""Alerts by mail: those that wait go into one message, whose Message-ID is made of the first alert's id."""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from collections import Counter
from collections.abc import Sequence
from email.message import EmailMessage
from email.utils import formatdate
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from fedprognos.errors import printable
from fedprognos.service.alert_sinks import AlertSink, RefusedError, Send, SinkOptions, sinks
from fedprognos.service.alerts import WORDS, Alert
from fedprognos.service.plant_entry import read_secret

TIMEOUT_IN_S = 20.0
IN_ONE_MAIL = 50
PORTS = {"none": 25, "starttls": 587, "tls": 465}
Address = Annotated[str, Field(pattern=r"^[^@\s<>,;]+@[^@\s<>,;]+$")]


class MailOptions(SinkOptions):
    """Its keys in `[[alerts.sinks]]`."""

    kind: Literal["mail"] = "mail"
    host: str
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """By default 587 for "starttls", 465 for "tls", 25 for "none"."""
    security: Literal["starttls", "tls", "none"] = "starttls"
    ca: Path | None = None
    """Certificates to trust in place of the system's."""
    username: str | None = None
    password_file: Path | None = None
    sender: Address
    to: Annotated[tuple[Address, ...], Field(min_length=1)]


def message_from(alerts: Sequence[Alert], options: MailOptions) -> EmailMessage:
    """The mail that tells about alerts."""
    message = EmailMessage()
    message["From"], message["To"] = options.sender, ", ".join(options.to)
    message["Date"] = formatdate(alerts[-1].raised)
    message["Message-ID"] = f"<{alerts[0].id}-{len(alerts)}@fedprognos>"
    counts = Counter(alert.status for alert in alerts)
    subject = ", ".join(f"{count} {WORDS[status]}" for status, count in counts.items())
    if len(alerts) == 1:
        subject = f"{alerts[0].unit} is {WORDS[alerts[0].status]}"
    message["Subject"] = "[fedprognos] " + " ".join(printable(subject).split())
    for alert in alerts:
        message["X-Fedprognos-Alert"] = alert.id
    lines = [f"{formatdate(alert.raised, localtime=True)}  {alert.text}  [{alert.id}]" for alert in alerts]
    message.set_content(printable("\n".join(lines)) + "\n")
    return message


def open_mail(options: MailOptions) -> Send:
    """A function that mails alerts."""
    password = None if options.password_file is None else read_secret(options.password_file)
    context = ssl.create_default_context(cafile=options.ca)
    port = options.port or PORTS[options.security]

    def mail(alerts: Sequence[Alert]) -> None:
        message = message_from(alerts, options)
        secured = options.security == "tls"
        server = (
            smtplib.SMTP_SSL(options.host, port, timeout=TIMEOUT_IN_S, context=context)
            if secured
            else smtplib.SMTP(options.host, port, timeout=TIMEOUT_IN_S)
        )
        with server:
            if options.security == "starttls":
                server.starttls(context=context)
            if options.username is not None and password is not None:
                server.login(options.username, password)
            try:
                refused = server.send_message(message)
            except smtplib.SMTPDataError as error:
                if error.smtp_code >= 500:
                    raise RefusedError(f"answered {error.smtp_code} {error.smtp_error!r}") from None
                raise
        if refused:  # some of the addresses; the others have got the mail
            raise RefusedError(f"not sent to {', '.join(sorted(refused))}")

    async def send(alerts: Sequence[Alert]) -> None:
        await asyncio.to_thread(mail, alerts)

    return send


MAIL = sinks.add(AlertSink("mail", "a mail by SMTP", 20, MailOptions, open_mail, IN_ONE_MAIL))
