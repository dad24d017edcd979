"""The page's files, served as they are."""

from __future__ import annotations

from functools import partial
from importlib.resources import files

from fastapi import FastAPI, Request, Response

SCRIPT = "text/javascript; charset=utf-8"
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/words.js": ("words.js", SCRIPT),
    "/link.js": ("link.js", SCRIPT),
    "/chart.js": ("chart.js", SCRIPT),
    "/unit.js": ("unit.js", SCRIPT),
    "/page.js": ("page.js", SCRIPT),
    "/favicon.svg": ("favicon.svg", "image/svg+xml"),
}


def add_page(app: FastAPI) -> None:
    """Routes for the page; its files are read once."""
    folder = files("fedprognos.service") / "page"
    for path, (name, kind) in FILES.items():
        app.router.add_route(path, partial(_served, (folder / name).read_bytes(), kind), include_in_schema=False)


async def _served(content: bytes, kind: str, _: Request) -> Response:
    return Response(content, media_type=kind, headers={"cache-control": "no-cache"})
