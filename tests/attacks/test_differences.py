"""Differences of sums that each pass the floors: what two or more of them could tell of single units together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_run import SmallRun

from fedprognos.features import build_windows
from fedprognos.federation.client import Client
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.exchanges.evaluate import EvaluateReply, EvaluateRequest
from fedprognos.federation.exchanges.personal import PoolReply, PoolRequest
from fedprognos.networks import Network, NetworkSpec
from fedprognos.privacy.floors import FloorError, Floors
from fedprognos.privacy.secret_split import SecretSplit, stream
from small_fleets import recipe_of, series_fleet

LENGTHS = [30 + 3 * k for k in range(12)]
FLEET = series_fleet(LENGTHS, seed=5, name="a")
RECIPE = recipe_of(FLEET, window=8, cap=40, stride=1)
NETWORK = Network.seeded(NetworkSpec(inputs=RECIPE.channels, widths=(3,)), 1)
SITE = Floors(units=5, leverage=0.95)
SEEDS = range(30)


def asked(client: Client, seed: int, fraction: float = 0.5, without_reserve: bool = False) -> EvaluateReply:
    reply = client.answer(
        EvaluateRequest(RECIPE, NETWORK, seed, fraction, statistics=True, without_reserve=without_reserve)
    )
    assert isinstance(reply, EvaluateReply)
    return reply


def solved(replies: list[EvaluateReply]) -> np.ndarray:
    """How many windows each unit has, from sums over parts that follow from public seeds."""
    dealt = [np.random.default_rng(stream(seed, "a", 0, "validation")).permutation(12)[:6] for seed in SEEDS]
    parts = np.array([[unit in part for unit in range(12)] for part in dealt], dtype=float)
    counts = np.array([reply.held.n for reply in replies], dtype=float)  # type: ignore[union-attr]
    return np.linalg.lstsq(parts, counts, rcond=None)[0]


def test_sums_of_many_seeds_tell_each_life_on_one_machine_and_none_at_a_site(tmp_path: Path) -> None:
    windows = build_windows(RECIPE, FLEET)
    true = np.bincount(windows.unit)
    public = [asked(Client("a", FLEET, ClientFolder(tmp_path / "one"), SITE), seed) for seed in SEEDS]
    assert np.abs(solved(public) - true).max() < 1e-6
    site = Client("a", FLEET, ClientFolder(tmp_path / "two"), SITE, split=SecretSplit(b"the site's own"))
    secret = [asked(site, seed) for seed in SEEDS]
    for part in ("fit", "held"):  # every seed is about the same units: there is no difference to take
        sums = [getattr(reply, part) for reply in secret]
        assert len({one.n for one in sums}) == 1
        assert max(np.abs(one.hy - sums[0].hy).max() for one in sums) < 1e-9
    assert np.abs(solved(secret) - true).max() > 1


def test_parts_of_slightly_different_shares_do_not_differ_by_a_unit(tmp_path: Path) -> None:
    """Two contracts, both approved, of 6/12 and 7/12: on one machine the larger part holds the smaller and one unit."""

    def parts(split: SecretSplit) -> list[set[int]]:
        client = Client("a", FLEET, ClientFolder(tmp_path), SITE, split=split)
        held = [client.parts(RECIPE, 1, share)[1] for share in (6 / 12, 7 / 12)]
        return [set(part.unit.tolist()) for part in held if part is not None]

    smaller, larger = parts(SecretSplit())
    assert len(larger - smaller) == 1
    assert smaller < larger
    apart = [parts(SecretSplit(bytes([k]))) for k in range(20)]
    assert sum(one < other for one, other in apart) == 0


@pytest.mark.parametrize("units", [9, 10, 12])
def test_sums_with_and_without_the_reserve_differ_by_the_floor_or_not_at_all(tmp_path: Path, units: int) -> None:
    fleet = FLEET.select(list(FLEET)[:units])
    site = Client("a", fleet, ClientFolder(tmp_path), SITE, split=SecretSplit(b"s"))
    reply, everything = asked(site, 1, 0.0, without_reserve=True), asked(site, 1, 0.0)
    assert reply.fit is not None
    assert everything.fit is not None
    left_out = set(range(units)) - set(site.learnt_from(RECIPE, 1, without_reserve=True).unit.tolist())
    assert len(left_out) == (5 if units >= 10 else 0)
    assert (everything.fit.n - reply.fit.n >= 20) == bool(left_out)


def test_a_reserve_of_few_rows_is_refused(tmp_path: Path) -> None:
    fleet = series_fleet([10] * 12, seed=5, name="a")  # three windows a unit
    site = Client("a", fleet, ClientFolder(tmp_path), SITE, split=SecretSplit(b"s"))
    asked(site, 1, 0.0)
    with pytest.raises(FloorError):
        asked(site, 1, 0.0, without_reserve=True)


def test_a_site_deals_its_units_by_a_secret_that_only_its_key_gives(tmp_path: Path) -> None:
    run = SmallRun(tmp_path, options={})
    one, other = run.sites["a"].client.split, run.sites["b"].client.split
    assert len(one.secret) == 32
    assert one.secret != other.secret
    assert one == run.site("a").client.split  # after a restart
    assert run.sites["a"].fingerprint == run.site("a").fingerprint
    (tmp_path / "a" / "site.key").write_text("whoever made the folders knows this one")
    assert run.sites["a"].fingerprint == run.site("a").fingerprint
    assert run.sites["a"].fingerprint != run.site("a", seed=3).fingerprint


@pytest.mark.parametrize("units", [1, 8])
def test_nested_sums_for_personal_heads_differ_by_no_less_than_the_floors(tmp_path: Path, units: int) -> None:
    """Sums of the first 70, 80, 90 and 100 % of the points: on one machine they differ by a few cycles of a battery."""
    fleet = series_fleet([107 // units + 20] * units, seed=5, name="a")
    recipe = recipe_of(fleet, window=8, cap=40, stride=1)
    network = Network.seeded(NetworkSpec(inputs=recipe.channels, widths=(), direct=True), 1)

    def sizes(floors: Floors) -> list[int]:
        client = Client("a", fleet, ClientFolder(tmp_path), floors, split=SecretSplit(b"s"))
        reply = client.answer(PoolRequest(recipe, network, 1, 0.0))
        assert isinstance(reply, PoolReply)
        return [one.n for one in reply.fits if one is not None]

    lax, strict = sizes(Floors()), sizes(Floors(units=5, parts=True))
    assert units > 1 or min(np.diff(lax)) < 20
    assert len(strict) == (2 if units == 1 else 1)  # several units: cuts differ by one of them
    assert not (np.diff(strict) < 20).any()
