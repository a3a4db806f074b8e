from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cosyserve.contracts import Voice, VoiceFormat
from cosyserve.errors import VoiceError
from cosyserve.models.config import FlowConfig, ModelConfig
from cosyserve.voices.fits import check_fits

VOICE = Voice(
    prompt_text="hello",
    speech_tokens=np.arange(10, dtype=np.int32),
    mel=np.zeros((20, 80), np.float32),
    embedding=np.ones(192, np.float32),
    name="ann",
    family="cosyvoice2",
    fingerprint="f1",
)
FORMAT = VoiceFormat("cosyvoice2", "f1", embedding=192, mel=80, speech_tokens=10)


def test_what_is_unknown_is_not_checked() -> None:
    check_fits(VOICE, FORMAT)
    check_fits(VOICE, VoiceFormat("cosyvoice2"))
    check_fits(replace(VOICE, fingerprint=""), FORMAT)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (replace(FORMAT, family="other"), "is of family 'cosyvoice2', the model is 'other'"),
        (replace(FORMAT, fingerprint="f2"), "made by another model .*fingerprint f1"),
        (replace(FORMAT, embedding=80), "an embedding of 192 .* wants 80 and 80"),
        (replace(FORMAT, mel=100), "80 mel bins, the model wants 192 and 100"),
        (replace(FORMAT, speech_tokens=9), "tokens above 8"),
    ],
)
def test_what_differs_is_named(model: VoiceFormat, message: str) -> None:
    with pytest.raises(VoiceError, match=rf"voice 'ann' .*{message}"):
        check_fits(VOICE, model)


def test_a_prompt_is_at_most_as_long_as_a_recording() -> None:
    def lasting(tokens: int) -> Voice:
        ids, mel = np.zeros(tokens, np.int32), np.zeros((2 * tokens, 80), np.float32)
        return replace(VOICE, speech_tokens=ids, mel=mel)

    check_fits(lasting(750), FORMAT)
    with pytest.raises(VoiceError, match=r"of 30\.1 s, of at most 30"):
        check_fits(lasting(752), FORMAT)


def test_the_format_of_a_model_comes_from_its_flow() -> None:
    whole = ModelConfig(fingerprint="f1", flow=FlowConfig())
    assert whole.voice_format == VoiceFormat("cosyvoice2", "f1", 192, 80, 6561)
    assert ModelConfig(fingerprint="f1").voice_format == VoiceFormat("cosyvoice2", "f1")
