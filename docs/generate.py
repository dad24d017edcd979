"""Pages of the site that are made from the program itself: every key, every command, every metric.

A page holds a line such as `<!-- generated: keys -->`; mkdocs calls :func:`on_page_markdown` for every page.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

DOCS = Path(__file__).parent.resolve()
MARK = re.compile(r"<!-- generated: (\w+) -->")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """What mkdocs calls: the page with its generated parts; links to what is not in the site become plain names."""
    folder = Path(page.file.abs_src_path).parent

    def linked(found: re.Match[str]) -> str:
        target = (folder / found[2].partition("#")[0]).resolve()
        inside = target.is_relative_to(DOCS) and target.exists()
        return found[0] if re.match(r"#|\w+:", found[2]) or inside else found[1]

    made = MARK.sub(lambda found: MAKERS[found[1]](), markdown)
    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)", linked, made)


def keys() -> str:
    """A table for every section of an experiment, from the options themselves."""
    from fedprognos.experiment.config import assembled
    from fedprognos.fleet.partition import partitions
    from fedprognos.fleet.readers import readers

    experiment = assembled()
    parts = ["## `[data]`\n", "`kind` names a reader; each has keys of its own.\n"]
    for reader in readers.values():
        parts += [
            f'### `kind = "{reader.name}"`\n',
            f"{reader.label[0].upper()}{reader.label[1:]}.\n",
            _table(reader.options, {"kind"}),
        ]
    parts += ["## `[partition]`\n", "Or `[partition.NAME]` for each of several scenarios.\n"]
    for way in partitions.values():
        parts += [f'### `by = "{way.name}"`\n', _doc(way.options), _table(way.options, {"by"})]
    for name in ("recipe", "model", "train", "federation", "evaluation"):
        section = experiment.model_fields[name].annotation
        nested = {key: one for key, field in section.model_fields.items() if (one := _options(field.annotation))}
        parts += [f"## `[{name}]`\n", _doc(section), _table(section, set(nested))]
        for key, options in nested.items():
            parts += [f"### `[{name}.{key}]`\n", _doc(options), _table(options, set())]
    return "\n".join(parts)


def settings() -> str:
    """What `settings.toml` of a deployment's folders holds."""
    from fedprognos.deployment.folders import CoordinatorOptions, SiteOptions

    of = {"the coordinator": CoordinatorOptions, "a site": SiteOptions}
    return "\n".join(f"## `settings.toml` of {who}\n\n{_table(kind, set())}" for who, kind in of.items())


def commands() -> str:
    """Every command with its options, as `--help` tells them."""
    import typer

    from fedprognos.cli import app

    parts = []
    for path, command in _commands(typer.main.get_command(app), "fedprognos"):
        words = inspect.cleandoc(command.help or "").replace("\n\n", "\n\n")
        parts += [f"## `{path}`\n", f"{words}\n"]
        lines = ["| | default | |", "|---|---|---|"]
        for p in command.params:
            if p.name == "help":
                continue
            option = p.param_type_name == "option"
            names = (
                ", ".join(f"`{o}`" for o in (*p.opts, *p.secondary_opts)) if option else f"`{p.human_readable_name}`"
            )
            default = (
                "" if not option or p.default in (None, False, (), "") or callable(p.default) else f"`{p.default}`"
            )
            lines.append(f"| {_cell(names)} | {default} | {_cell(getattr(p, 'help', '') or '')} |")
        parts += ["\n".join(lines) + "\n"] if len(lines) > 2 else []
    return "\n".join(parts)


def metrics() -> str:
    """Every metric, baseline and method there is."""
    from fedprognos.evaluation import baselines
    from fedprognos.evaluation import metrics as all_metrics
    from fedprognos.federation.strategies import strategies

    kinds = {
        "": [(one.name, one.label, one.meaning) for one in all_metrics.values()],
        "## Baselines\n": [(one.name, one.label, _doc(one.predict)) for one in baselines.values()],
        "## Methods\n": [(one.name, one.label, _doc(one.rounds)) for one in strategies.values()],
    }
    head = "| name | label | meaning |\n|---|---|---|\n"
    return "\n".join(
        f"{title}\n{head}" + "".join(f"| `{name}` | {_cell(label)} | {_cell(said)} |\n" for name, label, said in rows)
        for title, rows in kinds.items()
    )


MAKERS = {"keys": keys, "settings": settings, "commands": commands, "metrics": metrics}


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, one in getattr(command, "commands", {}).items():
        if getattr(one, "commands", None):
            yield from _commands(one, f"{path} {name}")
        else:
            yield f"{path} {name}", one


def _table(options: type[Any], without: set[str]) -> str:
    told = _told(options)
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for name, field in options.model_fields.items():
        if name not in without:
            kind = _kind(field.annotation)
            default = "required" if field.is_required() else f"`{_toml(field.get_default(call_default_factory=True))}`"
            lines.append(f"| `{name}` | {kind} | {default} | {_cell(told.get(name, field.description or ''))} |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""


def _told(options: type[Any]) -> dict[str, str]:
    """What stands below each field in the source, the classes it inherits from included."""
    found: dict[str, str] = {}
    for cls in reversed(options.__mro__):
        if not cls.__module__.startswith("fedprognos") or not hasattr(cls, "model_fields"):
            continue
        for names, text in re.findall(r"^(\w[\w, ]*)\n((?:    .*\n?|\n(?=    ))+)", inspect.getdoc(cls) or "", re.M):
            found |= dict.fromkeys(names.split(", "), _plain(" ".join(text.split())))
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0].body  # type: ignore[attr-defined]
        except (OSError, TypeError):
            continue
        for line, after in pairwise(body):
            if (
                isinstance(line, ast.AnnAssign)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                found[line.target.id] = _plain(" ".join(str(after.value.value).split()))  # type: ignore[union-attr]
    return found


NAMES = {int: "whole number", float: "number", str: "text", bool: "true or false"}


def _kind(annotation: Any) -> str:
    """A type in words: choices as they are written, else what kind of value, list or table it is."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation in NAMES:
        return NAMES[annotation]
    if origin is Literal:
        return " or ".join(f"`{_toml(choice)}`" for choice in inner)
    if origin is Annotated:
        return _kind(inner[0])
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(kind for one in inner if (kind := _kind(one))))
    if origin in (tuple, list):
        return f"list of {_kind(inner[0])}"
    return f"table of {_kind(inner[1])}" if inner and len(inner) == 2 else ""


def _toml(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)


def _options(annotation: Any) -> type[Any] | None:
    """The options that a section of its own has, if the field is such a section; it may be left out."""
    found = [
        one for one in (annotation, *get_args(annotation)) if isinstance(one, type) and hasattr(one, "model_fields")
    ]
    return found[0] if found else None


def _doc(of: Any) -> str:
    text = inspect.getdoc(of) or ""
    return _plain(" ".join(text.split("\n\n")[0].split())) + "\n"


def _plain(text: str) -> str:
    """A docstring without the marks that only programs read."""
    return re.sub(r":\w+:`[~.]?(?:[\w.]+\.)?(\w+)`", r"`\1`", text)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    for make in MAKERS.values():
        print(make())
