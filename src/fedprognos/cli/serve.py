"""`fedprognos serve`: the model behind HTTP, with a page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedprognos.cli.console import TrustFile, read_trust, warn_of_exposed
from fedprognos.errors import MissingExtraError

STATE = Path("fedprognos-state")
BundleFolder = Annotated[
    Path, typer.Argument(metavar="BUNDLE", help="Folder of the model, as `fedprognos run` wrote it.")
]
Head = Annotated[Path | None, typer.Option("--head", help="A site's personal head (.safetensors).")]
Plant = Annotated[Path | None, typer.Option(help="TOML file with further sources of rows, and of receivers of alerts.")]
KeepRows = Annotated[
    int | None,
    typer.Option(min=1, help="Rows a unit kept for the next model.", show_default="all for whole lives, else 120"),
]


def serve(
    bundle: BundleFolder,
    head: Head = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than this machine need a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port.")] = 8080,
    state: Annotated[Path, typer.Option(help="Folder for what was received.")] = STATE,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token clients must show; or set FEDPROGNOS_TOKEN.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Health at which maintenance is due.", show_default="a fifth of the RUL's cap")
    ] = None,
    max_units: Annotated[int, typer.Option(min=1, help="Units watched; further ones are refused.")] = 20_000,
    keep_rows: KeepRows = None,
    max_body_in_bytes: Annotated[int, typer.Option("--max-body", min=1000, help="Bytes of a request.")] = 5_000_000,
    silent_after_in_s: Annotated[
        float | None,
        typer.Option(
            "--silent-after",
            min=1,
            help="Seconds without a row until a unit is to be checked.",
            show_default="20 usual pauses",
        ),
    ] = None,
    plant: Plant = None,
    rate_per_s: Annotated[float, typer.Option("--rate", min=0, help="Requests a second and client; 0: any.")] = 500.0,
    trust: TrustFile = None,
    backup_to: Annotated[Path | None, typer.Option(help="Folder for backups of the state.")] = None,
    backup_every_in_h: Annotated[
        float, typer.Option("--backup-every", min=0.001, help="Hours between backups.")
    ] = 24.0,
    kept_backups: Annotated[int, typer.Option("--keep-backups", min=1, help="Backups that stay.")] = 7,
    breakdown_cost: Annotated[float | None, typer.Option(help="What a breakdown of a machine costs.")] = None,
    replacement_cost: Annotated[float | None, typer.Option(help="What a planned replacement costs.")] = None,
    restore: Annotated[
        Path | None, typer.Option(help="Begin from this backup; the state folder must be empty.")
    ] = None,
    shadow: Annotated[
        Path | None, typer.Option(help="Folder of a second model that runs along, to be promoted on the page.")
    ] = None,
) -> None:
    """Take rows over HTTP, answer with health, and show the fleet on a page.

    Accepted rows are on disk before they are answered. Needs the extra `serve`.

    Example: fedprognos serve runs/fleet/bundle --port 8080
    """
    try:
        from fedprognos.service import serve as run_service
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "fastapi", "serve", "the service") from None
    from fedprognos.prognosis import Predictor
    from fedprognos.service import ServiceOptions, read_plant, read_token, restore_backup, usual_threshold

    warn_of_exposed(token_file)
    keys = read_trust(trust)
    predictor = Predictor.load(bundle, head, keys)
    second = None if shadow is None else Predictor.load(shadow, trust=keys)
    options = ServiceOptions(
        host=host,
        port=port,
        state=state,
        shadow=second,
        token=read_token(token_file, os.environ.get("FEDPROGNOS_TOKEN")),
        threshold=usual_threshold(predictor.recipe) if threshold is None else threshold,
        max_units=max_units,
        keep_rows=keep_rows,
        max_body_in_bytes=max_body_in_bytes,
        silent_after_in_s=silent_after_in_s,
        rate_per_s=rate_per_s,
        backup_to=backup_to,
        backup_every_in_s=3600 * backup_every_in_h,
        kept_backups=kept_backups,
        breakdown_cost=breakdown_cost,
        replacement_cost=replacement_cost,
        plant=read_plant(plant),
    )
    options.check()
    if restore is not None:
        restore_backup(predictor, options, restore)
    recipe = predictor.recipe
    due = "no threshold" if options.threshold is None else f"maintenance due at {options.threshold:g}"
    sees = "whole lives" if recipe.life else f"window {recipe.window}"
    if predictor.no_intervals:
        sees += f", no intervals ({predictor.no_intervals})"
    who = "clients with the token" if options.token else "this machine only; a token would let others in"
    unchecked = (f"Unknown not checked: {'; '.join(predictor.unchecked)}",) if predictor.unchecked else ()
    lines = (
        f"Page    http://{f'[{host}]' if ':' in host else host}:{port}/",
        f"Model   {bundle}: {recipe.target}, {len(recipe.sensors)} sensors, {sees}; {due}",
        *unchecked,
        f"Shadow  {f'{shadow}: {second.signature}' if second else 'none; see --shadow'}",
        f"Trust   {predictor.signature}",
        f"State   {state}",
        f"Backups {f'{backup_to}, every {backup_every_in_h:g} h' if backup_to else 'none; see --backup-to'}",
        f"Access  {who}",
        f"Sources {', '.join(['HTTP', *(source.name for source in options.plant.sources)])}",
        f"Alerts  {', '.join(sink.name for sink in options.plant.alerts.sinks) or 'on the page only'}",
    )
    Console(stderr=True).print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
    run_service(predictor, options)
