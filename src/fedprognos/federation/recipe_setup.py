"""How clients come to a common recipe: from everybody's moments, or from the models they import."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from fedprognos.errors import ConfigError, FederationError, RecipeError
from fedprognos.features import Recipe, Survey, make_recipe, survey_terms
from fedprognos.features.options import RecipeOptions
from fedprognos.federation.cohort import Cohort, gather
from fedprognos.federation.messages import Failure, ImportReply, ImportRequest, SurveyReply, SurveyRequest
from fedprognos.federation.options import FederationOptions
from fedprognos.federation.screening import capped_surveys, plausible_surveys
from fedprognos.federation.secure.survey import OutlineReply, OutlineRequest, merged_survey, moments_request
from fedprognos.federation.totals import masked_total


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
    return recipe_from_survey(cohort, options, left_out, federation)


def recipe_from_survey(
    cohort: Cohort,
    options: RecipeOptions,
    left_out: Callable[[Failure], None],
    federation: FederationOptions | None = None,
) -> Recipe:
    """A recipe from the moments that every client sends; a client that fits none of the others is left out and named.

    Such a client has other columns than most, or no recipe can be made with it and one can without it. With
    `federation.screen` moments that are far from most others' are left out, too.
    """
    federation = federation or FederationOptions()
    min_clients = federation.min_clients
    if cohort.sums is not None:
        return _from_masked_survey(cohort, options, left_out, min_clients)
    requests = dict.fromkeys(cohort.clients, SurveyRequest(survey_terms(options)))
    replies = gather(cohort, requests, SurveyReply, min_clients, left_out)
    surveys = {name: reply.survey for name, reply in replies.items()}
    least = len(requests) if min_clients is None else min(min_clients, len(requests))
    schema, _ = Counter(survey.schema for survey in surveys.values()).most_common(1)[0]
    others = [name for name, survey in surveys.items() if survey.schema != schema]
    if others and len(surveys) - len(others) >= least:
        for name in others:
            left_out(Failure(name, "columns", "its columns differ from those of most clients"))
            del surveys[name]
    if federation.screen:
        surveys, doubted = plausible_surveys(surveys, federation.weight_cap)
        for failure in doubted:
            left_out(failure)
    else:
        surveys = capped_surveys(surveys, federation.weight_cap)
    try:
        return make_recipe(options, surveys)
    except (RecipeError, ConfigError):
        found = {name: recipe for name in surveys if (recipe := _recipe_without(name, options, surveys)) is not None}
        if len(found) != 1 or len(surveys) - 1 < least:
            raise
        ((name, recipe),) = found.items()
        left_out(Failure(name, "moments", "no recipe can be made with its moments"))
        return recipe


def _from_masked_survey(
    cohort: Cohort, options: RecipeOptions, left_out: Callable[[Failure], None], min_clients: int | None
) -> Recipe:
    """A recipe from everybody's conditions and from totals of moments; columns that most do not have are left out."""
    terms = survey_terms(options)
    asked = dict.fromkeys(cohort.clients, OutlineRequest(terms))
    outlines = gather(cohort, asked, OutlineReply, min_clients, left_out)
    request, schema = moments_request(terms, outlines)
    for name, one in outlines.items():
        if one.schema != schema:
            left_out(Failure(name, "columns", "its columns differ from those of most clients"))
    alike = {name: one for name, one in outlines.items() if one.schema == schema}
    sums = masked_total(cohort, dict.fromkeys(alike, request), min_clients, left_out)
    return make_recipe(options, {"everybody": merged_survey(request, schema, sums, alike)})


def _recipe_without(name: str, options: RecipeOptions, surveys: Mapping[str, Survey]) -> Recipe | None:
    try:
        return make_recipe(options, {other: survey for other, survey in surveys.items() if other != name})
    except (RecipeError, ConfigError):
        return None


def _imported(cohort: Cohort, federation: FederationOptions, left_out: Callable[[Failure], None]) -> Recipe:
    """The recipe that most of the imported models were made with; models of another one are left out and named."""
    requests = dict.fromkeys(cohort.clients, ImportRequest())
    models = gather(cohort, requests, ImportReply, federation.min_clients, left_out)
    agreed = [r.recipe for r in models.values() if federation.imported in (None, r.recipe.digest)]
    if not agreed:
        raise FederationError(
            "no model was made with the recipe that was agreed on", hint="import models that were, or train anew"
        )
    recipe, _ = Counter(agreed).most_common(1)[0]
    others = sorted(name for name, reply in models.items() if reply.recipe != recipe)
    least = len(requests) if federation.min_clients is None else min(federation.min_clients, len(requests))
    if others and len(models) - len(others) < least:
        raise FederationError(
            "its model was made with another recipe than that of most clients",
            where=f"client {others[0]}",
            hint="Models can be federated only when they see the data alike; train them with one recipe.",
        )
    for name in others:
        left_out(Failure(name, "recipe", "its model was made with another recipe than that of most clients"))
    return recipe
