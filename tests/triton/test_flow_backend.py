"""Triton's models with the flow and the speaker encoder in onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Floats, Recording, Voice
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.voices.enroll import enroll
from tests.triton.asking import over_http
from tests.triton.server import Served, serving
from tests.triton.test_token2wav import chunk, rounded, spoken


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("elsewhere")
    settings = ("flow_backend=onnxruntime", f"flow_engines={folder / 'engines'}")
    models = ("speaker_embedding", "token2wav")
    with serving(folder, "test", *settings, models=models) as server:
        yield server


def test_engines_are_made_once_for_both_models(elsewhere: Served) -> None:
    engines = elsewhere.repository.parent / "engines"
    flow, speaker = sorted(path.name for path in engines.glob("*.float32.onnx"))
    assert flow.startswith("flow.whole.")
    assert speaker.startswith("speaker.")


def off_by(ours: Floats, wanted: Floats) -> float:
    assert ours.shape == wanted.shape
    return float(np.linalg.norm(ours - wanted) / np.linalg.norm(wanted))


def test_embeddings_are_torchs(elsewhere: Served, model: Model, recording: Floats) -> None:
    found = over_http(elsewhere, "speaker_embedding", {"reference_wav": recording[None]})
    expected = enroll(model, Recording(recording, 16_000)).embedding
    assert 0 < off_by(found["embedding"][0], expected) < 1e-4


def test_a_waveform_is_ours(elsewhere: Served, model: Model, voice: Voice) -> None:
    token2wav, tokens = Token2Wav(*model.need_token2wav()), spoken(60, 0)
    begun = token2wav.begin(rounded(voice), with_prompt=True, seed=0, speed=1.0)
    ((expected, _),) = token2wav.whole([begun], [tokens])
    found = over_http(elsewhere, "token2wav", chunk(voice, tokens, None, True))
    assert 0 < off_by(found["waveform"][0], expected) < 1e-3
