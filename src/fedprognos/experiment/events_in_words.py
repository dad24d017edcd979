"""Events of a run or a search in words: what terminal and coordinator print."""

from __future__ import annotations

from collections.abc import Mapping

from fedprognos.evaluation import summarise
from fedprognos.experiment.run_events import (
    BASELINES,
    Event,
    JobDone,
    LayerMatched,
    LeftOut,
    NeuronsAbsorbed,
    Notice,
    RecipeTried,
    RoundDone,
    SearchEvent,
    Trial,
    TrialDone,
)
from fedprognos.experiment.search_space import Choice

SHOWN_CLIENTS = 12


def event_words(event: Event | SearchEvent) -> str:
    """An event as one line; empty for events that are not shown."""
    match event:
        case LayerMatched():
            return f"{event.job} round {event.round}: {matched_words(event)}"
        case NeuronsAbsorbed():
            kept = list(event.kept.items())
            by_client = ", ".join(f"{client} {count}" for client, count in kept[:SHOWN_CLIENTS])
            more = f" and {len(kept) - SHOWN_CLIENTS} more" if len(kept) > SHOWN_CLIENTS else ""
            total = sum(event.kept.values())
            return f"{event.job} round {event.round}: {total} of {event.neurons} neurons kept: {by_client}{more}"
        case RoundDone():
            return f"{event.job} round {event.round}: {_round_words(event)}"
        case LeftOut():
            return f"{event.client} ({event.job}, {event.code}): {event.text}"
        case JobDone():
            return f"{event.job}{_job_words(event)}"
        case TrialDone():
            return trial_words(event.trial)
        case Notice() | RecipeTried():
            return event.text
    return ""


def matched_words(event: LayerMatched) -> str:
    """How a layer was matched: whose its neurons are, and what to do where nothing was merged."""
    clients, alone = len(event.singletons), sum(event.singletons.values())
    words = f"{event.layer} matched to {event.width} neurons"
    if clients < 2:
        return f"{words}; a single client has nothing to match"
    everyone = round(event.shared_by_all * event.width)
    words += f": {everyone} shared by all, {event.width - everyone - alone} by some, {alone} held by one client"
    if event.absorbing != "all kept":
        return words
    return f"{words}. Nothing was merged; raise federation.fedma.noise, set its width_limit, or use the method absorb"


def _round_words(event: RoundDone) -> str:
    """Test errors where they are known, else validation errors; and the traffic so far."""
    validated = {head: error for head, error in event.validation_rmse.items() if error is not None}
    errors = ", ".join(f"{head} {error:.4g}" for head, error in (event.rmse or validated).items())
    kind = "test RMSE" if event.rmse else "validation RMSE"
    capped = "" if event.cap is None else f", labels capped at {event.cap:g}"
    return f"{kind} {errors or 'none'}{capped}; {event.messages} messages, {event.bytes / 1e6:.1f} MB so far"


def _job_words(event: JobDone) -> str:
    """The errors of the job's own method by head; clients' own models are pooled into one error."""
    if event.job.method == BASELINES:
        return ""
    errors, capped = [], False
    for summary in summarise(event.rows):
        if summary.method.partition("+")[0] == event.job.method and summary.selected_on != "test":
            capped_error = summary.mean("rmse_capped")
            capped = capped_error is not None
            errors.append(f"{summary.head} {summary.mean('rmse') if capped_error is None else capped_error:.4g}")
    if not errors:
        return ""
    return f": RMSE{' capped' if capped else ''} {', '.join(errors)} {event.rows[0].measure}"


def trial_words(trial: Trial) -> str:
    """A finished trial: its error or why it failed, and its values."""
    error = "" if trial.error is None else f" {trial.error:.4g}"
    reason = f" {trial.reason}" if trial.reason else ""
    return f"trial {trial.number}:{error}{reason} ({values_words(trial.values)})"


def values_words(values: Mapping[str, Choice]) -> str:
    """Hyper-parameters by the last part of their keys."""
    return ", ".join(f"{short_key(name)} {value}" for name, value in values.items())


def short_key(name: str) -> str:
    """The last part of a key, as a table has room for it.

    >>> short_key("train.learning_rate")
    'learning rate'
    """
    return name.rpartition(".")[2].replace("_", " ")
