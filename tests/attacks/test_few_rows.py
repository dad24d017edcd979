"""Sums of few rows that leave inside an ordinary contract: differences within a run, flags, rows that weigh most."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from fedprognos.features import Recipe, make_recipe, survey_terms
from fedprognos.features.recipe_options import RecipeOptions
from fedprognos.features.recipe_survey import Survey
from fedprognos.federation.client import Client
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.exchanges.evaluate import EvaluateReply, EvaluateRequest
from fedprognos.federation.exchanges.fit import FitReply, FitRequest
from fedprognos.federation.exchanges.scores import ScoreReply, ScoreRequest
from fedprognos.federation.exchanges.survey import SurveyRequest
from fedprognos.fleet import Fleet
from fedprognos.networks import HeadStatistics, Network, NetworkSpec
from fedprognos.networks.model_options import Training
from fedprognos.privacy.floors import FloorError, Floors
from fedprognos.privacy.secret_split import SecretSplit
from refusals import refuses
from small_fleets import series_fleet

BARE, SITE = Floors(units=5, leverage=0.95), Floors(units=5, leverage=0.95, parts=True)
ODD = (612.0, 16.5)
"""What the sensors show in the one row that has an operating condition of its own."""


def with_unit(fleet: Fleet, number: int, **facts: object) -> Fleet:
    units = [replace(unit, **facts) if k == number else unit for k, unit in enumerate(fleet)]  # type: ignore[arg-type]
    return replace(fleet, units=tuple(units))


def one_odd_row(rows: int = 1) -> Fleet:
    """Twelve machines; some rows of one of them are in a condition that no other row is in."""
    fleet = series_fleet([40] * 12, seed=5, name="a")
    settings, sensors = fleet.units[3].settings.copy(), fleet.units[3].sensors.copy()
    settings[17 : 17 + rows] = (30.0, 0.5)
    sensors[17] = ODD
    return with_unit(fleet, 3, settings=settings, sensors=sensors)


def client_of(folder: Path, fleet: Fleet, floors: Floors) -> Client:
    return Client("a", fleet, ClientFolder(folder), floors, split=SecretSplit(b"s"))


def asked(client: Client, **options: object) -> tuple[Survey, Recipe, HeadStatistics]:
    """An ordinary run's survey and the sums of a head that sees the latest row."""
    section = RecipeOptions.model_validate({"history": "life", "cap": 40, "conditions": {"altitude": 0}, **options})
    survey = client.answer(SurveyRequest(survey_terms(section))).survey  # type: ignore[union-attr]
    recipe = make_recipe(section, {"a": survey})
    network = Network.seeded(NetworkSpec(inputs=recipe.channels, widths=(3,), direct=1), 1)
    reply = client.answer(EvaluateRequest(recipe, network, 1, 0.0, statistics=True))
    assert isinstance(reply, EvaluateReply)
    assert reply.fit is not None
    return survey, recipe, reply.fit


def left_over(survey: Survey, recipe: Recipe, sums: HeadStatistics) -> tuple[int, np.ndarray, float]:
    """What the head's sums have and the survey has not: rows, scaled sensors, label."""
    width = len(recipe.sensors)
    rows = sums.n - sum(one.n for one in survey.cells.values())
    known = sum(
        one.n * (one.mean[:width] - np.array(mean)) / np.array(std)
        for one, mean, std in zip(survey.cells.values(), recipe.mean, recipe.std, strict=True)
    )
    labels = sums.n * recipe.label_mean + sums.hy[-1] * recipe.label_std - survey.labels.n * survey.labels.mean[0]
    return rows, sums.hh[-1, -1 - recipe.channels : -1] - known, float(labels)


def test_a_row_in_a_condition_of_its_own_is_not_what_head_and_survey_differ_by(tmp_path: Path) -> None:
    """Moments leave rare conditions out, the head's sums did not: their difference was the row."""
    survey, recipe, sums = asked(client_of(tmp_path / "bare", one_odd_row(), BARE))
    rows, scaled, _ = left_over(survey, recipe, sums)
    assert rows == 1
    assert np.allclose(scaled * recipe.std[1] + recipe.mean[1], ODD, atol=1e-3)  # scaled as the nearest condition
    for number in (1, 6):
        survey, recipe, sums = asked(client_of(tmp_path / "site", one_odd_row(number), SITE))
        rows, scaled, label = left_over(survey, recipe, sums)
        assert rows == 0
        assert sums.n == 480 - number
        assert np.abs(scaled).max() < 1e-3
        assert abs(label) < 1e-3


def test_the_only_machine_whose_health_is_not_known_is_not_what_they_differ_by(tmp_path: Path) -> None:
    fleet = with_unit(series_fleet([40] * 12, seed=5, name="a"), 3, rul_at_end=None)
    assert left_over(*asked(client_of(tmp_path / "bare", fleet, BARE)))[0] == -40
    assert left_over(*asked(client_of(tmp_path / "site", fleet, SITE)))[0] == 0


@pytest.mark.parametrize(("rows", "machines"), [(3, 3), (19, 12), (30, 4), (20, 12)])
def test_a_flag_that_few_rows_have_is_not_summed_beside_the_sensors(tmp_path: Path, rows: int, machines: int) -> None:
    """H'H of a flag is the sum over the rows that have it; each of three has a leverage of a third only."""
    fleet = series_fleet([40] * 12, seed=5, name="a")
    flags = [np.zeros(40) for _ in fleet]
    for k in range(rows):
        flags[k % machines][20 + k // machines] = 1.0
    units = tuple(replace(u, sensors=np.column_stack([u.sensors, flag])) for u, flag in zip(fleet, flags, strict=True))
    fleet = replace(fleet, schema=replace(fleet.schema, sensors=("pressure", "temperature", "alarm")), units=units)
    if rows < 20 or machines < 5:
        with pytest.raises(FloorError):
            asked(client_of(tmp_path, fleet, SITE), conditions={})
    else:
        assert asked(client_of(tmp_path, fleet, SITE), conditions={})[2].n == 480


def test_a_row_that_weighs_most_because_its_machine_is_short_is_seen_by_the_tripwire(tmp_path: Path) -> None:
    """Where units count alike, the only row of a short one counts for a hundred points."""
    fleet = series_fleet([60] * 8 + [10], seed=5, name="a")
    sensors = fleet.units[8].sensors.copy()
    sensors[-1] += (60.0, -12.0)
    fleet = with_unit(fleet, 8, sensors=sensors)
    section = RecipeOptions.model_validate({"window": 10, "cap": 40, "conditions": {}})
    client = client_of(tmp_path, fleet, SITE)
    survey = client.answer(SurveyRequest(survey_terms(section))).survey  # type: ignore[union-attr]
    recipe = make_recipe(section, {"a": survey})
    network = Network.seeded(NetworkSpec(inputs=recipe.channels, widths=(1,), direct=1), 1)
    windows = client.windows(recipe)
    assert (windows.unit == 8).sum() == 1
    plain = EvaluateRequest(recipe, network, 1, 0.0, statistics=True)
    strict = client_of(tmp_path, fleet, replace(SITE, leverage=0.6))
    assert isinstance(strict.answer(plain), EvaluateReply)
    with pytest.raises(FloorError):
        strict.answer(replace(plain, alike=True))


@pytest.mark.long
def test_nobody_can_tell_which_rows_training_saw_last(tmp_path: Path) -> None:
    """With batches of one row and public orders, the last rows weigh most in the weights and are known."""
    fleet = series_fleet([40] * 6, seed=5, name="a")
    section = RecipeOptions(window=8, cap=40)
    public = Client("a", fleet, ClientFolder(tmp_path / "a"))
    recipe = make_recipe(section, {"a": public.answer(SurveyRequest(survey_terms(section))).survey})  # type: ignore[union-attr]
    spec = NetworkSpec(inputs=recipe.channels, widths=(2,))
    request = FitRequest(recipe, Training(epochs=1, batch_size=1), 0.0, 1, spec)

    def learnt(secret: bytes) -> bytes:
        client = Client("a", fleet, ClientFolder(tmp_path / "b"), split=SecretSplit(secret))
        reply = client.answer(request)
        assert isinstance(reply, FitReply)
        return b"".join(array.tobytes() for array in reply.weights.values())

    assert learnt(b"") == learnt(b"")  # everybody can work it out on one machine
    assert learnt(b"x") == learnt(b"x")  # a site that restarts gives the same answer
    assert len({learnt(b""), learnt(b"x"), learnt(b"y")}) == 3


def test_decay_that_forgets_all_steps_but_the_last_is_refused() -> None:
    with refuses(ValidationError, "weight_decay", "learning_rate"):
        Training(learning_rate=1e-12, weight_decay=1e12)


def test_a_score_that_is_one_machines_is_not_sent(tmp_path: Path) -> None:
    """The NASA score grows with exp(d / 13): the machine that is missed by most is the sum, and its error follows."""
    fleet = series_fleet([60] * 30 + [190], seed=5, name="a")
    section = RecipeOptions(window=8, cap=40, conditions={"altitude": 0})
    client = Client("a", fleet, ClientFolder(tmp_path), BARE, test=fleet)
    recipe = make_recipe(section, {"a": client.answer(SurveyRequest(survey_terms(section))).survey})  # type: ignore[union-attr]
    request = ScoreRequest(recipe, Network.seeded(NetworkSpec(inputs=recipe.channels, widths=(3,)), 1), 1, 0.0, "all")
    lax = Client("a", fleet, ClientFolder(tmp_path), replace(BARE, leverage=1.0), test=fleet).answer(request)
    site = client.answer(request)
    assert isinstance(lax, ScoreReply)
    assert isinstance(site, ScoreReply)
    assert lax.test is not None
    assert site.test is not None
    assert set(lax.test.sums) - set(site.test.sums) == {"nasa"}
