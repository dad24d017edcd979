"""The poisoning study: one of five clients is hostile; what every method loses, with and without defences."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fedprognos.evaluation import EVERYONE
from fedprognos.experiment import config
from fedprognos.experiment.evaluator import errors, evaluation_windows, network_predictor
from fedprognos.experiment.job import plan_of
from fedprognos.experiment.scenario import Scenario, scenarios
from fedprognos.federation.client import Client
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.codec import decode, encode
from fedprognos.federation.cohort import MessageCohort, digest
from fedprognos.federation.exchanges import Failure, Reply, reply_kinds, request_kinds
from fedprognos.federation.exchanges.survey import common_recipe
from fedprognos.federation.heads import judged_rounds
from fedprognos.federation.reply_journal import ReplyJournal
from fedprognos.federation.strategies import strategies
from fedprognos.files import write_json
from fedprognos.networks.torch_threads import one_torch_thread
from studies.attacks import ATTACKS, Attack, FlippedClient

PRESET = "study-poisoning"
PAGE, JSON = Path("docs/robustness.md"), Path("docs/results/poisoning.json")
OFF = ("federation.fedavg.average=weighted",)
"""What the preset is without its defences; screening and the cap are taken out, too."""
Found = dict[str, dict[str, Any]]
"""By `attack/defence/method/seed`: raw test RMSE by head, and who was left out."""


@dataclass(eq=False)
class HostileTransport:
    """Clients in this process, one of which sends what an attack says. Honest replies are remembered by request."""

    members: Mapping[str, Client]
    hostile: str
    attack: Attack
    journal: ReplyJournal

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(sorted(self.members))

    def send(self, requests: Mapping[str, bytes]) -> dict[str, bytes | Failure]:
        replies: dict[str, bytes | Failure] = {}
        for name, data in requests.items():
            scope = "flipped" if self.attack.flipped and name == self.hostile else ""
            replies[name] = self._honest(name, data, scope)
        if self.hostile in requests:
            decoded = {n: decode(d, reply_kinds()) for n, d in replies.items() if isinstance(d, bytes)}
            honest_reply: Reply = decoded.pop(self.hostile)
            request = decode(requests[self.hostile], request_kinds())
            replies[self.hostile] = encode(self.attack.change(request, honest_reply, decoded))
        return replies

    def _honest(self, name: str, data: bytes, scope: str) -> bytes:
        key = digest(f"{name}\x1f{scope}\x1f".encode() + data)
        if (reply := self.journal.read(key)) is None:
            reply = self.members[name].respond(data)
            self.journal.keep(key, reply)
        return reply


def write_poisoning(
    data_dir: Path | None = None,
    *,
    out: Path = JSON,
    page: Path = PAGE,
    overrides: tuple[str, ...] = (),
    attacks: tuple[Attack, ...] = ATTACKS,
    tell: Callable[[str], None] = print,
) -> Path:
    """Run what the JSON lacks, and write it and the tables of the page anew."""
    _, defended, base = config.load(PRESET, overrides)
    _, plain, _ = config.load(PRESET, (*overrides, *OFF))
    plain = plain.model_copy(
        update={"federation": plain.federation.model_copy(update={"screen": None, "weight_cap": None})}
    )
    (scenario,) = scenarios(defended, data_dir, base).values()
    measured: Found = json.loads(out.read_text("utf-8")) if out.is_file() else {}
    with one_torch_thread(), tempfile.TemporaryDirectory() as folder:
        for attack in attacks:
            for defence, experiment in (("off", plain), ("on", defended)):
                for method, seed in product(experiment.federation.methods, range(experiment.evaluation.seeds)):
                    name = f"{attack.name}/{defence}/{method}/{seed}"
                    if name not in measured:
                        measured[name] = run_attacked(experiment, scenario, attack, method, Path(folder), seed)
                        tell(f"{name}: {measured[name]}")
                        write_json(out, measured)
    if page.is_file():
        write_between(page, "poisoning", tables(measured, attacks))
    return out


def run_attacked(
    experiment: config.Experiment, scenario: Scenario, attack: Attack, method: str, folder: Path, seed: int = 0
) -> dict[str, Any]:
    """Raw test RMSE after the last round, by head, and the clients that were left out."""
    hostile = max(scenario.clients)
    members = {
        name: (FlippedClient if attack.flipped and name == hostile else Client)(
            name, fleet, ClientFolder(folder / attack.name / name)
        )
        for name, fleet in scenario.clients.items()
    }
    transport = HostileTransport(members, hostile, attack, ReplyJournal(folder / "replies"))
    left: set[str] = set()

    def left_out(failure: Failure) -> None:
        left.add(failure.client)

    recipe = common_recipe(MessageCohort(transport), experiment.recipe, experiment.federation, left_out)
    plan = replace(plan_of(experiment, recipe, seed), left_out=left_out)
    *_, last = judged_rounds(strategies[method], MessageCohort(transport), plan)
    windows = evaluation_windows(scenario, recipe, experiment.evaluation)
    (heads,) = last.judged.values()
    rmse = {
        head: round(errors(windows, windows.clients, network_predictor(model.network, recipe))[EVERYONE][0], 3)
        for head, model in heads.items()
    }
    return {"rmse": rmse, "left_out": sorted(left), "hostile": hostile}


def write_between(page: Path, name: str, text: str) -> None:
    """Put a text between the marks of that name in a page."""
    whole = page.read_text("utf-8")
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    before, _, rest = whole.partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(before + begin + "\n" + text + "\n" + end + after, encoding="utf-8")


def tables(measured: Found, attacks: tuple[Attack, ...]) -> str:
    """One table a head: raw RMSE without and with defences, and what the attack costs with them."""
    methods = sorted({name.split("/")[2] for name in measured}, key=lambda m: strategies[m].order)
    parts = []
    for head in ("exact", "mean"):
        lines = [
            f"Head: {head}",
            "",
            "| attack | " + " | ".join(strategies[m].label for m in methods) + " |",
            "|---|" + "---|" * len(methods),
        ]
        for attack in attacks:
            cells = [_cell(measured, attack.name, method, head) for method in methods]
            lines.append(f"| {attack.label} | " + " | ".join(cells) + " |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _cell(measured: Found, attack: str, method: str, head: str) -> str:
    """`31.0 → 20.6 (+1 %)`: without defences, with them, and the difference to no attack and no defence."""
    off, on = (_rmse(measured, f"{attack}/{defence}/{method}/", head) for defence in ("off", "on"))
    cost = 100 * (on / _rmse(measured, f"none/off/{method}/", head) - 1)
    return f"{off:.1f} → {on:.1f} ({cost:+.0f} %)"


def _rmse(measured: Found, name: str, head: str) -> float:
    """The mean over seeds."""
    return float(np.mean([model["rmse"][head] for key, model in measured.items() if key.startswith(name)]))
