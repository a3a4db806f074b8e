"""An LM and a token2wav of the test model, each alone, and the engine that joins them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cosyserve.checkpoints.model import Model
from cosyserve.engine.split.lm_service import LMService
from cosyserve.engine.split.pipeline import SplitEngine
from cosyserve.engine.split.token2wav_service import Token2WavService
from tests.engine.split.listening import services, weightless


@pytest.fixture(scope="module")
def parts_alone(model: Model) -> Iterator[tuple[LMService, Token2WavService]]:
    with services(model) as alone:
        yield alone


@pytest.fixture(scope="module")
def engine(model: Model, parts_alone: tuple[LMService, Token2WavService]) -> SplitEngine:
    return SplitEngine(weightless(model), *parts_alone)
