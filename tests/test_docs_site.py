"""The documentation as a site, opened from a folder: it loads nothing from the web, and search works."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from browser import Browser

ROOT = Path(__file__).parents[1]
ELSEWHERE = re.compile(r'<(?:script|img|iframe)[^>]+src="(https?:[^"]+)"|<link[^>]+href="(https?:[^"]+\.css)')

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT)
    return folder


def test_no_page_loads_anything_from_the_web(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert ELSEWHERE.findall(page.read_text("utf-8")) == [], page.name


def test_search_finds_a_page_without_a_server(site: Path, tmp_path: Path) -> None:
    links = "[...document.querySelectorAll('.md-search-result__item a')].map(link => link.href)"
    box = "document.querySelector('.md-search__input')"
    with Browser(tmp_path / "profile") as browser:
        browser.resize(1400, 900)
        browser.open((site / "index.html").as_uri())
        browser.wait(box)
        browser.click(".md-search__input")
        # The search is ready when it no longer says that it is being set up.
        browser.wait("document.querySelector('.md-search-result__meta').textContent.includes('Type')")
        browser.type("masked")
        browser.run(f"{box}.dispatchEvent(new Event('keyup'))")
        browser.wait(f"{links}.some(link => link.includes('privacy.html'))")
        assert browser.complaints == []
