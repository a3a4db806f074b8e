"""Whatever the OpenAPI schema allows, and much that it forbids, gets a documented answer."""

from __future__ import annotations

import schemathesis
from hypothesis import HealthCheck, Phase, settings
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


@schema.parametrize()
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_no_request_surprises_the_server(case: Case, server: Running) -> None:
    case.call_and_validate(base_url=server.url, checks=CHECKS, timeout=10)
