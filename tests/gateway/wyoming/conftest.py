"""One server with a Wyoming port for all tests that don't harm it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.wyoming.asking import Door, open_door


@pytest.fixture(scope="module")
def shared_door() -> Iterator[Door]:
    with open_door(max_requests=1, max_connections=8) as door:
        yield door


@pytest.fixture
def impatient() -> Iterator[Door]:
    """That of a server which waits for nobody."""
    with open_door(max_idle_seconds=0.5) as door:
        yield door


@pytest.fixture
def door(shared_door: Door) -> Door:
    shared_door.wait_until_gone()
    shared_door.server.behave()
    return shared_door
