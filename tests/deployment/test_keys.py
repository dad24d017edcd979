"""Keys and folders: tight, apart from each other, and renewable."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from fedprognos.deployment import keys
from fedprognos.deployment.folders import (
    CoordinatorOptions,
    SiteOptions,
    make_deployment,
    public_key_file,
    read_options,
    renew,
)
from fedprognos.errors import ConfigError, OutputError
from refusals import refuses


@pytest.fixture
def made(tmp_path: Path) -> Path:
    make_deployment(tmp_path / "d", ["plant-a", "plant b/1"], "coordinator.example", 9092, None, None)
    return tmp_path / "d"


def test_only_the_owner_can_read_anything(made: Path) -> None:
    for path in [made, *made.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_private_keys_are_in_one_place_each(made: Path) -> None:
    private = [p.relative_to(made).parts for p in made.rglob("*") if p.is_file() and b"PRIVATE KEY" in p.read_bytes()]
    assert sorted(private) == [
        ("authority", "ca.key"),
        ("coordinator", "server.key"),
        ("sites", "plant b%2F1", "site.key"),
        ("sites", "plant-a", "site.key"),
    ]


def test_the_certificate_names_the_host_and_this_machine_and_is_signed_by_the_authority(made: Path) -> None:
    certificate = keys.read_certificate(made / "coordinator" / "server.crt")
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == {"coordinator.example", "localhost"}
    assert {str(a) for a in names.get_values_for_type(x509.IPAddress)} == {"127.0.0.1", "::1"}
    certificate.verify_directly_issued_by(keys.read_certificate(made / "coordinator" / "ca.crt"))
    assert keys.days_left(certificate) == keys.SERVER_IN_DAYS - 1
    assert keys.days_left(certificate, datetime.now(UTC) + timedelta(days=400)) < 0


def test_settings_say_where_the_coordinator_is_and_refuse_unknown_keys(made: Path) -> None:
    assert read_options(made / "sites" / "plant-a", SiteOptions).coordinator == "coordinator.example:9092"
    file = made / "coordinator" / "settings.toml"
    assert read_options(file.parent, CoordinatorOptions).sites == ("plant-a", "plant b/1")
    file.write_text(file.read_text() + "prot = 1\n")
    with refuses(ConfigError, "prot"):
        read_options(file.parent, CoordinatorOptions)


def test_keys_may_be_added_at_the_end_and_one_that_fell_into_a_table_is_named(made: Path) -> None:
    file = made / "sites" / "plant-a" / "settings.toml"
    fresh = file.read_text()
    file.write_text(fresh + 'bundle = "mine"\n')
    assert read_options(file.parent, SiteOptions).bundle == "mine"
    file.write_text(fresh + '[members]\nplant-b = "' + 32 * "0" + '"\nbundle = "mine"\n')
    with refuses(ConfigError, "bundle", "[members]"):
        read_options(file.parent, SiteOptions)


def test_renewing_changes_the_certificate_and_the_keys_asked_for_only(made: Path) -> None:
    before = {p: p.read_bytes() for p in made.rglob("*") if p.is_file()}
    renew(made, ["plant-a"])
    changed = {str(p.relative_to(made)) for p, data in before.items() if p.read_bytes() != data}
    assert changed == {
        "coordinator/server.crt",
        "coordinator/server.key",
        "coordinator/sites/plant-a.pub",
        "sites/plant-a/site.key",
        "sites/plant-a/site.pub",
    }
    keys.read_certificate(made / "coordinator" / "server.crt").verify_directly_issued_by(
        keys.read_certificate(made / "sites" / "plant-a" / "ca.crt")
    )
    assert b"PUBLIC KEY" in keys.read_public_key(public_key_file(made / "coordinator", "plant-a"))


def test_a_site_cannot_have_a_floor_below_twenty(made: Path) -> None:
    file = made / "sites" / "plant-a" / "settings.toml"
    file.write_text(file.read_text().replace("min_count = 20", "min_count = 1"))
    with refuses(ConfigError, "min_count"):
        read_options(file.parent, SiteOptions)


def test_a_folder_in_use_and_bad_names_are_refused(made: Path, tmp_path: Path) -> None:
    with refuses(OutputError, made, "deploy renew"):
        make_deployment(made, ["a"], "h", 1, None, None)
    for names in ([], ["a", "a"], ["a\nb"], [" a"]):
        with pytest.raises(ConfigError):
            make_deployment(tmp_path / "other", names, "h", 1, None, None)
    with refuses(ConfigError, "'x'", "plant-a"):
        renew(made, ["x"])


def test_a_public_key_of_an_unknown_kind_is_an_error_in_words(made: Path) -> None:
    path = made / "coordinator" / "sites" / "plant-a.pub"
    path.write_bytes(path.read_bytes().replace(b"ecdsa-sha2", b"ecdsa-sha0"))
    with refuses(ConfigError, path, "site.pub"):
        keys.read_public_key(path)
