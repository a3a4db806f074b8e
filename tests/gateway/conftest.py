from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.serving import Running, serving


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Running]:
    with serving() as running:
        yield running


@pytest.fixture
def server(shared_server: Running) -> Running:
    """A server whose engine has forgotten all other tests."""
    shared_server.wait_until_idle()
    shared_server.behave()
    return shared_server
