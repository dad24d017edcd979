"""The contract of a deployed run: one experiment with its members, named by its digest.

Everything that a coordinator may ask follows from the contract, and a site answers nothing else. `in_words` shows it
to the engineer who approves it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fedprognos import __version__
from fedprognos.errors import ConfigError, FedprognosError, MessageError
from fedprognos.experiment import config
from fedprognos.federation import FederationOptions
from fedprognos.federation.exchanges import what_can_leave
from fedprognos.federation.strategies import strategies
from fedprognos.files import parse_json
from fedprognos.identity import fingerprint
from fedprognos.options import Options
from fedprognos.privacy import LEAST_MEMBERS

MAX_CONTRACT_IN_BYTES = 1 << 20
MAX_MEMBERS = 500
SECTIONS = ("recipe", "model", "train", "federation", "evaluation")
PLACEHOLDER = {"kind": "synthetic-engines"}
"""Takes the place of the data in an experiment made from a contract: each site has its own data."""
Mode = Literal["checked", "masked"]


@dataclass(frozen=True)
class Contract:
    """What a coordinator and its members agree on.

    Parameters
    ----------
    run
        Name of the run.
    id
        An id that no other run has.
    sections
        The experiment without its data: how rows become inputs, shapes, training, methods, rounds, heads, floors.
    members
        Public identity keys of the sites, by name.
    coordinator
        The coordinator's public identity key.
    mode
        "checked": the coordinator and the members see each member's replies. "masked": they see totals only.
    """

    run: str
    id: str
    scenario: str
    sections: Mapping[str, Any]
    members: Mapping[str, str]
    coordinator: str
    mode: Mode = "checked"
    version: str = __version__

    @staticmethod
    def from_experiment(
        run: str, id_: str, experiment: config.Experiment, members: Mapping[str, str], coordinator: str
    ) -> Contract:
        """The contract of an experiment that can be deployed."""
        (scenario,) = experiment.partition
        dump = experiment.dump()
        dump["federation"]["bundles"] = "own" if dump["federation"]["bundles"] else None
        dump["federation"]["methods"] = list(experiment.federation.methods)
        mode = mode_of(experiment.federation, len(members))
        dump["federation"]["mode"] = mode  # part of the contract, so that its defences hold without an option
        sections = {name: dump[name] for name in SECTIONS}
        return Contract(run, id_, scenario, sections, dict(sorted(members.items())), coordinator, mode)

    @property
    def text(self) -> str:
        """The contract as a canonical document."""
        return json.dumps(vars(self), sort_keys=True, allow_nan=False, ensure_ascii=True)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @staticmethod
    def parse(text: str) -> Contract:
        """Read :attr:`text`. Refuse other documents, and experiments that this version does not know."""
        try:
            if len(text) > MAX_CONTRACT_IN_BYTES:
                raise ValueError("too long")
            document = parse_json(text)
            _check_version(document["version"])  # first: a contract of another version may have other parts
            contract = Contract(**document)
            if contract.text != text:
                raise ValueError("not in its canonical form")
            contract.check()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ConfigError) as error:
            raise MessageError(f"not a contract: {str(error)[:200]}") from None
        return contract

    def check(self) -> None:
        """Raise where this program cannot keep the contract: members, mode or experiment."""
        if self.mode not in get_args(Mode):
            raise MessageError(f"unknown mode {str(self.mode)[:40]!r}", hint=f"modes: {', '.join(get_args(Mode))}")
        if self.mode == "masked" and len(self.members) < LEAST_MEMBERS:
            raise MessageError(f"masked sums need {LEAST_MEMBERS} members")
        keys = [self.coordinator, *self.members.values()]
        names = [self.run, self.id, self.scenario, *self.members]
        if len(self.members) > MAX_MEMBERS:
            raise MessageError(f"more than {MAX_MEMBERS} members: nobody could compare their fingerprints")
        if not all(isinstance(key, str) and re.fullmatch("[0-9a-f]{64}", key) for key in keys):
            raise MessageError("a key in the contract is not a public identity key")
        if len(set(self.members.values())) < len(self.members) or not self.members:
            raise MessageError("every member needs a key of its own")
        if not all(isinstance(name, str) and 1 <= len(name) <= 80 and name.isprintable() for name in names):
            raise MessageError("a name in the contract is not 1 to 80 printable characters")
        if self.mode != mode_of(self.experiment().federation, len(self.members)):
            raise MessageError(f"mode {self.mode!r} is not the one that the experiment gives")

    def experiment(self) -> config.Experiment:
        """The experiment, with a placeholder for the data."""
        if set(self.sections) != set(SECTIONS):
            raise MessageError(f"a contract has the sections {', '.join(SECTIONS)}")
        partition = {self.scenario: {"by": "random", "clients": len(self.members)}}
        document = {"data": PLACEHOLDER, "partition": partition, **self.sections}
        try:
            experiment = config.parse(document, "contract")
        except FedprognosError as error:
            raise MessageError(f"this version cannot run the experiment: {error.what}") from None
        if experiment.federation.start == "bundles" and experiment.federation.imported is None:
            raise MessageError("federation.imported must name the recipe of the models trained earlier")
        pooled = [method for method in experiment.federation.methods if strategies[method].pooled]
        if pooled or experiment.evaluation.baselines or experiment.evaluation.best_on_test:
            raise MessageError("central training, baselines and best_on_test need all data in one place")
        return experiment


def _check_version(version: object) -> None:
    if version != __version__:
        raise MessageError(
            f"a contract of fedprognos {str(version)[:40]}, this site has {__version__}",
            hint="Install the same version at the coordinator and at all sites.",
        )


def mode_of(federation: FederationOptions, members: int) -> Mode:
    """The mode of a contract: masked with three members or more, unless an option needs each reply."""
    if federation.mode is not None:
        if federation.mode == "masked" and members < LEAST_MEMBERS:
            raise ConfigError(f'federation.mode = "masked" needs {LEAST_MEMBERS} sites', hint='set it to "checked"')
        return federation.mode
    summed = [strategies[method] for method in federation.methods if strategies[method].sums_only]
    averages = {getattr(federation.strategy_options(s.name, s.options), "average", "weighted") for s in summed}
    needs_each_reply = federation.screen is not None or federation.weight_cap is not None or averages - {"weighted"}
    shared = any(strategies[method].shared for method in federation.methods)
    return "checked" if needs_each_reply or not shared or members < LEAST_MEMBERS else "masked"


def side_by_side(contract: Contract) -> int:
    """The largest number of members' networks that a run puts side by side."""
    methods = [strategies[name] for name in contract.experiment().federation.methods]
    return len(contract.members) if any(m.trains and m.shared and not m.sums_only for m in methods) else 1


def in_words(contract: Contract, site: str) -> Iterator[str]:
    """What a contract means for a site, line by line, with unusual values named.

    Line breaks inside a value are removed: a hostile text could fake a line, such as a fingerprint.
    """
    return (" ".join(line.splitlines()) for line in _in_words(contract, site))


def _in_words(contract: Contract, site: str) -> Iterator[str]:
    try:
        experiment = contract.experiment()
    except ConfigError as error:
        yield f"This contract cannot be used: {error.what}"
        return
    recipe, train, federation, evaluation = (
        experiment.recipe,
        experiment.train,
        experiment.federation,
        experiment.evaluation,
    )
    yield f"Run '{contract.run}', contract {contract.digest[:16]}"
    labels = ", ".join(strategies[method].label for method in federation.methods)
    times = "once" if evaluation.seeds == 1 else f"{evaluation.seeds} times, each with other random numbers"
    yield f"  trains with: {labels}; {times}"
    widths = " and ".join(map(str, experiment.model.widths)) or "no recurrent layer"
    yield f"  network: {experiment.model.cell}, neurons: {widths}; heads: {', '.join(federation.heads)}"
    length = f"{train.steps} gradient steps" if train.steps else f"at most {train.epochs} epochs"
    yield f"  {length}; {train.validation_fraction:.0%} of your units are kept out of training"
    history = "a whole life" if recipe.history == "life" else f"{recipe.length} rows" if recipe.length else "a cycle"
    rows = "row" if recipe.stride == 1 else f"{recipe.stride} rows"
    cap = "are not capped" if recipe.cap is None else f"are capped at {recipe.cap:g}"
    yield f"  reads {history} at every {rows}; labels {cap}"
    if evaluation.refit:
        yield "  then trains the published model once more on all your units, test units as well"
    if federation.imported is not None:
        yield f"  starts from models that the members trained earlier with recipe {federation.imported[:16]}"
    needed = "all members" if federation.min_clients is None else f"at least {federation.min_clients} members"
    yield f"  continues only while {needed} answer"
    yield from _set_options(experiment)
    yield "  members (each member's screen shows its fingerprint: compare them by telephone):"
    for name, public in contract.members.items():
        yield f"    {name}: {fingerprint(public)}{' (this site)' if name == site else ''}"
    yield f"    coordinator: {fingerprint(contract.coordinator)}"
    yield "  can leave this site, as far as these methods and heads need it (what it could reveal):"
    for words in what_can_leave(contract.mode == "masked"):
        yield f"    {words.leaves} ({words.reveals})"
    yield "  No row leaves."
    if contract.mode == "masked":
        visible = [strategies[m] for m in federation.methods if strategies[m].trains and not strategies[m].sums_only]
        yield "  Sums are masked: coordinator and members see totals of all members only."
        if visible:
            methods = ", ".join(strategy.label for strategy in visible)
            yield f"  The coordinator and all members see the networks trained here with: {methods}"
    else:
        yield "  The coordinator and all members see each of these replies."
    yield from (f"  UNUSUAL: {text}" for text in unusual(experiment, len(contract.members)))


def _set_options(experiment: config.Experiment) -> Iterator[str]:
    """Every option that is not at its default, and those of every method, by the names that experiments use."""
    for name in SECTIONS:
        section = getattr(experiment, name)
        fields = type(section).model_fields
        shown = experiment.federation.methods if name == "federation" else ()
        values = {k: v for k, v in section if k in shown or v != fields[k].get_default(call_default_factory=True)}
        if values:
            yield f"  {name}: " + ", ".join(f"{key} = {_shown(value)[:200]}" for key, value in values.items())


def _shown(value: Any) -> str:
    """A value as experiments write it, without keys that are not set."""
    if isinstance(value, Options):
        value = {key: option for key, option in value if option is not None}
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_shown(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return json.dumps(value, default=str, ensure_ascii=True)


def unusual(experiment: config.Experiment, members: int) -> Iterator[str]:
    """Values that honest experiments rarely have, and what an attacker could use them for."""
    recipe, train, federation = experiment.recipe, experiment.train, experiment.federation
    if recipe.stride > 100:
        yield f"recipe.stride = {recipe.stride}: so few windows are left that sums reveal single ones"
    if 0 < train.validation_fraction < 0.05:
        yield f"train.validation_fraction = {train.validation_fraction:g}: the errors of so few units reveal them"
    if recipe.cap is not None and recipe.cap < 10:
        yield f"recipe.cap = {recipe.cap:g}: the mean label then reveals how many rows are near the end of life"
    if recipe.length is not None and recipe.length > 5000:
        yield f"recipe.history = {recipe.length}: longer than most lives, and needs much memory"
    if any(decimals > 4 for decimals in recipe.conditions.values()):
        yield "recipe.conditions: with so many decimals a condition can hold a single row"
    if recipe.min_count < 20:
        yield f"recipe.min_count = {recipe.min_count}: your own floor holds instead"
    if train.batch_size == 1 or train.learning_rate > 1 or train.learning_rate < 1e-7:
        yield f"batches of {train.batch_size} at a learning rate of {train.learning_rate:g}"
    if experiment.evaluation.seeds > 20:
        yield f"evaluation.seeds = {experiment.evaluation.seeds}: each one trains again and reveals a little more"
    if members >= LEAST_MEMBERS and mode_of(federation, members) == "checked":
        yield "the coordinator and all members see each of your replies; with so many members, totals could be masked"
    if members < 3:
        yield f"{members} members: each can subtract its part from a sum and gets the other's"
    if federation.min_clients is not None and federation.min_clients < 3 <= members:
        yield f"federation.min_clients = {federation.min_clients}: the run may continue with so few of {members}"
