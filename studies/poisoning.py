"""The poisoning study: one of five clients is hostile; what the shared model and the owners lose, mode by mode."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np

from fedprognos.errors import FederationError
from fedprognos.evaluation import EVERYONE
from fedprognos.experiment import config
from fedprognos.experiment.evaluator import EvaluationWindows, errors, evaluation_windows, network_predictor
from fedprognos.experiment.job import plan_of
from fedprognos.experiment.scenario import Scenario, scenarios
from fedprognos.features import Recipe, WindowSet
from fedprognos.federation.client import Client
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.codec import decode, encode
from fedprognos.federation.cohort import Cohort, MessageCohort, OnLeftOut, digest
from fedprognos.federation.exchanges import Failure, Reply, reply_kinds, request_kinds
from fedprognos.federation.exchanges.choice import chosen_heads
from fedprognos.federation.exchanges.personal import head_name
from fedprognos.federation.exchanges.survey import common_recipe
from fedprognos.federation.heads import Judged, judged_rounds
from fedprognos.federation.plan import Plan
from fedprognos.federation.reply_journal import ReplyJournal
from fedprognos.federation.strategies import strategies
from fedprognos.federation.totals import OpenSums
from fedprognos.files import write_json
from fedprognos.networks import Network, head_statistics, predict, solve_head
from fedprognos.networks.torch_threads import one_torch_thread
from studies.attacks import ATTACKS, NEWEST, PAIRS, TRIGGER_LEVEL, WORN, Attack, with_trigger

PRESET = "study-poisoning"
PAGE, JSON = Path("docs/robustness.md"), Path("docs/results/poisoning.json")
FD004 = (
    "data.subset=FD004",
    "recipe.conditions={ setting_1 = 0, setting_2 = 2 }",
    "recipe.stride=16",
    'federation.methods=["fedavg", "concat"]',
)
"""The same study on 249 engines under six operating conditions: half of the windows, two methods."""
TWO_METHODS = 'federation.methods=["fedavg", "concat"]'
WORST = tuple(
    attack
    for attack in (*ATTACKS, *NEWEST)
    if attack.name
    in (
        *("none", "double", "flipped", "late", "backdoor", "new", "worn", "replacement", "smooth"),
        *("hidden", "shuffled"),
    )
)
"""Wrong statistics, wrong labels and backdoors: what is not left out, or costs owners most."""
PARTS: dict[str, tuple[tuple[Attack, ...], tuple[str, ...]]] = {
    "poisoning": ((*ATTACKS, *NEWEST), (TWO_METHODS,)),
    "poisoning_matched": (WORST, ('federation.methods=["fedma", "absorb"]',)),
    "poisoning_fd004": (WORST, FD004),
    "poisoning_pairs": (PAIRS, (TWO_METHODS, "partition.clients=7", "federation.min_clients=5")),
}
"""Parts of the page by the names of their files: which attacks, and what differs from the preset."""
REPLIES = Path("build/poisoning")
"""Honest replies are kept here, so that what was trained once is not trained for the next attack."""
MODES = ("masked", "checked")
Measured = dict[str, dict[str, Any]]
"""By `mode/attack/method/seed`: test RMSE of the shared model by head and of what owners end with, and who is named."""


@dataclass(eq=False)
class HostileTransport:
    """Clients in this process, some of which send what an attack says. Honest replies are remembered by request."""

    members: Mapping[str, Client]
    hostile: tuple[str, ...]
    attack: Attack
    journal: ReplyJournal | None

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(sorted(self.members))

    def send(self, requests: Mapping[str, bytes]) -> dict[str, bytes | Failure]:
        replies: dict[str, bytes | Failure] = {}
        for name, data in requests.items():
            scope = self.attack.kind.__name__ if name in self.hostile and self.attack.kind is not Client else ""
            replies[name] = self._honest(name, data, scope)
        decoded: dict[str, Reply] = {n: decode(d, reply_kinds()) for n, d in replies.items() if isinstance(d, bytes)}
        others = {name: reply for name, reply in decoded.items() if name not in self.hostile}
        for name in decoded.keys() - others.keys():
            request = decode(requests[name], request_kinds())
            replies[name] = encode(self.attack.change(request, decoded[name], others))
        return replies

    def _honest(self, name: str, data: bytes, scope: str) -> bytes:
        if self.journal is None:
            return self.members[name].respond(data)
        key = digest(f"{name}\x1f{scope}\x1f".encode() + data)
        if (reply := self.journal.read(key)) is None:
            reply = self.members[name].respond(data)
            self.journal.keep(key, reply)
        return reply


@dataclass(eq=False)
class UnseenParts(OpenSums):
    """Totals as a masked run has them: nobody sees, and nobody checks, a client's part."""

    transport: HostileTransport

    def total(
        self, cohort: Cohort, requests: Mapping[str, Any], left_out: OnLeftOut, least: int = 0
    ) -> tuple[Any, tuple[str, ...]]:
        return super().total(cast(Cohort, self), requests, left_out, least)

    def ask(
        self, requests: Mapping[str, Any], kinds: tuple[type, ...] = (), tag: tuple[str, int] | None = None
    ) -> dict[str, Any]:
        """Replies as they come."""
        sent = self.transport.send({name: encode(request) for name, request in requests.items()})
        return {n: reply if isinstance(reply, Failure) else decode(reply, reply_kinds()) for n, reply in sent.items()}


def write_poisoning(
    data_dir: Path | None = None,
    *,
    out: Path = JSON,
    page: Path = PAGE,
    overrides: tuple[str, ...] = (),
    attacks: tuple[Attack, ...] = PARTS["poisoning"][0],
    modes: tuple[str, ...] = MODES,
    tell: Callable[[str], None] = print,
) -> Path:
    """Run what the JSON lacks, and write it and the tables of the page anew, between the marks of the JSON's name."""
    measured: Measured = json.loads(out.read_text("utf-8")) if out.is_file() else {}
    with one_torch_thread():
        for mode in modes:
            _, experiment, base = config.load(PRESET, (*overrides, f"federation.mode={mode}"))
            (scenario,) = scenarios(experiment, data_dir, base).values()
            for attack, method in product(attacks, experiment.federation.methods):
                for seed in range(experiment.evaluation.seeds):
                    name = f"{mode}/{attack.name}/{method}/{seed}"
                    if name not in measured:
                        measured[name] = run_attacked(experiment, scenario, attack, method, REPLIES / out.stem, seed)
                        tell(f"{name}: {measured[name]}")
                        write_json(out, measured)
    if page.is_file():
        write_between(page, out.stem, tables(measured, attacks))
    return out


def run_attacked(
    experiment: config.Experiment, scenario: Scenario, attack: Attack, method: str, folder: Path, seed: int = 0
) -> dict[str, Any]:
    """Test RMSE after the last round, and the clients that were left out.

    `owners` is the mean over honest owners of the model that each chose on machines it kept out.
    """
    hostile = tuple(sorted(scenario.clients)[-attack.members :])
    members = {
        name: (attack.kind if name in hostile else Client)(name, fleet, ClientFolder(folder / attack.name / name))
        for name, fleet in scenario.clients.items()
    }
    transport = HostileTransport(members, hostile, attack, ReplyJournal(folder / "replies"))
    left: set[str] = set()

    def left_out(failure: Failure) -> None:
        left.add(failure.client)

    declared: dict[str, int] = {}

    def cohort() -> MessageCohort:
        masked = experiment.federation.mode == "masked"
        return MessageCohort(transport, declared=declared, sums=UnseenParts(transport) if masked else None)

    facts: dict[str, Any] = {"hostile": ", ".join(hostile), "ended": ""}
    try:
        recipe = common_recipe(cohort(), experiment.recipe, experiment.federation, left_out)
        plan = replace(plan_of(experiment, recipe, seed), left_out=left_out)
        *_, last = judged_rounds(strategies[method], cohort(), plan)
    except FederationError as error:
        return {**facts, "ended": error.what, "left_out": sorted(left)}
    windows = evaluation_windows(scenario, recipe, experiment.evaluation)
    (heads,) = last.judged.values()
    ends = {head: model.network for head, model in heads.items()}
    rmse = {head: _rmse_of(network, windows, recipe) for head, network in ends.items()}
    others = {name: client for name, client in members.items() if name not in hostile}
    honest = replace(transport, members=others, journal=None)  # a reply from memory would leave no head behind
    owners, kinds = owners_models(honest, plan, transport.clients, heads["exact"])
    return {
        **facts,
        "left_out": sorted(left),
        "rmse": {head: round(error, 3) for head, error in rmse.items()},
        "owners": round(float(np.mean([_rmse_of(network, windows, recipe) for network in owners])), 3),
        "kinds": kinds,
        "worn": [round(value, 1) for value in worn_predictions([ends["exact"]], windows, recipe)],
        "owners_worn": [round(value, 1) for value in worn_predictions(owners, windows, recipe)],
        **({"rises": largest_rises(ends["exact"], plan, honest)} if attack.name in ("none", "backdoor") else {}),
    }


def owners_models(
    transport: HostileTransport, plan: Plan, clients: tuple[str, ...], shared: Judged
) -> tuple[list[Network], list[str]]:
    """What each honest owner ends with, and which kind of head that is."""
    name = head_name("poisoning", transport.attack.name)
    chosen = chosen_heads(MessageCohort(transport), plan, shared.network, clients, shared.fitted, name)
    heads = {client: transport.members[client].folder.load_head(name) for client in chosen}
    return [shared.network.with_head(head) for head in heads.values()], [reply.kind for reply in chosen.values()]


def largest_rises(network: Network, plan: Plan, honest: HostileTransport) -> list[float]:
    """What an honest owner can see of a backdoor: by how many cycles one shifted sensor raises its worn machines.

    The largest rise over all sensors, both directions and all owners: of the model, and, where bodies stand side by
    side, of the model without each of them in turn. Its head is then solved from the owner's own sums.
    """
    bodies = network.spec.hidden // plan.spec.hidden
    places = np.arange(network.spec.hidden).reshape(bodies, -1) if bodies > 1 else np.zeros((0, 0), dtype=int)
    rises = []
    for client in honest.members.values():
        windows = client.windows(plan.recipe)
        worn = windows.select(np.flatnonzero(windows.labels < WORN)[::4])
        sums = head_statistics(network, windows, plan.recipe)
        networks = [network]
        for body in places:
            kept = np.setdiff1d(np.arange(network.spec.features), body)
            head = np.zeros(network.spec.features + 1)
            head[np.append(kept, -1)] = solve_head(sums.only(kept), plan.federation.ridge)
            networks.append(network.with_head(head))
        rises.append([_rise(n, worn, plan.recipe) for n in networks])
    return [round(float(rise), 1) for rise in np.max(rises, axis=0)]


def _rise(network: Network, worn: WindowSet, recipe: Recipe) -> float:
    """The largest rise of the mean prediction over all sensors, four deviations up or down."""
    before = float(predict(network, worn, recipe).mean())
    shifted = (
        with_trigger(worn, c, level) for c in range(recipe.channels) for level in (-TRIGGER_LEVEL, TRIGGER_LEVEL)
    )
    return max(float(predict(network, windows, recipe).mean()) for windows in shifted) - before


def _rmse_of(network: Network, windows: EvaluationWindows, recipe: Recipe) -> float:
    return float(errors(windows, windows.clients, network_predictor(network, recipe))[EVERYONE][0])


def worn_predictions(networks: list[Network], windows: EvaluationWindows, recipe: Recipe) -> tuple[float, float]:
    """Mean prediction for worn test machines, and for the same under a backdoor's trigger."""
    (test,) = windows.scored.values()
    worn = test.select(test.labels < WORN)
    means = [[float(predict(n, w, recipe).mean()) for n in networks] for w in (worn, with_trigger(worn))]
    return float(np.mean(means[0])), float(np.mean(means[1]))


def write_between(page: Path, name: str, text: str) -> None:
    """Put a text between the marks of that name in a page."""
    whole = page.read_text("utf-8")
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    before, _, rest = whole.partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(before + begin + "\n" + text + "\n" + end + after, encoding="utf-8")


def tables(measured: Measured, attacks: tuple[Attack, ...]) -> str:
    """One table a mode: RMSE of the shared model and of what owners end with, and what the attack costs an owner."""
    methods = sorted({name.split("/")[2] for name in measured}, key=lambda m: strategies[m].order)
    parts = []
    for mode in MODES:
        there = [a for a in attacks if all(_runs(measured, mode, a.name, method) for method in methods)]
        if not there:
            continue
        lines = [
            f"`{mode}`:",
            "",
            "| attack | " + " | ".join(strategies[m].label for m in methods) + " |",
            "|---|" + "---|" * len(methods),
        ]
        for attack in there:
            cells = [_cell(measured, mode, attack.name, method) for method in methods]
            lines.append(f"| {attack.label} | " + " | ".join(cells) + " |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _cell(measured: Measured, mode: str, attack: str, method: str) -> str:
    """`31.0 → 20.6 (+1 %), named`: the shared model, what owners end with, and its difference to no attack."""
    runs = _runs(measured, mode, attack, method)
    if any(run["ended"] for run in runs):
        return "the run ends"
    named = ", named" if all(set(run["hostile"].split(", ")) <= set(run["left_out"]) for run in runs) else ""
    shared = float(np.mean([run["rmse"]["exact"] for run in runs]))
    return f"{shared:.1f} → {owners_rmse(runs):.1f} ({100 * owners_cost(measured, mode, attack, method):+.0f} %){named}"


def owners_cost(measured: Measured, mode: str, attack: str, method: str) -> float:
    """By which share the owners' error is larger than without an attack, over all seeds."""
    clean = owners_rmse(_runs(measured, mode, "none", method))
    return owners_rmse(_runs(measured, mode, attack, method)) / clean - 1


def owners_rmse(runs: list[dict[str, Any]]) -> float:
    """The mean over seeds."""
    return float(np.mean([run["owners"] for run in runs]))


def _runs(measured: Measured, mode: str, attack: str, method: str) -> list[dict[str, Any]]:
    return [run for name, run in measured.items() if name.startswith(f"{mode}/{attack}/{method}/")]
