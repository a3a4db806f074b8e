"""How to speak, as a JSON object beside the text. Knows no tensor.

The original's clients send none; ours send what an OpenAI request can ask for.
"""

from __future__ import annotations

import json
from typing import Any

from cosyserve.contracts import Mode, Sampling, SpeechRequest, Voice
from cosyserve.errors import InputError

KINDS: dict[str, tuple[type, ...]] = {
    "mode": (str,),
    "instruction": (str,),
    "language": (str,),
    "speed": (float, int),
    "seed": (int,),
    "normalise": (bool,),
    "stream": (bool,),
    "top_p": (float, int),
    "top_k": (int,),
}


def packed(request: SpeechRequest) -> str:
    """The options of a request."""
    sampling = request.sampling
    chosen = {} if sampling is None else {"top_p": sampling.top_p, "top_k": sampling.top_k}
    return json.dumps(
        {
            "mode": request.mode,
            "instruction": request.instruction,
            "language": request.language,
            "speed": request.speed,
            "seed": request.seed,
            "normalise": request.normalize,
            "stream": request.stream,
        }
        | chosen
    )


def speech_request(text: str, voice: Voice, options: str, *, stream: bool) -> SpeechRequest:
    """The request of a text and its options; `stream` unless they say otherwise."""
    given = _checked(options)
    chosen = {name: given.pop(name) for name in ("top_p", "top_k") if name in given}
    mode = Mode(given.pop("mode", _mode(voice)))
    sampling = Sampling(**chosen) if chosen else None
    return SpeechRequest(text, voice, **{"stream": stream} | given, mode=mode, sampling=sampling)


def _mode(voice: Voice) -> Mode:
    """What the voice allows."""
    if not voice.speech_tokens.size:
        return Mode.PRESET
    return Mode.ZERO_SHOT if voice.prompt_text else Mode.CROSS_LINGUAL


def _checked(options: str) -> dict[str, Any]:
    try:
        given = json.loads(options or "{}")
    except ValueError as error:
        raise InputError(f"options is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise InputError('options must be a JSON object, e.g. {"speed": 1.2}')
    for name, value in given.items():
        if name not in KINDS:
            raise InputError(f"unknown option {name!r:.40}: use {', '.join(KINDS)}")
        if type(value) not in KINDS[name]:
            raise InputError(f"option {name} must be a {KINDS[name][0].__name__}")
    if given.get("mode", Mode.PRESET) not in list(Mode):
        raise InputError(f"option mode must be one of {', '.join(Mode)}")
    return given
