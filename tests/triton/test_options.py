from __future__ import annotations

import json

import numpy as np
import pytest

from cosyserve.contracts import Mode, Sampling, SpeechRequest, Voice
from cosyserve.errors import InputError
from cosyserve.triton.options import request_options, speech_request

VOICE = Voice("hm", np.zeros(3, np.int32), np.zeros((6, 80), np.float32), np.ones(4, np.float32))
PRESET = Voice("", np.zeros(0, np.int32), np.zeros((0, 80), np.float32), np.ones(4, np.float32))
OWN = Sampling()
WORDLESS = Voice("", VOICE.speech_tokens, VOICE.mel, VOICE.embedding)


def read(
    options: str, voice: Voice = VOICE, *, stream: bool = True, own: Sampling = OWN
) -> SpeechRequest:
    return speech_request("text", voice, options, stream=stream, own=own)


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
        sampling=Sampling(0.5, 7, temperature=0.7),
        language="en",
        lexicon={"nginx": "engine x"},
        final_pause=False,
    )
    options = json.dumps(request_options(request))
    assert read(options, stream=False) == request


@pytest.mark.parametrize("name", ["normalize", "normalise"])
def test_both_spellings_are_taken(name: str) -> None:
    assert not read(json.dumps({name: False})).normalize
    assert read(json.dumps({name: True})).normalize


def test_a_whole_number_is_a_speed() -> None:
    assert read('{"speed": 2, "top_p": 1}').speed == 2.0


def test_what_is_left_out_of_the_sampling_is_the_models_own() -> None:
    own = Sampling(0.9, 50, temperature=0.8)
    for options, sampling in {
        "{}": None,
        '{"top_k": 7}': Sampling(0.9, 7, temperature=0.8),
        '{"temperature": 1}': Sampling(0.9, 50),
    }.items():
        assert read(options, own=own).sampling == sampling


@pytest.mark.parametrize(
    ("voice", "mode"),
    [(VOICE, Mode.ZERO_SHOT), (WORDLESS, Mode.CROSS_LINGUAL), (PRESET, Mode.PRESET)],
)
def test_without_options_the_voice_says_the_mode(voice: Voice, mode: Mode) -> None:
    request = read("", voice)
    assert (request.mode, request.stream, request.seed) == (mode, True, 0)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("{", "options is not JSON"),
        ("[]", "must be a JSON object"),
        ("null", "must be a JSON object"),
        ('{"sped": 1.0}', "unknown option 'sped': use mode, .*normalize, stream"),
        ('{"speed": "1"}', "option speed must be a float"),
        ('{"speed": true}', "option speed must be a float"),
        ('{"speed": null}', "option speed must be a float"),
        ('{"speed": 99}', "speed must be"),
        ('{"speed": NaN}', "speed must be"),
        ('{"seed": 1.5}', "option seed must be a int"),
        ('{"seed": 1.0}', "option seed must be a int"),
        ('{"seed": "1"}', "option seed must be a int"),
        ('{"seed": true}', "option seed must be a int"),
        ('{"top_k": true}', "option top_k must be a int"),
        ('{"normalize": 1}', "option normalize must be a bool"),
        ('{"normalise": 1}', "option normalize must be a bool"),
        ('{"stream": "yes"}', "option stream must be a bool"),
        ('{"instruction": 1}', "option instruction must be a str"),
        ('{"language": 1}', "option language must be a str"),
        ('{"mode": "sing"}', "option mode must be one of zero_shot, "),
        ('{"mode": 1}', "option mode must be"),
        ('{"mode": "instruct"}', "needs an instruction"),
        ('{"top_p": 0.0}', "top_p must be"),
        ('{"temperature": 0}', "temperature must be 0.01..2"),
        ('{"temperature": "1"}', "option temperature must be a float"),
    ],
)
def test_what_is_no_option_is_refused(options: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        read(options)
