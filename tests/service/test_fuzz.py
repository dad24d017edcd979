"""The interface against its own OpenAPI document, with inputs nobody thought of."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance
from services import rows_of, served, small_bundle

from fedprognos.prognosis import Predictor
from fedprognos.service import ServiceOptions
from fedprognos.service.http_app import create_app
from small_fleets import series_fleet

FLEET = series_fleet([28, 14])
QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


APP = create_app(Predictor.from_bundle(small_bundle(FLEET)), ServiceOptions(max_rows=50))
SCHEMA = schemathesis.openapi.from_dict(APP.openapi()).exclude(path="/v1/events")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    shadow = Predictor.from_bundle(small_bundle(FLEET, seed=4))
    with served(small_bundle(FLEET), tmp_path_factory.mktemp("state"), max_rows=50, shadow=shadow) as address:
        rows = [row for unit in FLEET for row in rows_of(unit, FLEET)]
        assert httpx.post(f"{address}/v1/rows", json=rows).status_code == 200
        yield address
        assert httpx.get(f"{address}/readyz").status_code == 200
        assert httpx.get(f"{address}/v1/units/engines-0").json()["position"] == 28.0


@SCHEMA.parametrize()
@settings(max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=QUIET)
def test_no_input_breaks_the_service(case: schemathesis.Case, address: str) -> None:
    checks = [not_a_server_error, response_schema_conformance, status_code_conformance]
    case.call_and_validate(base_url=address, checks=checks)
