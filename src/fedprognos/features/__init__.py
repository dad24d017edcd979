"""From raw rows to what the network sees: moments, operating conditions, recipes, windows."""

from fedprognos.features.moments import Moments, merge_all
from fedprognos.features.recipe import ConditionWarning, Recipe
from fedprognos.features.survey import Survey, SurveyTerms, make_recipe, recipe_for, survey, survey_terms
from fedprognos.features.windows import (
    WindowSet,
    build_windows,
    check_usable,
    health_labels,
    hold_out,
    joined,
    running_windows,
)

__all__ = [
    "ConditionWarning",
    "Moments",
    "Recipe",
    "Survey",
    "SurveyTerms",
    "WindowSet",
    "build_windows",
    "check_usable",
    "health_labels",
    "hold_out",
    "joined",
    "make_recipe",
    "merge_all",
    "recipe_for",
    "running_windows",
    "survey",
    "survey_terms",
]
