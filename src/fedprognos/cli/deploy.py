"""`fedprognos deploy`: a coordinator and sites on machines of their own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fedprognos.cli.console import warn_of_exposed
from fedprognos.errors import ConfigError, OutputError, printable
from fedprognos.files import AddedLines, read_object

INTERRUPTED = 130
LEAVES = """Nothing about the data leaves this site before you approve a contract:  fedprognos deploy approve {folder}
Then these leave, each noted in ledger.jsonl: column names; counts, means and variances of the columns and of the label;
rounded bounds of the sensors; weights trained here; sums of errors on validation and test parts; head statistics
(H'H, H'y); counts of residuals.
Stays here: rows, unit names, times, sums of fewer than {min_count} rows, your own head, your report.
No code comes in. This site's identity, for the other members: {identity}"""

deploy_app = typer.Typer(no_args_is_help=True, help="Federate over a network: a coordinator and sites.")
Folder = Annotated[Path, typer.Argument(help="Folder that `deploy init` made.")]
console = Console(highlight=False, markup=False, soft_wrap=True)


@deploy_app.callback()
def _needs() -> None:
    from fedprognos.deployment.flower import require_flower

    require_flower()


def _tell(text: str) -> None:
    with contextlib.suppress(OSError):  # a full disk below the log must not end a site
        console.print(f"{time.strftime('%H:%M:%S')}  {printable(text)}")


@contextlib.contextmanager
def _until_interrupted(farewell: str) -> Iterator[None]:
    """On Ctrl-C or SIGTERM, print a farewell and exit with the code of an interrupt."""
    from fedprognos.deployment import terminate_as_interrupt

    terminate_as_interrupt()
    try:
        yield
    except KeyboardInterrupt:
        console.print(farewell)
        raise typer.Exit(INTERRUPTED) from None


@deploy_app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New folder.")],
    sites: Annotated[str, typer.Option(help="Names of the sites, separated by commas.")],
    host: Annotated[str, typer.Option(help="Name or address by which sites reach the coordinator.")],
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the coordinator.")] = 9092,
    bind: Annotated[str | None, typer.Option(help="Address the coordinator listens on; all by default.")] = None,
    experiment: Annotated[Path | None, typer.Option(exists=True, help="Experiment to give to every site.")] = None,
) -> None:
    """Make keys, certificates, and one folder for the coordinator and for each site.

    Example: fedprognos deploy init deployment --sites plant-a,plant-b --host coordinator.example.com
    """
    from fedprognos.deployment import AUTHORITY_IN_DAYS, SERVER_IN_DAYS, make_deployment

    names = [name.strip() for name in sites.split(",") if name.strip()]
    coordinator, places = make_deployment(folder, names, host, port, bind, experiment)
    columns = "" if experiment is not None else " --columns EXPERIMENT.toml"
    console.print(f"Made {folder}. Certificate: {SERVER_IN_DAYS} days, authority: {AUTHORITY_IN_DAYS} days.\n")
    console.print("1. Transfer each folder over a secure channel, then delete it here: it holds the site's key.")
    for name, place in places.items():
        console.print(f"     {name}: {place}")
    console.print(f"2. Keep {folder / 'authority'} offline; only `deploy renew` needs it.")
    console.print(f"3. On the coordinator:  fedprognos deploy coordinator {coordinator}")
    console.print(f"4. On each site:        fedprognos deploy site FOLDER --data FLEET.csv{columns}")
    console.print(f"5. On the coordinator:  fedprognos deploy run EXPERIMENT.toml --dir {coordinator}")
    console.print("6. On each site:        fedprognos deploy approve FOLDER")


@deploy_app.command()
def renew(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that `deploy init` made, with authority/.")],
    site: Annotated[list[str] | None, typer.Option(help="Also make a new key pair for this site; repeatable.")] = None,
) -> None:
    """Make a new certificate for the coordinator, and new keys for sites that lost theirs.

    Example: fedprognos deploy renew deployment
    """
    from fedprognos.deployment import coordinator_folder, days_left, read_certificate, renew

    renewed = renew(folder, site or [])
    left = days_left(read_certificate(coordinator_folder(folder) / "server.crt"))
    console.print(f"New certificate, valid for {left} days. Restart the coordinator to use it.")
    for name, place in renewed.items():
        console.print(f"New keys of {name}: copy {place / 'site.key'} to the site. The old key is no longer accepted.")


@deploy_app.command()
def coordinator(folder: Folder) -> None:
    """Start the coordinator: it runs what `deploy run` queues, and continues after a crash.

    Example: fedprognos deploy coordinator deployment/coordinator
    """
    from fedprognos.deployment import (
        CoordinatorOptions,
        coordinator_folder,
        host,
        read_options,
        serve_coordinator,
    )
    from fedprognos.identity import fingerprint, identity_of
    from fedprognos.report import write_report

    place = coordinator_folder(folder)
    read_options(place, CoordinatorOptions)  # a folder without a coordinator gets no key
    warn_of_exposed(*sorted(place.glob("*.key")))
    console.print(f"Next: start the sites, then  fedprognos deploy run EXPERIMENT --dir {place}")
    console.print(f"This coordinator's identity, for the sites: {fingerprint(identity_of(place).public)}")
    with _until_interrupted("stopped; start it again to continue"):
        serve_coordinator(place, host, _tell, write_report)


@deploy_app.command()
def site(
    folder: Folder,
    data: Annotated[Path | None, typer.Option(exists=True, help="The site's own CSV or Parquet.")] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="PRESET|FILE.toml", help="Experiment; default: experiment.toml in the folder.")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="Folder with the NASA data.")] = None,
) -> None:
    """Check this site's data, show what will leave it, and join the federation.

    Example: fedprognos deploy site plant-a --data fleet.csv
    """
    from fedprognos.deployment import (
        EXPERIMENT,
        SiteOptions,
        check_site_data,
        join,
        read_options,
        read_site_data,
        serve_site,
    )
    from fedprognos.experiment import config
    from fedprognos.federation import DataTerms
    from fedprognos.identity import fingerprint, identity_of
    from fedprognos.report import write_report

    options = read_options(folder, SiteOptions)
    warn_of_exposed(*sorted(folder.glob("*.key")))
    _, experiment, base = config.load(columns or folder / EXPERIMENT)
    site_data = read_site_data(options.name, experiment, base, data, data_dir)
    schema = check_site_data(site_data, DataTerms.from_recipe(experiment.recipe))
    test_units = 0 if site_data.test is None else len(site_data.test)
    console.print(f"{options.name}: {len(site_data.train)} units to train on, {test_units} to test on")
    console.print(f"  sensors: {', '.join(schema.sensors)}")
    identity = fingerprint(identity_of(folder).public)
    console.print(LEAVES.format(folder=folder, min_count=options.min_count, identity=identity))
    with _until_interrupted("left the federation; start again to rejoin"):
        serve_site(folder, join, site_data, _tell, write_report)


@deploy_app.command()
def run(
    source: Annotated[str, typer.Argument(metavar="PRESET|FILE.toml", help="The experiment.")],
    folder: Annotated[Path, typer.Option("--dir", help="The coordinator's folder.")] = Path(),
    name: Annotated[str | None, typer.Option(help="Name of the run; the experiment's by default.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Repetitions with other random numbers.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="section.key=value", help="Change a key; repeatable.")
    ] = None,
    wait: Annotated[bool, typer.Option(help="Follow the run until it ends.")] = True,
) -> None:
    """Queue an experiment at the coordinator on this machine, and follow it.

    Example: fedprognos deploy run fleet.toml --dir deployment/coordinator
    """
    from fedprognos.deployment import CoordinatorOptions, coordinator_folder, deployable, read_options, submit
    from fedprognos.experiment import config

    changes = (*(overrides or ()), *([f"evaluation.seeds={seeds}"] if seeds is not None else []))
    experiment_name, experiment, _ = config.load(source, changes)
    place = coordinator_folder(folder)
    read_options(place, CoordinatorOptions)
    results = submit(place, name or experiment_name, deployable(experiment, _tell))
    console.print(f"queued; results will be in {results}")
    if wait:
        with _until_interrupted(f"no longer following; the run continues.  fedprognos deploy status {place}"):
            _follow(place, results)


def _follow(place: Path, results: Path) -> None:
    """Print the events of a run until it has ended."""
    from fedprognos.deployment import EVENTS, STATE, running
    from fedprognos.errors import FederationError

    events, warned = AddedLines(results / EVENTS), False
    list(events.read())  # those of an earlier attempt are not shown again
    while True:
        ended = read_object(results / STATE)
        for event in events.read():
            console.print(_event_line(event))
        if ended.get("state") == "done":
            report = results / "report.html"
            console.print(
                f"\nReport  {report if report.is_file() else 'none: see above'}\nModel   {results / 'bundle'}"
            )
            console.print("Each site has the model, its own head and its own report under results/ in its folder.")
            return
        if ended:
            raise FederationError(str(ended.get("error", "the run failed")), hint="Repeat the command to continue.")
        if not warned and running(place) is None:
            console.print(f"the coordinator is not running:  fedprognos deploy coordinator {place}")
            warned = True
        time.sleep(0.5)


@deploy_app.command()
def status(folder: Folder) -> None:
    """Show what a coordinator or a site does.

    Example: fedprognos deploy status plant-a
    """
    from fedprognos.deployment import EVENTS, STATUS, coordinator_folder, running

    place = coordinator_folder(folder)
    pid, kept, coordinates = running(place), read_object(place / STATUS), (place / "sites").is_dir()
    if pid is None:
        start = f"coordinator {place}" if coordinates else f"site {place} --data FLEET.csv"
        console.print(f"not running.  Start: fedprognos deploy {start}")
        return
    if not kept or not coordinates:
        doing = f"last asked: {kept['doing']}" if "doing" in kept else "starting"
        console.print(f"{kept.get('site', place.name)}: running (process {pid}), {doing}")
        return
    activity = f"{kept['experiment']}: {kept['phase']}" if "experiment" in kept else kept["phase"]
    console.print(f"coordinator: running (process {pid}), {activity}")
    for name, presence in kept["sites"].items():
        awaited = name in kept["waiting_for"]
        state = "online" if presence["online"] else "offline"
        doing = "" if not awaited else " (working)" if presence["online"] else " (waiting for it)"
        console.print(f"  {name}: {state}, last seen {presence['last_seen'] or 'never'}{doing}")
    files = sorted(place.glob(f"runs/*/{EVENTS}"), key=lambda path: path.stat().st_mtime)
    for event in list(AddedLines(files[-1]).read())[-3:] if files else ():
        console.print(f"  {_event_line(event)}")


@deploy_app.command()
def cancel(
    folder: Folder,
    name: Annotated[str | None, typer.Argument(help="Name of the run; by default the one that runs now.")] = None,
) -> None:
    """Take an experiment out of the coordinator's queue, also while it runs or waits for sites.

    Example: fedprognos deploy cancel deployment/coordinator
    """
    from fedprognos.deployment import STATUS, cancel, coordinator_folder

    place = coordinator_folder(folder)
    run_name = name or read_object(place / STATUS).get("experiment")
    if run_name is None:
        raise ConfigError("no experiment runs", where=str(place), hint="Name the run to cancel.")
    cancel(place, str(run_name))
    console.print(f"cancelled {run_name}; repeat `fedprognos deploy run` to continue it")


@deploy_app.command()
def stop(folder: Folder) -> None:
    """End the coordinator or site that runs from a folder. Start it again to continue.

    Example: fedprognos deploy stop plant-a
    """
    from fedprognos.deployment import coordinator_folder, stop_running

    console.print("stopped" if stop_running(coordinator_folder(folder)) else "was not running")


@deploy_app.command()
def approve(
    folder: Folder,
    contract: Annotated[str, typer.Option(help="First characters of the contract's digest; all that wait.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Approve without asking.")] = False,
) -> None:
    """Show the contracts that wait at a site, and approve them.

    Before that a site answers nothing about its data.

    Example: fedprognos deploy approve plant-a
    """
    from fedprognos.deployment import Approvals, SiteLedger, SiteOptions, in_words, read_options, reasons_to_refuse

    options = read_options(folder, SiteOptions)
    approvals, ledger = Approvals(folder, options.approved, options.members), SiteLedger(folder)
    entries = [
        entry
        for entry in approvals.entries()
        if (entry.contract.digest.startswith(contract) if contract else entry.state == "waiting")
    ]
    if not entries:
        console.print("no contract waits here. Start the site, and a run at the coordinator.")
    for entry in entries:
        lines = list(in_words(entry.contract, options.name))
        lines += [f"  UNUSUAL: {text}" for text in approvals.differences(entry.contract.digest) or ()]
        reasons = reasons_to_refuse(entry.contract, approvals, ledger, options)
        lines += [f"  WILL BE REFUSED: {reason}" for reason in reasons or ()]
        for line in lines:
            console.print(printable(line))
        if entry.state == "running":
            console.print("it is approved and running")
        elif reasons is None:
            console.print("not approved: the site has not compared it with earlier runs yet. Start the site and wait.")
        elif reasons:
            console.print("not approved: this site would refuse to begin this run")
        elif yes or typer.confirm("Approve this contract?"):
            approvals.approve(entry.contract.digest)
            console.print(f"approved: {entry.contract.digest}")


@deploy_app.command()
def ledger(folder: Folder) -> None:
    """Show what left a site, what it could reveal, what was refused, and whether the ledger is complete.

    Example: fedprognos deploy ledger plant-a
    """
    from fedprognos.deployment import Approvals, SiteLedger, SiteOptions, ledger_in_words, read_options

    read_options(folder, SiteOptions)  # a folder without a site has no ledger
    runs = {entry.contract.digest: entry.contract.run for entry in Approvals(folder).entries()}
    for line in ledger_in_words(SiteLedger(folder).lines(), runs):
        console.print(printable(line))


@deploy_app.command()
def metrics(
    folder: Folder,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 9464,
    host: Annotated[str, typer.Option(help="Address to listen on; there is no token.")] = "127.0.0.1",
) -> None:
    """Serve metrics of a coordinator or a site for Prometheus, read from its folder.

    Example: fedprognos deploy metrics plant-a --port 9464
    """
    from prometheus_client import start_http_server

    from fedprognos.deployment import coordinator_folder, folder_registry

    place = coordinator_folder(folder)
    try:
        _, thread = start_http_server(port, host, folder_registry(place))
    except OSError as error:
        hint = "is the port taken? choose another --port"
        raise OutputError(f"cannot listen on {host}:{port}: {error.strerror}", hint=hint) from None
    console.print(f"http://{host}:{port}/metrics  of {place}")
    with _until_interrupted("stopped"):
        thread.join()


def _event_line(event: Mapping[str, Any]) -> str:
    return printable(f"{event.get('time', '')}  {event.get('text', '')}")
