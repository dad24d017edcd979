"""The verdict in plain words: which method wins by how much, and how sure one can be with these test units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedprognos.report.choosing import best, comparable
from fedprognos.report.comparison import FEW_UNITS, SAME, difference, relative
from fedprognos.report.entries import Entry, scored
from fedprognos.report.material import OWN, PERSONAL, Material, Setting
from fedprognos.report.words import errors, listed, number, percent, plural, values, who

Roles = Sequence[tuple[str, Entry | None]]


@dataclass(frozen=True)
class Card:
    """A key figure: a role, who plays it, and its errors."""

    role: str
    who: str
    key: str
    rmse: str
    detail: str


@dataclass(frozen=True)
class Verdict:
    """Headline, sentences and key figures of one setting."""

    headline: str
    sentences: tuple[str, ...]
    cards: tuple[Card, ...]


def verdict(material: Material, setting: Setting, found: Sequence[Entry]) -> Verdict:
    """Compare the federated methods, or without them the best network, with everything that is simpler."""
    fair = comparable(found)
    winner = best([e for e in fair if e.is_federated and e.head == material.head])
    winner = winner or best([e for e in fair if e.is_federated])
    yardstick = best([e for e in fair if e.is_yardstick])
    if winner is not None:
        headline, sentences, roles = _federated(setting, fair, winner, yardstick)
    else:
        winner = best([e for e in fair if not e.is_yardstick])
        headline, sentences, roles = _trained(setting, fair, winner, yardstick)
    if winner is not None:
        sentences += _second_opinion(material, [e for e in fair if e.is_yardstick or e.head == winner.head])
        sentences += _other_heads(material, fair, winner)
    sentences += _warnings(material, setting, found, winner)
    cards: list[Card] = []
    for role, entry in roles:
        if entry is not None and entry.key not in [card.key for card in cards]:
            cards.append(_card(role, entry))
    return Verdict(headline, tuple(sentences), tuple(cards))


def _federated(
    setting: Setting, fair: Sequence[Entry], winner: Entry, yardstick: Entry | None
) -> tuple[str, list[str], Roles]:
    """The best federated method against all that is simpler, at equal head."""
    same = [e for e in fair if e.head == winner.head]
    alone = best([e for e in same if e.base == "local"])
    mean = best([e for e in same if e.base == "mean-of-locals"])
    central = best([e for e in same if e.base == "central"])
    sentences = [_basis(setting, winner), *_rivals(same, winner), *_merged_nothing(setting, winner)]
    for entry, lead in (
        (alone, "Clients that train alone reach {}; federating makes the error "),
        (
            mean,
            "The mean of the clients’ own predictions, which needs no federated training, reaches {}; {who} is ",
        ),
        (
            central,
            "Pooling everybody’s data in one place (central) reaches {}; against it the federated error is ",
        ),
    ):
        if entry is not None:
            text = lead.format(values(entry), who=winner.method)
            sentences.append(text + difference(setting, winner, entry))
    if yardstick is not None:
        sentences.append(_against_yardstick(setting, winner, yardstick, "federated method"))
    roles = (
        ("best federated", winner),
        ("each client alone", alone),
        ("mean of these", mean),
        ("all data in one place", central),
        ("best yardstick", yardstick),
    )
    return f"The best federated method is {who(winner)}: {errors(winner)}.", sentences, roles


def _trained(
    setting: Setting, fair: Sequence[Entry], winner: Entry | None, yardstick: Entry | None
) -> tuple[str, list[str], Roles]:
    """The best network against the networks clients train alone and the best yardstick."""
    if winner is None:
        if yardstick is None:
            return "There is nothing to compare.", [], ()
        headline = f"No network was trained; the best yardstick is {who(yardstick)}: {errors(yardstick)}."
        return headline, [], (("best yardstick", yardstick),)
    networks = [e for e in fair if e.head == winner.head and not e.is_yardstick]
    alone = best([e for e in networks if e.base == "local" and e.scope == OWN])
    sentences = [_basis(setting, winner)]
    if alone is not None and alone is not winner:
        lead = f"Clients that train alone reach {values(alone)}; learning from all data makes the error "
        sentences.append(lead + difference(setting, winner, alone))
    elif alone is not None and (second := best([e for e in networks if e is not winner])) is not None:
        lead = f"No network that learns from more data does better: {who(second)} reaches {values(second)}, "
        sentences.append(lead + difference(setting, second, winner))
    if yardstick is not None:
        sentences.append(_against_yardstick(setting, winner, yardstick, "network"))
    roles = (("best network", winner), ("each client alone", alone), ("best yardstick", yardstick))
    return f"The best network is {who(winner)}: {errors(winner)}.", sentences, roles


def _basis(setting: Setting, entry: Entry) -> str:
    seeds, units = len(entry.rows), entry.rows[0].n_units
    over = f"the mean of {seeds} seeds" if seeds > 1 else "from a single seed, so how much training varies is unknown"
    whose = "one client" if len(setting.clients) == 1 else f"{len(setting.clients)} clients"
    text = f"That is {over}, on {plural(units, 'test unit')} of {whose}"
    if units < FEW_UNITS:
        return f"{text}: too few to say whether any difference would hold for others."
    bounds = entry.interval()
    if bounds is None:
        return f"{text}."
    raw = "the error" if entry.mean("rmse_capped") is None else "the raw error"
    return f"{text}; the 95 % interval of {raw} is {number(bounds[0])} to {number(bounds[1])}."


def _rivals(same: Sequence[Entry], winner: Entry) -> list[str]:
    """The winner of several is partly lucky: say so, and who does as well."""
    others = [e for e in same if e.is_federated and e is not winner]
    if not others:
        return []
    equal = [e.method for e in others if (change := relative(e, winner)) is not None and change < SAME]
    text = f"It is the best of {len(others) + 1} federated methods by test error, which flatters it a little"
    return [f"{text}; {listed(equal)} {'does' if len(equal) == 1 else 'do'} as well." if equal else f"{text}."]


def _merged_nothing(setting: Setting, winner: Entry) -> list[str]:
    rounds = setting.matchings.get(winner.base, ())
    if rounds and all(layer.absorbing == "all kept" for r in rounds for layer in r.layers):
        return ["Matching merged nothing here: this network is the clients’ networks side by side."]
    return []


def _against_yardstick(setting: Setting, network: Entry, yardstick: Entry, what: str) -> str:
    change = relative(network, yardstick)
    if change is not None and change < 0:
        lead = f"The best yardstick, {who(yardstick)}, reaches {values(yardstick)}; the {what}’s error is "
        return lead + difference(setting, network, yardstick)
    lead = f"A yardstick does better than every {what}: {who(yardstick)} reaches {values(yardstick)}, an error "
    return lead + difference(setting, yardstick, network)


def _other_heads(material: Material, fair: Sequence[Entry], winner: Entry) -> list[str]:
    """The same comparison with the other heads, in one sentence each."""
    found = []
    for head in material.heads:
        same = [e for e in fair if e.head == head]
        leader = best([e for e in same if e.is_federated == winner.is_federated])
        if head == winner.head or leader is None:
            continue
        named = (("alone", "local"), ("central", "central"))
        others = [(name, best([e for e in same if e.base == base and e is not leader])) for name, base in named]
        beside = "; ".join(f"{name} {values(e)}" for name, e in others if e is not None)
        kind = "personal heads" if head == PERSONAL else f"the {head} head"
        text = f"With {kind}, {leader.method} is best: {values(leader)}"
        found.append(f"{text} ({beside})." if beside else f"{text}.")
    return found


def _second_opinion(material: Material, fair: Sequence[Entry]) -> list[str]:
    """Say so where capped labels would have named another winner."""
    raw, capped = best(fair), best(fair, "rmse_capped")
    if material.cap is None or raw is None or capped is None or capped is raw:
        return []
    return [f"Of all of them {who(raw)} comes first raw, {who(capped)} capped ({number(capped.mean('rmse_capped'))})."]


def _warnings(material: Material, setting: Setting, found: Sequence[Entry], winner: Entry | None) -> list[str]:
    sentences = []
    if any(row.scored_on == "validation" for row in setting.rows):
        sentences.append(
            "Errors are on the parts that sites kept out of training, told as sums, because some site has too few test "
            "units to tell anything of them. The round was chosen on the same parts, which flatters a little; "
            "test errors are in each site’s own report."
        )
    collapsed = sum(row.collapsed for row in setting.rows)
    if collapsed:
        sentences.append(f"Warning: {collapsed} results are of networks collapsed to a constant, marked in the table.")
    reference = winner or next(iter(found), None)
    points = scored(setting, reference) if reference is not None else None
    if material.cap is not None and reference is not None and points is not None and len(points):
        beyond = points["truth"] > material.cap
        squared = (points["prediction"] - points["truth"]) ** 2
        share = float(squared[beyond].sum() / squared.sum()) if squared.sum() > 0 else 0.0
        if beyond.mean() > 0.05 and share > 0.3:
            sentences.append(
                f"{percent(float(beyond.mean()))} of the test points have more life left than the cap of "
                f"{material.cap:g} {material.unit}, which no prediction exceeds; they make up {percent(share)} of "
                f"the squared raw error of {who(reference)}, so the capped error tells the methods apart better."
            )
    return sentences


def _card(role: str, entry: Entry) -> Card:
    capped = entry.mean("rmse_capped")
    detail = f"{number(capped)} capped" if capped is not None else f"MAE {number(entry.mean('mae'))}"
    return Card(role, entry.short_label, entry.key, number(entry.mean("rmse")), detail)
