"""What a run looks like in a terminal: progress bars while it works, a table at the end, plain lines elsewhere."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from fedprognos.evaluation import EVERYONE, Metric, Results, Summary, metrics
from fedprognos.experiment.events import (
    BASELINES,
    EpochDone,
    Event,
    JobDone,
    LayerMatched,
    LeftOut,
    NeuronsAbsorbed,
    Notice,
    RoundDone,
    RunStarted,
)
from fedprognos.federation.strategies import strategies

if TYPE_CHECKING:
    from fedprognos.report import RunData

SHOWN_CLIENTS = 12
LEFT = ("method", "head", "data")


class RunView:
    """Shows the events of a run on a console; use as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        if console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("epochs"),
                TextColumn("{task.fields[rate]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=console,
            )

    def __enter__(self) -> RunView:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, event: Event) -> None:
        with self._lock:
            match event:
                case RunStarted():
                    self._start(event)
                case EpochDone():
                    self._advance(1, escape(f"{event.job.method} {event.client}"))
                case JobDone():
                    self._advance(event.epochs, escape(str(event.job)))
                    self._console.print(f"  [green]done[/] {escape(str(event.job))}{_verdict(event)}", highlight=False)
                case LayerMatched():
                    self._say(f"{event.job} round {event.round}: {matched_words(event)}")
                case NeuronsAbsorbed():
                    kept = list(event.kept.items())
                    each = ", ".join(f"{client} {count}" for client, count in kept[:SHOWN_CLIENTS])
                    more = f" and {len(kept) - SHOWN_CLIENTS} more" if len(kept) > SHOWN_CLIENTS else ""
                    total = sum(event.kept.values())
                    self._say(f"{event.job} round {event.round}: {total} of {event.neurons} neurons kept: {each}{more}")
                case RoundDone() if strategies[event.job.method].federated:
                    errors = ", ".join(f"{head} {rmse:.4g}" for head, rmse in event.rmse.items())
                    capped = "" if event.cap is None else f", labels capped at {event.cap:g}"
                    traffic = f"{event.bytes / 1e6:.1f} MB so far"
                    self._say(f"{event.job} round {event.round}: test RMSE {errors}{capped}; {traffic}")
                case LeftOut():
                    self._console.print(
                        f"  [yellow]left out[/] {escape(f'{event.client} ({event.job}): {event.text}')}",
                        highlight=False,
                    )
                case Notice():
                    self._console.print(f"  [yellow]note[/] {escape(event.text)}", highlight=False)

    def _say(self, text: str) -> None:
        self._console.print(f"  [dim]{escape(text)}[/]", highlight=False)

    def _start(self, event: RunStarted) -> None:
        for scenario, clients in event.clients.items():
            table = Table(title=escape(f"Clients ({scenario})"), title_justify="left", box=None, padding=(0, 2))
            for column in ("client", "units", "rows", "lifespans"):
                table.add_column(column, justify="left" if column == "client" else "right")
            for name, fleet in sorted(clients.items())[:SHOWN_CLIENTS]:
                spans = [unit.lifespan for unit in fleet]
                table.add_row(escape(name), str(len(fleet)), f"{fleet.rows:,}", f"{min(spans):g}-{max(spans):g}")
            self._console.print(table)
            if len(clients) > SHOWN_CLIENTS:
                self._console.print(f"  and {len(clients) - SHOWN_CLIENTS} more")
        if event.reused:
            self._console.print(f"  {len(event.reused)} of {len(event.jobs)} jobs were done before and are reused")
        if self._progress is not None and event.epochs:
            self._task = self._progress.add_task("training", total=event.epochs, rate="")

    def _advance(self, epochs: int, what: str) -> None:
        if self._progress is None or self._task is None:
            return
        task = self._progress.tasks[0]
        rate = f"{task.speed:.1f}/s" if task.speed else ""
        self._progress.update(self._task, advance=epochs, description=what, rate=rate)


def matched_words(event: LayerMatched) -> str:
    """How a layer was matched: whose its neurons are, and what to do where nothing was merged."""
    clients, alone = len(event.singletons), sum(event.singletons.values())
    said = f"{event.layer} matched to {event.width} neurons"
    if clients < 2:
        return f"{said}; a single client has nothing to match"
    everyone = round(event.shared_by_all * event.width)
    said += f": {everyone} shared by all, {event.width - everyone - alone} by some, {alone} held by one client"
    if event.absorbing != "all kept":
        return said
    return f"{said}. Nothing was merged; raise federation.fedma.noise, set its width_limit, or use the method absorb"


def _verdict(event: JobDone) -> str:
    rows = [row for row in event.rows if row.test_client == EVERYONE] or list(event.rows)
    if event.job.method == BASELINES or not rows:
        return ""
    capped = [row.scores.get("rmse_capped") for row in rows]
    errors = [row.rmse if deciding is None else deciding for row, deciding in zip(rows, capped, strict=True)]
    kind = "RMSE" if None in capped else "RMSE capped"
    values = " / ".join(f"{error:.4g}" for error in errors[:6])
    collapsed = sum(row.collapsed for row in event.rows)
    return f": {kind} {values} {rows[0].measure}" + (" [red](collapsed to the mean)[/]" if collapsed else "")


def answers(runs: Sequence[RunData]) -> Text:
    """What the report's first screen says, one paragraph a scenario, with the model that it is about."""
    from fedprognos.report import answer

    text = Text()
    for run in runs:
        found, together = answer(run), run.roles.together
        text.append(f"{run.scenario}: " if len(runs) > 1 else "")
        text.append(found.headline, style="bold")
        text.append(f" {found.beside} {' '.join(found.warnings)}".rstrip())
        why = f": {run.results.reason}" if run.results.reason else ""
        text.append(f" Together is {together.label}{why}.\n" if together is not None else "\n")
    text.rstrip()
    return text


def results_table(results: Results) -> list[Table]:
    """Tables of methods, one a scenario: mean and spread over seeds. The report has every client by itself."""
    return [_scenario_table(results, scenario) for scenario in dict.fromkeys(row.scenario for row in results.rows)]


def _scenario_table(results: Results, scenario: str) -> Table:
    found = [one for one in results.summary(scenario) if one.selected_on != "test"]
    shown = [m for m in metrics.values() if m.headline and any(one.values(m.name).size for one in found)]
    title = f"{scenario}: test errors in {found[0].rows[0].measure}"
    table = Table(title=escape(title), title_justify="left", header_style="bold")
    table.box, table.pad_edge, table.collapse_padding = box.SIMPLE_HEAD, False, True
    for name in (*LEFT, "n", *(metric.label for metric in shown), "width"):
        table.add_column(escape(name), justify="left" if name in LEFT else "right", no_wrap=True)
    best = {m.name: min((_badness(m, one) for one in found), default=math.inf) for m in shown}
    previous = ""
    for one in found:
        if previous and one.method != previous:
            table.add_section()
        width = one.rows[0].width
        table.add_row(
            escape(one.method) if one.method != previous else "",
            escape(one.head or ""),
            escape(one.data),
            str(one.n_test),
            *(_cell(one, m, m.best is not None and _badness(m, one) == best[m.name]) for m in shown),
            "" if width is None else "+".join(map(str, width)),
        )
        previous = one.method
    return table


def _badness(metric: Metric, one: Summary) -> float:
    mean = one.mean(metric.name)
    return math.inf if mean is None else metric.badness(mean)


def _cell(one: Summary, metric: Metric, best: bool) -> str:
    mean, spread = one.mean(metric.name), one.spread(metric.name)
    if mean is None:
        return "-"
    text = f"{mean:.1%}" if metric.percent else f"{mean:.4g}" + ("" if spread is None else f" ± {spread:.2g}")
    return f"[bold green]{text}[/]" if best else text
