"""What screening's limits were chosen on: honest and hostile clients as the others' validation sums see them.

FD004, not the set-up of the poisoning tables, and no test label.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedprognos.experiment import config
from fedprognos.experiment.job import plan_of
from fedprognos.experiment.scenario import scenarios
from fedprognos.federation.client import Client
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.cohort import MessageCohort, gather
from fedprognos.federation.exchanges.evaluate import EvaluateReply, EvaluateRequest
from fedprognos.federation.exchanges.fit import FitReply, fit_request
from fedprognos.federation.exchanges.survey import common_recipe
from fedprognos.federation.plan import Plan
from fedprognos.federation.reply_journal import ReplyJournal
from fedprognos.files import write_json
from fedprognos.fleet import Fleet
from fedprognos.networks import Network
from fedprognos.networks.head import add_all, mean_squared_error, solve_head
from fedprognos.networks.torch_threads import one_torch_thread
from fedprognos.privacy.screening import ErrorsOf, capped_statistics, falls_without, heads_side_by_side, skill_shares
from studies.attacks import ATTACKS, Attack, FlippedClient
from studies.poisoning import PRESET, HostileTransport, write_between

PAGE, JSON = Path("docs/robustness.md"), Path("docs/results/screening.json")
SETUPS: Mapping[str, Mapping[str, Any]] = {
    "random": {"by": "random", "clients": 5},
    "by lifespan": {"by": "lifespan", "edges": [170, 210, 250, 300]},
}
WEIGHTS = ("times-ten", "ones", "random", "sign", "little", "inner", "flipped")
STATISTICS = ("statistics", "hy", "flipped")
MEASURES = {
    "skill": "explained, as a share of the median model",
    "bodies": "harm of a model to the mean",
    "statistics": "harm of statistics to the exact head",
}
Found = dict[str, dict[str, dict[str, list[float]]]]
"""By set-up, measure, and `honest` or an attack: one value for each client in that role."""


@dataclass(frozen=True, eq=False)
class Bench:
    """Five clients that trained once, honestly and with flipped labels; attacks change what they sent."""

    plan: Plan
    honest: MessageCohort
    flipped: MessageCohort

    @staticmethod
    def of(partition: Mapping[str, Any], data_dir: Path | None, folder: Path) -> Bench:
        changes = {
            "data": {"subset": "FD004"},
            "recipe": {"stride": 20, "conditions": {"setting_1": 0, "setting_2": 2}},
        }
        raw = config.merged(PRESET, changes)
        _, experiment, base = config.load({**raw, "partition": dict(partition)})
        (scenario,) = scenarios(experiment, data_dir, base).values()

        def cohort(kind: type[Client], fleets: Mapping[str, Fleet]) -> MessageCohort:
            place = folder / kind.__name__
            members = {name: kind(name, fleet, ClientFolder(place / name)) for name, fleet in fleets.items()}
            return MessageCohort(HostileTransport(members, "", ATTACKS[0], ReplyJournal(place / "replies")))

        honest = cohort(Client, scenario.clients)
        recipe = common_recipe(honest, experiment.recipe, experiment.federation, lambda failure: None)
        return Bench(plan_of(experiment, recipe, 0), honest, cohort(FlippedClient, scenario.clients))

    def measured(self) -> dict[str, dict[str, list[float]]]:
        """All measures, for honest clients among honest ones and for each client as a hostile one."""
        requests = {name: fit_request(self.plan, None, None, 1) for name in self.honest.clients}
        fits = gather(self.honest, requests, FitReply, None, lambda failure: None)
        upside_down = gather(self.flipped, requests, FitReply, None, lambda failure: None)
        found: dict[str, dict[str, list[float]]] = {measure: {} for measure in MEASURES}

        def note(measure: str, role: str, value: float) -> None:
            found[measure].setdefault(role, []).append(round(value, 3))

        network, replies = self._evaluated(fits, self.honest)
        for name in fits:
            note("skill", "honest", self._skill(fits, replies)[name])
            note("bodies", "honest", _harm(name, self._of_bodies(fits, replies)))
            note("statistics", "honest", _harm(name, self._of_statistics(replies)))
        for attack in (one for one in ATTACKS if one.name in {*WEIGHTS, *STATISTICS}):
            for name in fits:
                others = {other: reply for other, reply in fits.items() if other != name}
                if attack.name in WEIGHTS:
                    own = upside_down[name] if attack.flipped else fits[name]
                    sent = attack.change(requests[name], own, others)
                    changed = {**others, name: sent}
                    _, seen = self._evaluated(changed, self.honest)
                    note("skill", attack.name, self._skill(changed, seen)[name])
                    note("bodies", attack.name, _harm(name, self._of_bodies(changed, seen)))
                if attack.name in STATISTICS:
                    seen = {**replies, name: self._lie(attack, name, network, replies)}
                    note("statistics", attack.name, _harm(name, self._of_statistics(seen)))
        return found

    def _evaluated(
        self, fits: Mapping[str, FitReply], cohort: MessageCohort
    ) -> tuple[Network, dict[str, EvaluateReply]]:
        network = Network.concat([Network(self.plan.spec, fits[name].weights) for name in sorted(fits)])
        request = EvaluateRequest(self.plan.recipe, network, self.plan.seed, self.plan.train.validation_fraction, True)
        asked = dict.fromkeys(cohort.clients, request)
        return network, gather(cohort, asked, EvaluateReply, None, lambda failure: None)

    def _lie(self, attack: Attack, name: str, network: Network, replies: Mapping[str, EvaluateReply]) -> EvaluateReply:
        request = EvaluateRequest(self.plan.recipe, network, self.plan.seed, self.plan.train.validation_fraction, True)
        if attack.flipped:
            return gather(self.flipped, {name: request}, EvaluateReply, None, lambda failure: None)[name]
        changed: EvaluateReply = attack.change(request, replies[name], {})
        return changed

    def _heads(self, fits: Mapping[str, FitReply]) -> dict[str, Any]:
        return heads_side_by_side({name: Network(self.plan.spec, fit.weights) for name, fit in fits.items()})

    def _skill(self, fits: Mapping[str, FitReply], replies: Mapping[str, EvaluateReply]) -> dict[str, float]:
        judges = {name: judge for name, reply in replies.items() if (judge := reply.held or reply.fit) is not None}
        return skill_shares(self._heads(fits), judges)

    def _of_bodies(
        self, fits: Mapping[str, FitReply], replies: Mapping[str, EvaluateReply]
    ) -> tuple[ErrorsOf, list[str]]:
        heads = self._heads(fits)
        judges = {name: judge for name, reply in replies.items() if (judge := reply.held or reply.fit) is not None}

        def errors(members: Any) -> Mapping[str, float]:
            head = np.mean([heads[name] for name in members], axis=0)
            return {name: mean_squared_error(judge, head) for name, judge in judges.items()}

        return errors, sorted(judges)

    def _of_statistics(self, replies: Mapping[str, EvaluateReply]) -> tuple[ErrorsOf, list[str]]:
        parts = {name: (reply.fit, reply.held) for name, reply in replies.items() if reply.fit is not None}
        capped = capped_statistics(parts, self.plan.federation.weight_cap)
        fits = {name: fit for name, (fit, _) in capped.items()}
        judges = {name: held or fit for name, (fit, held) in capped.items()}

        def errors(members: Any) -> Mapping[str, float]:
            head = solve_head(add_all(fits[name] for name in members), self.plan.federation.ridge)
            return {name: mean_squared_error(judge, head) for name, judge in judges.items()}

        return errors, sorted(fits)


def _harm(name: str, votes: tuple[ErrorsOf, list[str]]) -> float:
    """By how much the error of the median other client falls without this one."""
    errors, names = votes
    return float(np.median(falls_without(name, names, errors, errors(names))))


def write_screening(
    data_dir: Path | None = None, *, out: Path = JSON, page: Path = PAGE, tell: Callable[[str], None] = print
) -> Path:
    """Measure both set-ups, and write the JSON and the table of the page anew."""
    found: Found = {}
    for setup, partition in SETUPS.items():
        with one_torch_thread(), tempfile.TemporaryDirectory() as folder:
            bench = Bench.of(partition, data_dir, Path(folder))
            found[setup] = bench.measured()
        tell(f"{setup}: {found[setup]}")
        write_json(out, found)
    if page.is_file():
        write_between(page, "screening", table(found))
    return out


def table(found: Found) -> str:
    """The worst honest client beside the least conspicuous hostile one."""
    lines = [
        "| FD004, five clients | measure | worst honest client | least conspicuous hostile one |",
        "|---|---|---|---|",
    ]
    for setup, measures in found.items():
        for measure, label in MEASURES.items():
            worst, mildest = (min, max) if measure == "skill" else (max, min)
            roles = measures[measure]
            attacks = {role: mildest(values) for role, values in roles.items() if role != "honest"}
            role = mildest(attacks, key=lambda one: attacks[one])
            named = next(attack.label for attack in ATTACKS if attack.name == role)
            lines.append(
                f"| {setup} | {label} | {100 * worst(roles['honest']):.0f} % | {100 * attacks[role]:.0f} % ({named}) |"
            )
    return "\n".join(lines) + "\n"
