"""How clients come to a common recipe: from everybody's moments, or from the models they import."""

from __future__ import annotations

from collections.abc import Callable

from fedprognos.errors import FederationError
from fedprognos.features import Recipe, make_recipe, survey_terms
from fedprognos.features.options import RecipeOptions
from fedprognos.federation.cohort import Cohort, gather
from fedprognos.federation.messages import Failure, ImportReply, ImportRequest, SurveyReply, SurveyRequest
from fedprognos.federation.options import FederationOptions


def common_recipe(
    cohort: Cohort, options: RecipeOptions, federation: FederationOptions, left_out: Callable[[Failure], None]
) -> Recipe:
    """The recipe that all clients will use.

    Parameters
    ----------
    left_out
        Called with every client that could not answer; it may raise.
    """
    if federation.start == "bundles":
        return _imported(cohort, federation, left_out)
    return recipe_from_survey(cohort, options, left_out, federation.min_clients)


def recipe_from_survey(
    cohort: Cohort, options: RecipeOptions, left_out: Callable[[Failure], None], min_clients: int | None = None
) -> Recipe:
    """A recipe from the moments that every client sends."""
    requests = dict.fromkeys(cohort.clients, SurveyRequest(survey_terms(options)))
    surveys = gather(cohort, requests, SurveyReply, min_clients, left_out)
    return make_recipe(options, {name: reply.survey for name, reply in surveys.items()})


def _imported(cohort: Cohort, federation: FederationOptions, left_out: Callable[[Failure], None]) -> Recipe:
    requests = dict.fromkeys(cohort.clients, ImportRequest())
    models = gather(cohort, requests, ImportReply, federation.min_clients, left_out)
    first = min(models)
    for name, reply in models.items():
        if reply.recipe != models[first].recipe:
            raise FederationError(
                f"its model was made with another recipe than that of {first}",
                where=f"client {name}",
                hint="Models can be federated only when they see the data alike; train them with one recipe.",
            )
    return models[first].recipe
