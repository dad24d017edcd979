"""From raw rows to what the network sees: moments, operating conditions, recipes, windows."""

from fedprognos.features.channels import ChannelKind, Channels, channels, columns_of
from fedprognos.features.counted_rows import CountedRows, labelled_only
from fedprognos.features.moments import Moments, merge_all
from fedprognos.features.recipe import ConditionWarning, Recipe
from fedprognos.features.recipe_options import RecipeOptions
from fedprognos.features.recipe_survey import Survey, SurveyTerms, make_recipe, recipe_for, survey, survey_terms
from fedprognos.features.row_memory import Arrays, RowMemory
from fedprognos.features.sensor_ranges import (
    FAR,
    QUARTER,
    SETTLED,
    SMOOTHING,
    JointLevels,
    LevelScaling,
    SensorRanges,
    fleet_ranges,
    levels,
)
from fedprognos.features.wear_columns import WearSums, carries_wear, wear_sums
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
    "FAR",
    "QUARTER",
    "SETTLED",
    "SMOOTHING",
    "Arrays",
    "ChannelKind",
    "Channels",
    "ConditionWarning",
    "CountedRows",
    "JointLevels",
    "LevelScaling",
    "Moments",
    "Recipe",
    "RecipeOptions",
    "RowMemory",
    "SensorRanges",
    "Survey",
    "SurveyTerms",
    "WearSums",
    "WindowSet",
    "build_windows",
    "carries_wear",
    "channels",
    "check_usable",
    "columns_of",
    "fleet_ranges",
    "health_labels",
    "hold_out",
    "joined",
    "labelled_only",
    "levels",
    "make_recipe",
    "merge_all",
    "recipe_for",
    "running_windows",
    "survey",
    "survey_terms",
    "wear_sums",
]
