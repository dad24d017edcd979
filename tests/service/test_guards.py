"""Who is let in, how much, how often."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from services import running, small_bundle

from fedprognos.errors import ConfigError
from fedprognos.service import ServiceOptions
from fedprognos.service.service_options import read_token
from refusals import refuses
from small_fleets import series_fleet

BUNDLE = small_bundle(series_fleet([30]))
TOKEN = "correct-horse-battery"  # noqa: S105


def test_a_token_is_asked_for_everywhere_but_on_the_page_and_health_checks() -> None:
    with running(BUNDLE, address="192.0.2.7", token=TOKEN) as client:
        for path in ("/v1/units", "/v1/fleet", "/v1/units/a", "/v1/events", "/metrics", "/openapi.json"):
            assert client.get(path).status_code == 401, path
        assert client.post("/v1/rows", json={}).status_code == 401
        assert client.delete("/v1/units/a").status_code == 401
        for wrong in (f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer", "Bearer ", "Bearer é"):
            assert client.get("/v1/fleet", headers={"Authorization": wrong.encode()}).status_code == 401
        assert client.get("/v1/fleet", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        for path in ("/", "/page.js", "/page.css", "/healthz", "/readyz"):
            assert client.get(path).status_code == 200, path


def test_without_a_token_only_this_machine_is_served() -> None:
    with running(BUNDLE, address="192.0.2.7") as client:
        assert client.get("/v1/fleet").status_code == 403
        assert client.get("/").status_code == 403
    with running(BUNDLE) as client:
        assert client.get("/v1/fleet").status_code == 200
        assert client.get("/v1/fleet", headers={"Host": "evil.example"}).status_code == 403
        assert client.get("/v1/fleet", headers={"Host": "localhost:8080"}).status_code == 200
    with refuses(ConfigError, "--token-file"):
        ServiceOptions(host="0.0.0.0").check()  # noqa: S104


def test_large_bodies_are_refused_announced_or_not() -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(30):
            yield b"[" * 100

    kind = {"content-type": "application/json"}
    with running(BUNDLE, max_body_in_bytes=1000) as client:
        assert client.post("/v1/rows", content=b"[" * 1001, headers=kind).status_code == 413
        answer = client.post("/v1/rows", content=pieces(), headers=kind)
        assert answer.status_code == 413
        assert "larger than 1000 bytes" in answer.json()["detail"]


def test_a_client_that_asks_too_often_is_told_to_wait() -> None:
    with running(BUNDLE, rate_per_s=5.0) as client:
        answers = [client.get("/v1/fleet") for _ in range(12)]
        assert {a.status_code for a in answers} == {200, 429}
        assert answers[-1].headers["retry-after"] == "1"


def test_headers_keep_browsers_in_bounds() -> None:
    with running(BUNDLE) as client:
        page = client.get("/", headers={"Origin": "http://evil.example"})
        assert "script-src 'self'" in page.headers["content-security-policy"]
        assert "unsafe" not in page.headers["content-security-policy"]
        assert page.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in page.headers
        assert "http" not in page.text.replace("http-equiv", "")
        asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
        assert client.options("/v1/rows", headers=asked).status_code == 405


def test_tokens_are_read_and_weak_ones_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    assert read_token(file, None) == TOKEN
    assert read_token(None, None) is None
    file.write_text("short")
    with refuses(ConfigError, 16, file):
        read_token(file, None)
    with refuses(ConfigError, tmp_path / "none"):
        read_token(tmp_path / "none", None)
