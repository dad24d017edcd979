"""Files that hosts and tools read are valid, and the documentation says everything there is to say."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import runpy
import tomllib
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

ROOT = Path(__file__).parents[1]
yaml = pytest.importorskip("yaml")


@pytest.mark.parametrize(
    "file", [".pre-commit-config.yaml", *(str(p.relative_to(ROOT)) for p in ROOT.glob(".github/**/*.yml"))]
)
def test_configurations_can_be_read(file: str) -> None:
    assert isinstance(yaml.safe_load((ROOT / file).read_text("utf-8")), dict)


def test_the_hosted_ci_runs_what_everyone_runs() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))
    assert ".ci/run" in [step.get("run") for step in workflow["jobs"]["checks"]["steps"]]
    targets = re.findall(r"^make ([\w-]+)", (ROOT / ".ci/run").read_text("utf-8"), re.MULTILINE)
    assert set(targets) == {"test", "test-long", "lint", "docs"}


def test_every_test_is_in_one_tier() -> None:
    chosen = re.findall(r'^test[\w-]*:.*\n\t.*-m "?(.*?)"?(?: [-$].*)?$', (ROOT / "Makefile").read_text("utf-8"), re.M)
    assert len(chosen) == 3
    for long, soak, hypothesis in itertools.product([False, True], repeat=3):
        markers = {"long": long, "soak": soak, "hypothesis": hypothesis}
        count = sum(Expression.compile(tier).evaluate(markers.__getitem__) for tier in chosen)
        # What is drawn at random runs twice: a little in the fast tier, thoroughly in the long one.
        assert count == (2 if hypothesis and not long and not soak else 1), markers


def test_hooks_use_the_tools_of_make_lint() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"][0]["hooks"]
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert lint is not None
    assert {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in hooks} == set(
        re.findall(r"BIN\)/([\w-]+)", lint[1])
    )


@pytest.fixture(scope="module")
def generated() -> str:
    """Every key, command and metric, as the site shows them."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        runpy.run_path(str(ROOT / "docs" / "generate.py"), run_name="__main__")
    return shown.getvalue()


def test_every_key_and_option_is_explained(generated: str) -> None:
    rows = [row for row in generated.splitlines() if re.match(r"\| `", row)]
    assert len(rows) > 150
    assert [row for row in rows if row.replace(" ", "").endswith("||")] == []


def test_every_preset_uses_keys_of_the_reference(generated: str) -> None:
    for preset in (ROOT / "src" / "fedprognos" / "presets").glob("*.toml"):
        for section in ("recipe", "model", "train", "evaluation"):
            for key in tomllib.loads(preset.read_text("utf-8")).get(section, {}):
                assert f"| `{key}` |" in generated, f"{preset.name}: {section}.{key}"


def test_every_page_of_the_site_is_in_its_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text("utf-8")
    pages = [p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs").rglob("*.md")]
    left_out = re.findall(r"^  (\S+\.md)$", menu, re.MULTILINE)
    assert [page for page in pages if f" {page}\n" not in menu + "\n" and page not in left_out] == []
