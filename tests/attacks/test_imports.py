"""Models trained earlier: a contract names the recipe that they were made with, and no member can choose another."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from hostile_replies import LyingTransport
from small_run import SmallRun

from fedprognos.deployment.contract import Contract, in_words
from fedprognos.errors import FederationError, MessageError
from fedprognos.features import Recipe
from fedprognos.federation.client import Client
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.cohort import MessageCohort
from fedprognos.federation.exchanges import Failure
from fedprognos.federation.exchanges.import_model import ImportReply
from fedprognos.federation.exchanges.survey import common_recipe
from fedprognos.networks import Bundle, Network, NetworkSpec
from refusals import refuses
from small_fleets import recipe_of, series_fleet

IMPORTED = {"methods": ["concat"], "heads": ["exact"], "min_clients": 2, "mode": "checked"}
START = {"start": "bundles", "bundles": "own"}
FLEET = series_fleet([30] * 6, seed=97, name="a")
RECIPE = recipe_of(FLEET, window=8, cap=40, stride=3)


def bundle(folder: Path, recipe: Recipe = RECIPE, width: int = 3, seed: int = 1) -> str:
    Bundle(recipe, Network.seeded(NetworkSpec(inputs=recipe.channels, widths=(width,)), seed), {}, {}).save(folder)
    return str(folder)


class Importing(SmallRun):
    """Three sites, each with a model of its own."""

    given: ClassVar[dict[str, dict[str, Any]]] = {}

    def site(self, name: str, seed: int = 0) -> Any:
        own = bundle(self.folder / f"model-{name}", seed=ord(name), **self.given.get(name, {}))
        self.options = {**self.options, "bundle": own}
        return super().site(name, seed)


def run_with(folder: Path, **given: dict[str, Any]) -> SmallRun:
    kind = type("Given", (Importing,), {"given": given})
    run: SmallRun = kind(folder, changes={"federation": {**IMPORTED, **START}})
    return run


def test_the_majority_cannot_choose_a_recipe_that_nobody_approved(tmp_path: Path) -> None:
    """Two members that bring models of a sparser recipe are refused by a third whose contract names its own."""
    run = run_with(tmp_path)
    members = {name: site.identity.public for name, site in run.sites.items()}
    agreed = run.experiment.federation.model_copy(update={"imported": RECIPE.digest})
    experiment = run.experiment.model_copy(update={"federation": agreed})
    contract = Contract.from_experiment("x", "1", experiment, members, run.identity.public)
    assert any(RECIPE.digest[:16] in line for line in in_words(contract, "a"))
    sparse, left = RECIPE.model_copy(update={"stride": 10**6, "cap": 1.0}), list[Failure]()
    recipes = {"a": RECIPE, "b": sparse, "c": sparse}
    clients = {
        n: Client(n, FLEET, ClientFolder(tmp_path / n, Path(bundle(tmp_path / f"{n} own", recipe))))
        for n, recipe in recipes.items()
    }
    cohort = MessageCohort(LyingTransport(clients, "nobody", ImportReply, lambda reply: reply))
    lax = agreed.model_copy(update={"min_clients": 1})
    assert common_recipe(cohort, experiment.recipe, lax, left.append) == RECIPE
    assert [one.client for one in left] == ["b", "c"]
    free = lax.model_copy(update={"imported": None})
    assert common_recipe(cohort, experiment.recipe, free, left.append) == sparse  # on one machine the majority decides
    with pytest.raises(FederationError):
        common_recipe(cohort, experiment.recipe, lax.model_copy(update={"imported": "0" * 64}), left.append)


def test_a_contract_about_imported_models_without_their_recipe_is_refused(tmp_path: Path) -> None:
    run = run_with(tmp_path)
    members = {name: site.identity.public for name, site in run.sites.items()}
    text = Contract.from_experiment("x", "1", run.experiment, members, run.identity.public).text
    with refuses(MessageError, "federation.imported"):
        Contract.parse(text)


def test_models_that_are_wider_or_of_another_recipe_are_left_out(tmp_path: Path) -> None:
    other = RECIPE.model_copy(update={"stride": 4})
    run = run_with(tmp_path / "recipe", c={"recipe": other})
    run.perform()
    assert run.weights()
    assert any("c cannot take part" in text and "recipe" in text for text in run.said)
    run = run_with(tmp_path / "wide", b={"width": 400}, c={"width": 400})
    with refuses(FederationError, "client b"):
        run.perform()
