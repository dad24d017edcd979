"""Answers of the HTTP interface: JSON, and problems as RFC 9457 wants them."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import Response
from pydantic import TypeAdapter
from pydantic_core import to_json


@dataclass(frozen=True)
class Problem:
    """What was wrong (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


PROBLEM: dict[str, Any] = {
    "content": {"application/problem+json": {"schema": TypeAdapter(Problem).json_schema()}},
}
"""How an answer that is a problem looks, for the OpenAPI document."""


def respond(value: object, status: int = 200) -> Response:
    """An answer in JSON; what is infinite or not a number is null."""
    return Response(to_json(value, inf_nan_mode="null"), status, media_type="application/json")


def refuse(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    """An answer that says what is wrong, as RFC 9457 wants it."""
    problem = Problem("about:blank", HTTPStatus(status).phrase, status, detail)
    return Response(to_json(problem), status, headers, "application/problem+json")


def refuse_unit(unit: str) -> Response:
    """The answer where a unit is not known."""
    return refuse(404, f"no unit '{unit[:256]}' is watched")
