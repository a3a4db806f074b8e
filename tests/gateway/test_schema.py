"""Whatever the OpenAPI schema allows, and much that it forbids, gets a documented answer."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from cosyserve.gateway.app import create_app
from cosyserve.gateway.limits import Limits
from cosyserve.settings import Settings
from cosyserve.voices.store import open_store
from tests.gateway.serving import Running
from tests.gateway.sine_engine import SineEngine

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
schema = schemathesis.openapi.from_dict(
    create_app(SineEngine(), open_store("."), Limits.of(Settings())).openapi()
)


OPERATIONS = {found.ok().label: found.ok() for found in schema.get_all_operations()}


# Not the schema's own `parametrize`: its tests share one name, and only the first of a name is run
# where processes share the tests.
@pytest.mark.parametrize("label", OPERATIONS)
def test_no_request_surprises_the_server(label: str, server: Running) -> None:
    @given(OPERATIONS[label].as_strategy())
    @settings(
        max_examples=12,
        deadline=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def request(case: Case) -> None:
        case.call_and_validate(base_url=server.url, checks=CHECKS, timeout=10)

    request()
