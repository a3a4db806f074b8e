"""An LLM server that answers as a test says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.backends import llm_server
from tests.backends.llm_server import SPOKEN, says, serving


@pytest.fixture(scope="module")
def running() -> Iterator[llm_server.LLMServer]:
    with serving(says(SPOKEN)) as server:
        yield server


@pytest.fixture
def server(running: llm_server.LLMServer) -> llm_server.LLMServer:
    running.answers.clear()
    running.bodies.clear()
    return running
