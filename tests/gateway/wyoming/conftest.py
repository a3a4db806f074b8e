"""One server with a Wyoming port for all tests that don't harm it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cosyserve.gateway.listening import listen
from cosyserve.gateway.wyoming.server import wyoming_server
from cosyserve.settings import Settings
from tests.gateway.serving import opened, serving
from tests.gateway.sine_engine import SineEngine
from tests.gateway.wyoming.asking import Door


@pytest.fixture(scope="module")
def shared_door() -> Iterator[Door]:
    settings = Settings(max_requests=1, max_connections=8, max_idle_seconds=4)
    with (
        serving(SineEngine(), settings) as server,
        listen("127.0.0.1", 0, 10) as listener,
        opened(server, wyoming_server(server.app.state.context, listener)),
    ):
        yield Door(server, listener.getsockname()[1])


@pytest.fixture
def door(shared_door: Door) -> Door:
    shared_door.wait_until_gone()
    shared_door.server.behave()
    return shared_door
