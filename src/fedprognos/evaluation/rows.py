"""One result: a method with a head, trained on some clients, tested on one of them, with one seed."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

OLD_NAMES = {
    "setting": "scenario",
    "unit": "measure",
    "time_unit": "time_measure",
    "target_unit": "target_measure",
}
"""Fields as version 0.1 wrote them."""


def with_new_names(raw: Any) -> Any:
    """What version 0.1 wrote, with the fields named as they are today."""
    return {OLD_NAMES.get(key, key): value for key, value in raw.items()} if isinstance(raw, dict) else raw


class ResultRow(BaseModel):
    """One final result. Rounds of a federation are history, not rows.

    The fields declared here say what was scored. Every further field is the value of a metric, None where that does
    not apply: see :attr:`scores`.

    Parameters
    ----------
    rmse_low, rmse_high
        Bounds of the RMSE in 95 % of bootstrap samples of the test units.
    measure
        What errors are counted in, such as cycles or Ah.
    scored_on
        Validation parts where sites of a deployed federation have too few test units to send anything of them.
    left_out
        Clients that were found to harm the others on the way to this model.
    """

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, float | None] = Field(init=False)

    scenario: str
    method: str
    head: str | None = None
    train_clients: tuple[str, ...]
    test_client: str
    seed: int
    round: int | None = None
    selected_on: Literal["validation", "test", "last"]
    n_test: int
    n_units: int
    rmse_low: float | None = None
    rmse_high: float | None = None
    measure: str
    width: tuple[int, ...] | None = None
    parameters: int | None = None
    local_epochs: int | None = None
    bytes: int | None = None
    collapsed: bool = False
    scored_on: Literal["test", "validation"] = "test"
    left_out: tuple[str, ...] = ()

    _renamed = model_validator(mode="before")(with_new_names)

    @model_validator(mode="after")
    def _has_an_error(self) -> ResultRow:
        if self.scores.get("rmse") is None:
            raise ValueError("a result without an RMSE")
        return self

    @property
    def scores(self) -> dict[str, float | None]:
        """Values by metric."""
        return self.__pydantic_extra__

    @property
    def rmse(self) -> float:
        """The error that models are compared by."""
        return self.scores["rmse"] or 0.0


class HistoryRow(BaseModel):
    """One epoch of local training, or (without `epoch`) the federated model after a round.

    `client` is who trained, or whom the model was tested on; `validation_rmse` is on capped labels of what training
    kept out; `bytes` and `messages` count all traffic of the method so far.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    scenario: str
    method: str
    seed: int
    client: str
    round: int
    epoch: int | None = None
    train_rmse: float | None = None
    validation_rmse: float | None = None
    head: str | None = None
    rmse: float | None = None
    rmse_capped: float | None = None
    width: tuple[int, ...] | None = None
    bytes: int | None = None
    messages: int | None = None

    _renamed = model_validator(mode="before")(with_new_names)
