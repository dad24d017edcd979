"""A message is encoded once: what all clients get is one text, and replies are counted as they came."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cohorts import cohort_of

from fedprognos.features import SurveyTerms
from fedprognos.federation import cohort
from fedprognos.federation.cohort import MessageCohort
from fedprognos.federation.exchanges.survey import SurveyRequest


def test_a_request_for_everybody_is_encoded_once_and_a_reply_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = cohort_of(tmp_path).members
    replies: dict[str, bytes] = {}

    class Here:
        clients = tuple(members)

        def send(self, requests: Mapping[str, bytes]) -> dict[str, bytes]:
            replies.update({name: members[name].respond(data) for name, data in requests.items()})
            return replies

    encoded: list[Any] = []
    real = cohort.encode
    monkeypatch.setattr(cohort, "encode", lambda message, *more: encoded.append(message) or real(message, *more))
    request, asked = SurveyRequest(SurveyTerms()), MessageCohort(Here())  # type: ignore[arg-type]
    asked.ask(dict.fromkeys(members, request))
    assert encoded == [request]
    assert asked.traffic.bytes_down == len(members) * len(real(request))
    assert asked.traffic.bytes_up == sum(map(len, replies.values()))
