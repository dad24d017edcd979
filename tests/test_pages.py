"""What the pages name exists: commands, options, keys, presets, files, functions, tests, links and their sections."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

from fedprognos.cli import app
from fedprognos.deployment.folders import CoordinatorOptions, SiteOptions
from fedprognos.experiment.config import assembled, load, presets
from fedprognos.networks import Trust
from fedprognos.options import validated
from fedprognos.service import PlantOptions

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted(DOCS.rglob("*.md"))]
FILES = [file.relative_to(ROOT).as_posix() for file in ROOT.glob("[!.]*/**/*.py")]
TESTS = "\n".join(file.read_text("utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
COMMAND = re.compile(r"fedprognos [a-z]")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


@every_page
def test_every_command_can_be_given(page: Path) -> None:
    text = page.read_text("utf-8")
    for line in filter(COMMAND.match, _lines(text)):
        _check_command(line, complete=True)
    for code in filter(COMMAND.match, _inline(text)):
        _check_command(code, complete=False)


def test_every_example_of_a_help_text_can_be_given() -> None:
    for path, command in _all_commands(typer.main.get_command(app), "fedprognos"):
        examples = re.findall(r"Example: (fedprognos .*)", command.help or "")
        assert examples, path
        for example in examples:
            assert example.startswith(path), path
            _check_command(example, complete=True)


@every_page
def test_every_key_exists(page: Path) -> None:
    for code in _inline(page.read_text("utf-8")):
        for path in re.findall(r"^(?:\[)?((?:recipe|model|train|federation|evaluation)\.[a-z_.]+)", code):
            assert _key_exists(assembled(), path.split(".")), f"{page.name}: {code}"


@every_page
def test_every_file_and_test_exists(page: Path) -> None:
    for code in _inline(page.read_text("utf-8")):
        for file in re.findall(r"[\w/]+\.py\b", code):
            assert any(f"/{path}".endswith(f"/{file}") for path in FILES), f"{page.name}: {code}"
        if re.fullmatch(r"test_(?!units|fraction|path)\w+", code):
            assert f"def {code}(" in TESTS, f"{page.name}: {code}"


@every_page
def test_every_programme_takes_what_it_is_given(page: Path) -> None:
    main = (ROOT / "studies" / "__main__.py").read_text("utf-8")
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for code in (*_inline(page.read_text("utf-8")), *_lines(page.read_text("utf-8"))):
        for target in re.findall(r"^make ([\w-]+)", code):
            assert target in targets, f"{page.name}: {code}"
        for name in re.findall(r"python -m studies ([\w-]+)", code):
            assert f"\ndef {name.replace('-', '_')}(" in main, f"{page.name}: {code}"
        for file, given in re.findall(r"python ((?:benchmarks|edge|tests|docs)/[\w/]+\.py)(.*)", code):
            source = (ROOT / file).read_text("utf-8")
            assert [o for o in re.findall(r"--[\w-]+", given.partition("#")[0]) if o not in source] == [], code


@every_page
def test_every_example_of_a_file_is_valid(page: Path) -> None:
    for block in re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
        raw = tomllib.loads(block)
        if raw.keys() & PlantOptions.model_fields.keys():
            validated(PlantOptions, raw)
            continue
        if "keys" in raw:
            validated(Trust, raw)
            continue
        load(raw if "data" in raw else {"base": "demo", **raw})


@every_page
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, section in re.findall(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)]*))?\)", page.read_text("utf-8")):
        folder = DOCS if page.name == "remarks.md" else page.parent  # its paragraphs stand on docs/results.md
        place = folder / target if target else page
        assert place.exists(), f"{page.name}: {target}"
        if section:
            assert section in _sections(place.read_text("utf-8")), f"{page.name}: {target}#{section}"


@every_page
def test_every_function_of_a_walk_exists(page: Path) -> None:
    """Written as `room/file.py:name`, or `room/file.py:Class.method`."""
    for file, name in re.findall(r"`([\w/]+\.py):([\w.]+)`", page.read_text("utf-8")):
        source = (ROOT / "src" / "fedprognos" / file).read_text("utf-8")
        for part in name.split("."):
            assert re.search(rf"^\s*(?:async )?(?:def|class) {part}\b|^{part}\b", source, re.MULTILINE), (
                f"{file}:{name}"
            )


def test_every_key_is_on_the_page_of_experiments() -> None:
    page = (DOCS / "experiments.md").read_text("utf-8")
    names = {name for code in _inline(page) for name in re.findall(r"[a-z]\w+", code, re.IGNORECASE)}
    experiment = assembled()
    left = []
    for section in ("recipe", "model", "train", "federation", "evaluation"):
        options = experiment.model_fields[section].annotation
        for key, field in options.model_fields.items():  # type: ignore[union-attr]
            nested = _options(field.annotation)
            left += [f"{section}.{key}.{k}" for k in nested.model_fields if k not in names] if nested else []
            left += [f"{section}.{key}"] if key not in names else []
    # The contract of a deployment sets this one; a table of its own has those of privacy.
    privacy = (DOCS / "privacy.md").read_text("utf-8")
    assert [k for k in left if k != "federation.imported" and f"`{k.rpartition('.')[2]}`" not in privacy] == []


@pytest.mark.parametrize("options", [CoordinatorOptions, SiteOptions])
def test_every_setting_of_a_folder_is_on_the_page_of_deployments(options: type[Any]) -> None:
    page = (DOCS / "deploy.md").read_text("utf-8")
    assert [key for key in options.model_fields if f"`{key}`" not in page] == []


def _lines(text: str) -> list[str]:
    """Lines of fenced blocks, continued ones in one piece."""
    blocks = re.findall(r"```(?:sh|bash|)\n(.*?)```", text, re.DOTALL)
    return [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]


def _sections(text: str) -> set[str]:
    """How links name the sections of a page: its headings in small letters, words joined by dashes."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def _inline(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def _all_commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, child in command.commands.items():
        if getattr(child, "commands", None):
            yield from _all_commands(child, f"{path} {name}")
        else:
            yield f"{path} {name}", child


def _check_command(line: str, *, complete: bool) -> None:
    """The command, its options and its preset exist; a complete one has everything that it requires."""
    command = typer.main.get_command(app)
    given = shlex.split(line, comments=True)[1:]
    while getattr(command, "commands", None) and given:
        assert given[0] in command.commands, line  # type: ignore[attr-defined]
        command = command.commands[given.pop(0)]  # type: ignore[attr-defined]
    options = {name: p for p in command.params for name in (*p.opts, *p.secondary_opts) if name.startswith("-")}
    places, sets, options_given = [], [], set()
    while given:
        word = given.pop(0)
        if word.startswith("--"):
            assert word in options or word == "--help", f"{word}: {line}"
            options_given.add(word)
            flag = word == "--help" or getattr(options[word], "is_flag", False)
            value = None if flag or not given else given.pop(0)
            sets += [value] if word == "--set" and value else []
        else:
            places.append(word)
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    assert len(places) <= len(arguments), line
    if complete:
        assert len(places) >= sum(p.required for p in arguments), line
        assert [name for name, p in options.items() if p.required and name not in options_given] == [], line
    wants_experiment = any("PRESET" in str(p.metavar) for p in arguments)
    if wants_experiment and places and not re.search(r"\.toml$|[A-Z]", places[0]):
        assert places[0] in presets(), line
        load(places[0], tuple(sets))


def _options(annotation: Any) -> type[Any] | None:
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and hasattr(kind, "model_fields"):
            return kind
    return None


def _key_exists(options: type[Any], path: list[str]) -> bool:
    fields = options.model_fields
    if path[0] not in fields:
        return False
    nested = _options(fields[path[0]].annotation)
    return len(path) == 1 or (nested is not None and _key_exists(nested, path[1:]))
