"""The command line. One module a command, no logic; every error a user can act on is printed without a traceback."""

from __future__ import annotations

import sys
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperArgument

from fedprognos import __version__
from fedprognos.cli import run as run_commands
from fedprognos.cli.console import escaped
from fedprognos.cli.data import data_app
from fedprognos.cli.deploy import deploy_app
from fedprognos.cli.export import export
from fedprognos.cli.init import init
from fedprognos.cli.predict import predict
from fedprognos.cli.send import send
from fedprognos.cli.serve import serve
from fedprognos.cli.sign import sign
from fedprognos.cli.tune import tune
from fedprognos.cli.watch import watch
from fedprognos.errors import FedprognosError


def _keep_argument_help() -> None:
    """Click 8.5 clears what typer has noted as an argument's help; note it again, so that `--help` shows it."""
    noted = TyperArgument.__init__

    def init(self: TyperArgument, *arguments: Any, help: str | None = None, **options: Any) -> None:  # noqa: A002
        noted(self, *arguments, help=help, **options)
        self.help = help

    TyperArgument.__init__ = init  # type: ignore[method-assign]


_keep_argument_help()
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    suggest_commands=False,  # click does
    help="Federated health prognosis: one model across data owners who keep their data.",
    epilog="First steps: fedprognos demo  |  fedprognos init fleet.csv  |  fedprognos run fleet.toml",
)
app.command()(run_commands.demo)
app.command()(init)
app.command()(run_commands.run)
app.command()(run_commands.report)
app.command()(run_commands.presets)
app.command()(tune)
app.command()(predict)
app.command()(serve)
app.command()(send)
app.command()(watch)
app.command()(export)
app.command()(sign)
app.add_typer(data_app, name="data")
app.add_typer(deploy_app, name="deploy")


def _version(shown: bool) -> None:
    if shown:
        typer.echo(f"fedprognos {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Federated health prognosis: one model across data owners who keep their data."""


def main() -> None:
    """Entry point; exit codes are those of :mod:`fedprognos.errors`, 2 for wrong usage, 130 for Ctrl-C."""
    stderr = Console(stderr=True)
    try:
        app()
    except FedprognosError as error:
        stderr.print("[bold red]error[/] ", end="")
        stderr.print(escaped(str(error)), highlight=False)
        sys.exit(error.exit_code)
