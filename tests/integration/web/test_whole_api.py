"""Every operation that the API describes, with whatever its description allows, and with what it does not."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from fencepost.embedded import Database
from tests.integration.web.whole_app import WholeApp, whole_app

# Of schemathesis, which asks `random` on its way to what a description forbids.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
ENDLESS = {"/api/events", "/status/{job_id}/events"}


@pytest.fixture
def site(database: Database, tmp_path: Path) -> Iterator[WholeApp]:
    with whole_app(database, tmp_path) as site:
        yield site


def checks() -> list[Any]:
    general: Any = import_module("schemathesis.checks")
    of_openapi: Any = import_module("schemathesis.specs.openapi.checks")
    return [
        general.not_a_server_error,
        of_openapi.status_code_conformance,
        of_openapi.content_type_conformance,
        of_openapi.response_schema_conformance,
    ]


def walk(site: WholeApp, examples: int, *, every: int = 1, derandomize: bool = False) -> int:
    """So many requests that each operation allows, and for one in `every` as many that it does not. Answers
    how many operations there are."""
    import requests  # Here, and not where every worker that collects this module would load it.

    # Its types are generic over unnamed types.
    schemathesis: Any = import_module("schemathesis")
    found = [one.ok() for one in schemathesis.openapi.from_dict(site.description).get_all_operations()]
    wanted = checks()
    operations = [one for one in found if one.path not in ENDLESS]
    with requests.Session() as session:
        for number, operation in enumerate(operations):
            session.headers["authorization"] = site.bearer(operation.path)
            modes = [schemathesis.GenerationMode.POSITIVE]
            if number % every == 0 and can_be_wrong(site, operation):
                modes.append(schemathesis.GenerationMode.NEGATIVE)
            for mode in modes:

                @given(case=operation.as_strategy(generation_mode=mode))
                @settings(
                    max_examples=examples,
                    derandomize=derandomize,
                    deadline=None,
                    database=None,
                    phases=[Phase.generate],
                    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
                )
                def attack(case: Any) -> None:
                    case.call_and_validate(base_url=site.url, session=session, checks=wanted)

                attack()
    return len(operations)


def can_be_wrong(site: WholeApp, operation: Any) -> bool:
    """Whether its description forbids any request: not if it takes nothing but names in its path."""
    said = site.description["paths"][operation.path][operation.method]
    return "requestBody" in said or any(one["in"] == "query" for one in said.get("parameters", ()))


def test_every_number_that_is_asked_for_fits_into_the_database(site: WholeApp) -> None:
    """Otherwise it is a failure of ours, and not of the caller."""
    unbounded = [
        (path, one["name"])
        for path, operations in site.description["paths"].items()
        for operation in operations.values()
        for one in operation.get("parameters", ())
        for form in one["schema"].get("anyOf", [one["schema"]])
        if form.get("type") == "integer" and form.get("maximum", 2**64) > 2**63 - 1
    ]
    assert unbounded == []


def test_no_request_makes_the_api_fail_or_its_description_a_lie(site: WholeApp) -> None:
    assert walk(site, 1, every=8, derandomize=True) > 110


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_many_requests_of_each_kind_neither(site: WholeApp) -> None:
    walk(site, 25)
