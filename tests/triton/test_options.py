from __future__ import annotations

import json

import numpy as np
import pytest

from cosyserve.contracts import Mode, Sampling, SpeechRequest, Voice
from cosyserve.errors import InputError
from cosyserve.triton.options import packed, speech_request

VOICE = Voice("hm", np.zeros(3, np.int32), np.zeros((6, 80), np.float32), np.ones(4, np.float32))
PRESET = Voice("", np.zeros(0, np.int32), np.zeros((0, 80), np.float32), np.ones(4, np.float32))
WORDLESS = Voice("", VOICE.speech_tokens, VOICE.mel, VOICE.embedding)


def test_a_request_survives_the_journey() -> None:
    request = SpeechRequest(
        "text",
        VOICE,
        mode=Mode.INSTRUCT,
        instruction="slowly",
        speed=1.5,
        seed=9,
        stream=True,
        normalize=False,
        sampling=Sampling(0.5, 7),
        language="en",
    )
    assert speech_request("text", VOICE, packed(request), stream=False) == request


@pytest.mark.parametrize(
    ("voice", "mode"),
    [(VOICE, Mode.ZERO_SHOT), (WORDLESS, Mode.CROSS_LINGUAL), (PRESET, Mode.PRESET)],
)
def test_without_options_the_voice_says_the_mode(voice: Voice, mode: Mode) -> None:
    request = speech_request("text", voice, "", stream=True)
    assert (request.mode, request.stream, request.seed) == (mode, True, 0)


@pytest.mark.parametrize(
    "options",
    [
        "{",
        "[]",
        json.dumps({"sped": 1.0}),
        json.dumps({"speed": "1"}),
        json.dumps({"speed": 99}),
        json.dumps({"seed": 1.5}),
        json.dumps({"seed": True}),
        json.dumps({"normalise": 1}),
        json.dumps({"mode": "sing"}),
        json.dumps({"mode": "instruct"}),
        json.dumps({"top_p": 0.0}),
        '{"speed": NaN}',
    ],
)
def test_what_is_no_option_is_refused(options: str) -> None:
    with pytest.raises(InputError):
        speech_request("text", VOICE, options, stream=True)
