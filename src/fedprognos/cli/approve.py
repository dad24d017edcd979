"""`fedprognos deploy approve` and `deploy ledger`: what a site agrees to, and what left it."""

from __future__ import annotations

from typing import Annotated

import typer

from fedprognos.cli.deploy import Folder, console
from fedprognos.errors import printable


def approve(
    folder: Folder,
    contract: Annotated[str, typer.Option(help="First characters of the contract's digest; all that wait.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Approve without asking.")] = False,
) -> None:
    """Show the contracts that wait at a site, and approve them.

    Before that a site answers nothing about its data.

    Example: fedprognos deploy approve plant-a
    """
    from fedprognos.deployment.contract import in_words
    from fedprognos.deployment.folders import SiteOptions, read_options
    from fedprognos.deployment.site.approvals import Approvals

    options = read_options(folder, SiteOptions)
    approvals = Approvals(folder, options.approved, options.members)
    waiting = [
        entry
        for entry in approvals.entries()
        if (entry.contract.digest.startswith(contract) if contract else entry.state == "waiting")
    ]
    if not waiting:
        console.print("no contract waits here; start the site, and a run at the coordinator")
    for entry in waiting:
        for line in (*in_words(entry.contract, options.name), *approvals.alike(entry.contract)):
            console.print(printable(line))
        if entry.state == "running":
            console.print("it is approved and running")
        elif yes or typer.confirm("Approve this contract?"):
            approvals.approve(entry.contract.digest)
            console.print(f"approved: {entry.contract.digest}")


def ledger(folder: Folder) -> None:
    """Show what left a site, what it could tell, what was refused, and whether the ledger is whole.

    Example: fedprognos deploy ledger plant-a
    """
    from fedprognos.deployment.folders import SiteOptions, read_options
    from fedprognos.deployment.ledger_words import in_words
    from fedprognos.deployment.site.approvals import Approvals
    from fedprognos.deployment.site.site_ledger import SiteLedger

    read_options(folder, SiteOptions)  # a folder without a site has no ledger
    runs = {entry.contract.digest: entry.contract.run for entry in Approvals(folder).entries()}
    for line in in_words(SiteLedger(folder).lines(), runs):
        console.print(printable(line))
