"""What a broken or hostile site sends instead of an honest reply, and a transport that lets one client send it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedprognos.evaluation import ScoreSums
from fedprognos.features import Moments, WearSums
from fedprognos.federation.client import Client
from fedprognos.federation.codec import decode, encode
from fedprognos.federation.exchanges import Failure, reply_kinds
from fedprognos.federation.exchanges.choice import ChoiceReply
from fedprognos.federation.exchanges.evaluate import ErrorSums, EvaluateReply
from fedprognos.federation.exchanges.fit import FitReply
from fedprognos.federation.exchanges.outputs import OutputsReply
from fedprognos.federation.exchanges.personal import PoolReply
from fedprognos.federation.exchanges.residuals import ResidualReply
from fedprognos.federation.exchanges.scores import ScoreReply
from fedprognos.federation.exchanges.survey import OutlineReply, SurveyReply
from fedprognos.federation.exchanges.wear import WearReply
from fedprognos.networks.pooling import CentredSums

Lie = Callable[[Any], Any]


def survey(**changes: Callable[[Moments], Any]) -> Lie:
    """Other moments in every condition."""

    def lie(reply: SurveyReply) -> SurveyReply:
        cells = {
            key: replace(m, **{name: change(m) for name, change in changes.items()})
            for key, m in reply.survey.cells.items()
        }
        return SurveyReply(replace(reply.survey, cells=cells))

    return lie


def statistics(**changes: Callable[[Any], Any]) -> Lie:
    """Other statistics of the head."""

    def lie(reply: EvaluateReply) -> EvaluateReply:
        if reply.fit is None:
            return reply
        return replace(reply, fit=replace(reply.fit, **{name: change(reply.fit) for name, change in changes.items()}))

    return lie


def first_weight(value: float) -> Lie:
    def lie(reply: FitReply) -> FitReply:
        name = min(reply.weights)
        return replace(reply, weights={**reply.weights, name: np.full_like(reply.weights[name], value)})

    return lie


def renamed(reply: SurveyReply) -> SurveyReply:
    cells = {(*key, 7.5): moments for key, moments in reply.survey.cells.items()}
    return SurveyReply(replace(reply.survey, cells=cells))


def other_columns(reply: SurveyReply) -> SurveyReply:
    schema = replace(reply.survey.schema, sensors=tuple(f"x{k}" for k in range(len(reply.survey.schema.sensors))))
    return SurveyReply(replace(reply.survey, schema=schema))


def scores(**changes: Callable[[ScoreSums], ScoreSums]) -> Lie:
    """Other sums of errors."""

    def lie(reply: ScoreReply) -> ScoreReply:
        parts = {name: change(part) for name, change in changes.items() if (part := getattr(reply, name)) is not None}
        return replace(reply, **parts) if parts else reply

    return lie


def wear(**changes: Callable[[WearSums], Any]) -> Lie:
    """Other sums of correlations."""
    return lambda reply: WearReply(replace(reply.sums, **{name: make(reply.sums) for name, make in changes.items()}))


def any_level(reply: SurveyReply) -> SurveyReply:
    usual = reply.survey.usual
    wide = None if usual is None else usual.model_copy(update={"high": (1e9,) * len(usual.high)})
    return SurveyReply(replace(reply.survey, usual=wide))


LIES: dict[str, tuple[type, Lie]] = {
    "sensors at any level": (SurveyReply, any_level),
    "moments of another shape": (SurveyReply, survey(mean=lambda m: np.zeros(99))),
    "negative squares": (SurveyReply, survey(m2=lambda m: -m.m2 - 1)),
    "a deviation of 1e12": (SurveyReply, survey(m2=lambda m: np.full_like(m.m2, m.n * 1e24))),
    "a mean of 1e30": (SurveyReply, survey(mean=lambda m: np.full_like(m.mean, 1e30))),
    "an unknown condition": (SurveyReply, renamed),
    "no condition at all": (SurveyReply, lambda r: SurveyReply(replace(r.survey, cells={}))),
    "other columns": (SurveyReply, other_columns),
    "labels beyond the cap": (
        SurveyReply,
        lambda r: SurveyReply(replace(r.survey, labels=replace(r.survey.labels, mean=np.array([1e6])))),
    ),
    "10**400 windows": (FitReply, lambda r: replace(r, windows=10**400)),
    "10**9 windows": (FitReply, lambda r: replace(r, windows=10**9)),
    "no windows": (FitReply, lambda r: replace(r, windows=0)),
    "a history of 1000 epochs": (FitReply, lambda r: replace(r, history=r.history * 1000)),
    "weights of 1e30": (FitReply, first_weight(1e30)),
    "another kind of reply": (FitReply, lambda r: EvaluateReply(None)),
    "statistics of another shape": (EvaluateReply, statistics(hh=lambda s: np.eye(3))),
    "statistics that are not positive": (EvaluateReply, statistics(hh=lambda s: -s.hh)),
    "H'H x 1000": (EvaluateReply, statistics(hh=lambda s: 1000 * s.hh)),
    "outputs beyond 1": (EvaluateReply, statistics(hh=lambda s: s.hh + np.diag([*[1e3 * s.n] * (len(s.hy) - 1), 0]))),
    "labels that cannot be": (EvaluateReply, statistics(hy=lambda s: 1000 * s.hy)),
    "statistics of 10**8 rows": (EvaluateReply, statistics(n=lambda s: 10**8)),
    "no statistics": (EvaluateReply, lambda r: replace(r, fit=None, held=None) if r.fit is not None else r),
    "errors that no predictions have": (
        EvaluateReply,
        lambda r: replace(r, validation=ErrorSums(r.validation.n, 1e9, 1.0, 1.0)) if r.validation else r,
    ),
    "outputs of other layers": (OutputsReply, lambda r: OutputsReply(r.layers * 2)),
    "outputs of another shape": (OutputsReply, lambda r: OutputsReply((replace(r.layers[0], S=np.eye(2)),))),
    "outputs that are not positive": (
        OutputsReply,
        lambda r: OutputsReply(tuple(replace(o, S=-o.S) for o in r.layers)),
    ),
    "outputs of 1000 times the time steps": (
        OutputsReply,
        lambda r: OutputsReply(tuple(replace(o, n=1000 * o.n, s=1000 * o.s, S=1000 * o.S) for o in r.layers)),
    ),
    "more beginnings than time steps": (
        OutputsReply,
        lambda r: OutputsReply(tuple(replace(o, starts=o.n + 1) for o in r.layers)),
    ),
    "pooled sums that are not positive": (
        PoolReply,
        lambda r: PoolReply(tuple(f and CentredSums(f.n, -f.scatter, f.slope) for f in r.fits)),
    ),
    "negative residuals": (ResidualReply, lambda r: replace(r, counts=-r.counts)),
    "a negative sum of squared residuals": (ResidualReply, lambda r: replace(r, squared=-1.0)),
    "residuals of 10**8 points": (ResidualReply, lambda r: replace(r, counts=r.counts * 10**6)),
    "another kind of outline": (OutlineReply, lambda r: EvaluateReply(None)),
    "an outline of an unknown condition": (OutlineReply, lambda r: replace(r, conditions=((0.5,),))),
    "an outline of 10,000 conditions": (OutlineReply, lambda r: replace(r, conditions=r.conditions * 10_000)),
    "an outline of negative lengths": (OutlineReply, lambda r: replace(r, shortest=-1)),
    "scores of 10**8 points": (ScoreReply, scores(test=lambda s: replace(s, n=10**8))),
    "validation of more points than there are": (ScoreReply, scores(validation=lambda s: replace(s, n=10**4))),
    "wear of another shape": (WearReply, wear(total=lambda s: np.zeros(99))),
    "correlations beyond 1": (WearReply, wear(total=lambda s: np.full_like(s.total, 2.0 * s.n))),
    "wear that is not positive": (WearReply, wear(products=lambda s: -s.products)),
    "squares too small for their mean": (
        WearReply,
        wear(total=lambda s: np.full_like(s.total, 0.9 * s.n), products=lambda s: np.zeros_like(s.products)),
    ),
    "wear of 10**8 units": (WearReply, wear(n=lambda s: 10**8)),
    "wear of no units": (WearReply, wear(n=lambda s: 0)),
    "wear of minus one unit": (WearReply, wear(n=lambda s: -1)),
    "another kind of wear": (WearReply, lambda r: EvaluateReply(None)),
    "an unknown kind of head": (ChoiceReply, lambda r: replace(r, kind="best of all")),
    "a head of negative strength": (ChoiceReply, lambda r: replace(r, strength=-1.0)),
    "a head with a share above one": (ChoiceReply, lambda r: replace(r, share=7.0)),
    "a choice from 10**8 windows": (ChoiceReply, lambda r: replace(r, windows=10**8)),
    "another kind of choice": (ChoiceReply, lambda r: EvaluateReply(None)),
    "another kind of score": (ScoreReply, lambda r: EvaluateReply(None)),
}


@dataclass
class LyingTransport:
    """Clients of this process; one of them changes its replies of one kind."""

    members: Mapping[str, Client]
    liar: str
    kind: type
    lie: Lie
    lied: int = 0
    sent: list[bytes] = field(default_factory=list)

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(sorted(self.members))

    def send(self, requests: Mapping[str, bytes]) -> dict[str, bytes | Failure]:
        replies: dict[str, bytes | Failure] = {}
        for name, data in requests.items():
            reply = self.members[name].respond(data)
            if name == self.liar:
                honest = decode(reply, reply_kinds())
                if isinstance(honest, self.kind) and (changed := self.lie(honest)) is not honest:
                    reply = encode(changed)
                    self.lied += 1
                    self.sent.append(reply)
            replies[name] = reply
        return replies
