"""One server for all tests that don't harm it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Floats, Recording, Voice
from cosyserve.voices.enroll import enroll
from cosyserve.voices.store import open_store
from tests.triton.server import Served, serving


@pytest.fixture(scope="session")
def recording() -> Floats:
    """16 kHz."""
    return (0.1 * np.random.default_rng(0).standard_normal(40_000)).astype(np.float32)


@pytest.fixture(scope="session")
def voice(model: Model, recording: Floats) -> Voice:
    return enroll(model, Recording(recording, 16_000, "A few words.", name="noise"))


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, voice: Voice) -> Iterator[Served]:
    """A repository of the test model; its store has the voice `noise`."""
    with serving(tmp_path_factory.mktemp("triton")) as server:
        open_store(str(server.voices)).put("noise", voice)
        yield server
