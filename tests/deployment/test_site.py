"""A site answers whatever comes, keeps what it is given below its folder, and notices when its data changed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sites_here import site_here

from fedprognos.deployment.site.delivery import keep_delivery
from fedprognos.deployment.site.site_data import SiteData, check_site_data, read_site_data
from fedprognos.deployment.site.site_service import Site
from fedprognos.errors import ConfigError, DataError, MessageError, RecipeError
from fedprognos.experiment import config
from fedprognos.federation.codec import decode, encode
from fedprognos.federation.exchanges import reply_kinds
from fedprognos.federation.exchanges.site_messages import DataTerms, DeliverRequest, HelloReply, HelloRequest
from fedprognos.fleet import Fleet
from fedprognos.networks import Bundle, Network, NetworkSpec, Trust
from refusals import refuses
from small_fleets import cyclic_fleet, recipe_of, series_fleet

REPLIES = (*reply_kinds(), HelloReply)


def answer(site: Site, request: Any) -> Any:
    return decode(site.respond(encode(request)), REPLIES)


def test_a_site_says_who_it_is_and_notes_it_in_the_ledger(tmp_path: Path) -> None:
    site = site_here(tmp_path)
    reply = answer(site, HelloRequest("x"))
    assert (reply.name, reply.identity) == ("a", site_here(tmp_path).identity.public)
    assert (tmp_path / "identity.key").stat().st_mode & 0o777 == 0o600
    assert [line.kind for line in site.ledger.ledger()] == ["HelloReply"]


def test_nonsense_and_a_full_disk_give_a_failure_free_of_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = site_here(tmp_path)
    reply = decode(site.respond(b"nonsense"), REPLIES)
    assert (reply.client, reply.code) == ("a", "message")
    site.limit = 10
    assert "10" in answer(site, HelloRequest("x")).text
    site.limit = 1 << 20

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "ledger.jsonl"))

    monkeypatch.setattr(site.ledger, "record", full)
    reply = answer(site, HelloRequest("x"))
    assert reply.code == "internal"
    assert str(tmp_path) not in reply.text


def test_a_delivery_stays_below_the_site_s_folder_whatever_it_calls_itself(tmp_path: Path) -> None:
    train, test = series_fleet([60, 58, 70, 66], seed=1, name="a"), series_fleet([50, 40], seed=2, name="a")
    site = site_here(tmp_path / "site", data=SiteData(train, test))
    recipe = recipe_of(train)
    network = Network.seeded(NetworkSpec(inputs=recipe.channels, widths=(3,)), 1, 0.0)
    named = '{"method": "../../../../out", "head": "exact", "round": 1}'
    request = DeliverRequest("../../x", recipe, network, named, "{}", None, 1, 0.2, 0)
    keep_delivery(site.folder, site.client, site.data, request, site.identity)
    assert [path.name for path in tmp_path.iterdir()] == ["site"]
    assert len(list((tmp_path / "site" / "results").glob("*/predictions/*.csv"))) == 1
    for text in ("[]", "{", "[" * 100_000):
        with pytest.raises(MessageError):
            keep_delivery(site.folder, site.client, site.data, replace(request, metrics=text), site.identity)


def delivered(folder: Path, head: float) -> dict[str, float]:
    """Errors at a site of a network with this head, and of what the site makes for itself."""
    train = series_fleet([60, 58, 70, 66, 52, 61], seed=1, name="a")
    test = series_fleet([50, 40], seed=2, name="a")
    site = site_here(folder, data=SiteData(train, test))
    recipe = recipe_of(train)
    network = Network.seeded(NetworkSpec(inputs=recipe.channels, widths=(3,)), 1, 0.0)
    network = network.with_head(np.full_like(network.head, head))
    named = '{"method": "absorb", "head": "exact", "round": 1}'
    request = DeliverRequest("x", recipe, network, named, "{}", None, 1, 0.2, 0)
    delivery = keep_delivery(site.folder, site.client, site.data, request, site.identity)
    place, errors = delivery.place, delivery.errors
    choice = json.loads((place / "choice.json").read_text())
    assert choice["use"] == next(iter(errors))
    trust = Trust.from_file(place / "trust.toml")
    assert Bundle.load(place / choice["use"], trust).recipe == recipe
    assert {Bundle.load(place / name, trust).signed_by for name in ("bundle", "personal", "own")} == {("a",)}
    return errors


def test_a_site_does_not_use_a_model_that_was_poisoned(tmp_path: Path) -> None:
    errors = delivered(tmp_path, 1e3)
    use = next(iter(errors))
    assert use != "bundle"
    assert errors[use] < 0.5 * errors["bundle"]


# --- the site's data ------------------------------------------------------------------------------


def test_a_site_reads_its_part_of_a_benchmark_or_its_own_table(tmp_path: Path) -> None:
    _, demo, base = config.load("plants")
    assert check_site_data(read_site_data("plant-a", demo, base), DataTerms.from_recipe(demo.recipe)).sensors
    with refuses(ConfigError, "plant-x", "plant-a"):
        read_site_data("plant-x", demo, base)
    table = tmp_path / "fleet.csv"
    table.write_text("machine,hour,heat,site\n" + "".join(f"m{k % 2},{k // 2},{k},b\n" for k in range(60)))
    with refuses(ConfigError, "--columns", "fleet.csv"):
        read_site_data("plant-a", demo, base, table)
    own = config.parse(
        {
            "data": {"kind": "table", "path": "x", "unit": "machine", "time": "hour", "site": "site"},
            "partition": {"by": "column", "column": "site"},
            "recipe": {"window": 40},
        },
        "test",
    )
    with refuses(DataError, "fleet.csv", "'a'"):
        read_site_data("a", own, tmp_path, table)
    with refuses(RecipeError, 40, 30):
        check_site_data(read_site_data("b", own, tmp_path, table), DataTerms.from_recipe(own.recipe))


def changed(fleet: Fleet, **fields: Any) -> Fleet:
    """The fleet with another first unit."""
    first, *others = fleet
    return fleet.select([replace(first, **fields), *others])


def battery_data() -> SiteData:
    return SiteData(cyclic_fleet(2, seed=1), cyclic_fleet(1, seed=2))


CHANGES = {
    "labels": lambda d: SiteData(changed(d.train, target=next(iter(d.train)).target + 0.001), d.test),
    "cycles": lambda d: SiteData(changed(d.train, cycle_numbers=next(iter(d.train)).cycle_numbers + 1), d.test),
    "sensors": lambda d: SiteData(changed(d.train, sensors=next(iter(d.train)).sensors + 0.001), d.test),
    "test labels": lambda d: SiteData(d.train, changed(d.test, target=next(iter(d.test)).target + 0.001)),
    "no test": lambda d: SiteData(d.train, None),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_fingerprint_changes_with_the_data(tmp_path: Path, what: str) -> None:
    before = battery_data()
    first = site_here(tmp_path, data=before).fingerprint
    assert site_here(tmp_path, data=battery_data()).fingerprint == first
    assert site_here(tmp_path, data=CHANGES[what](before)).fingerprint != first


def test_a_fingerprint_tells_nothing_without_the_site_s_secret() -> None:
    data = battery_data()
    assert data.fingerprint(b"one") != data.fingerprint(b"other")
