"""`fedprognos sign MODEL --key FILE`: an owner's signature on a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedprognos.cli.console import warn_of_exposed
from fedprognos.errors import MissingExtraError


def sign(
    model: Annotated[Path, typer.Argument(help="A bundle's folder, an ONNX file, or a personal head.")],
    key: Annotated[Path, typer.Option("--key", metavar="FILE", help="Your private key; made if it is missing.")],
    name: Annotated[str | None, typer.Option(help="Your name in the trust file; the key file's by default.")] = None,
) -> None:
    """Sign a model, and print the trust file with which others check it. Needs the extra `sign`.

    The signature stands beside the model and covers all of it. A model can have several.

    Example: fedprognos sign runs/fleet/bundle --key owner.key
    """
    try:
        from fedprognos.identity import fingerprint, identity_from_file
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "cryptography", "sign", "signing") from None
    from fedprognos.networks import sign_bundle, sign_file, trust_text

    warn_of_exposed(key)
    identity = identity_from_file(key)
    if model.is_dir():
        sign_bundle(model, identity)
    else:
        sign_file(model, identity)
    text = f"signed {model} with the key {fingerprint(identity.public)}"
    Console(stderr=True).print(text, highlight=False, markup=False, soft_wrap=True)
    typer.echo(trust_text([(name or key.stem, identity.public)]), nl=False)
