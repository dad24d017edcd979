"""Following a run in TensorBoard or MLflow: observers that write every round and job as it ends."""

from __future__ import annotations

from pathlib import Path

from fedprognos.errors import MissingExtraError
from fedprognos.experiment.run_events import Event, JobDone, Observer, RoundDone


def tensorboard(folder: str | Path) -> Observer:
    """Write test and validation errors of every round as scalars, one run a job."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingExtraError("tensorboard", "track", "--tensorboard") from None

    def observer(event: Event) -> None:
        if not isinstance(event, RoundDone):
            return
        with SummaryWriter(str(Path(folder) / str(event.job).replace(" ", "-"))) as writer:
            for tag, value in _round_values(event).items():
                writer.add_scalar(tag, value, event.round)

    return observer


def mlflow(uri: str, experiment: str) -> Observer:
    """Log every job as an MLflow run: rounds as metrics with steps, the final scores at the end."""
    try:
        from mlflow.tracking import MlflowClient
    except ImportError:
        raise MissingExtraError("mlflow", "track", "--mlflow") from None
    client = MlflowClient(tracking_uri=uri)
    existing = client.get_experiment_by_name(experiment)
    experiment_id = existing.experiment_id if existing is not None else client.create_experiment(experiment)
    runs: dict[str, str] = {}

    def observer(event: Event) -> None:
        if not isinstance(event, RoundDone | JobDone):
            return
        job = str(event.job)
        if job not in runs:
            tags = {"scenario": event.job.scenario, "method": event.job.method, "seed": str(event.job.seed)}
            runs[job] = client.create_run(experiment_id, run_name=job, tags=tags).info.run_id
        if isinstance(event, RoundDone):
            for tag, value in _round_values(event).items():
                client.log_metric(runs[job], tag.replace("/", "."), value, step=event.round)
            return
        for row in event.rows:
            if row.test_client == "all":
                client.log_metric(
                    runs[job], f"final.{row.method}.{row.head or 'none'}.rmse".replace("+", "-"), row.rmse
                )
        client.set_terminated(runs[job])

    return observer


def _round_values(event: RoundDone) -> dict[str, float]:
    values = {f"test_rmse/{head}": rmse for head, rmse in event.rmse.items()}
    values |= {f"validation_rmse/{head}": v for head, v in event.validation_rmse.items() if v is not None}
    return {**values, "traffic_in_MB": event.bytes / 1e6}
