"""How to speak, as a JSON object beside the text.

The original's clients send none; ours send what an OpenAI request can ask for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, get_type_hints

from pydantic import (
    AliasChoices,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    with_config,
)
from typing_extensions import TypedDict

from cosyserve.contracts import Mode, Sampling, SpeechRequest, Voice
from cosyserve.errors import InputError


@with_config(ConfigDict(strict=True, extra="forbid", loc_by_alias=False))
class RequestOptions(TypedDict, total=False):
    """The options that a request may have, each of exactly this type."""

    mode: Mode
    instruction: str
    language: str
    speed: float
    seed: int
    normalize: Annotated[bool, Field(validation_alias=AliasChoices("normalize", "normalise"))]
    stream: bool
    lexicon: dict[str, str]
    final_pause: bool
    top_p: float
    top_k: int
    temperature: float


SAMPLING = ("top_p", "top_k", "temperature")
TYPES = get_type_hints(RequestOptions)
READER = TypeAdapter(RequestOptions)


def request_options(request: SpeechRequest) -> RequestOptions:
    """The options of a request, as they are sent."""
    options = RequestOptions(
        mode=request.mode,
        instruction=request.instruction,
        language=request.language,
        speed=request.speed,
        seed=request.seed,
        normalize=request.normalize,
        stream=request.stream,
    )
    if request.lexicon:
        options["lexicon"] = request.lexicon
    if not request.final_pause:
        options["final_pause"] = False
    if request.sampling is not None:
        options["top_p"] = request.sampling.top_p
        options["top_k"] = request.sampling.top_k
        options["temperature"] = request.sampling.temperature
    return options


def own_sampling(settings: Mapping[str, str], model: Sampling) -> Sampling:
    """How the LM of a repository with these parameters draws unless it is told otherwise: as the
    model's own, or as the runtime in its place."""
    if not settings["llm_url"] and settings["triton_backend"] == "python":
        return model
    return replace(
        model,
        top_p=float(settings["llm_top_p"]),
        top_k=int(settings["llm_top_k"]),
        temperature=float(settings["llm_temperature"]),
    )


def speech_request(
    text: str, voice: Voice, options: str, *, stream: bool, own: Sampling
) -> SpeechRequest:
    """The request of a text and its options; `stream` unless they say otherwise. What they change
    of the sampling, they change of the model's `own`."""
    values: dict[str, Any] = {"mode": voice.mode, "stream": stream, **_read(options)}
    changes = {name: values.pop(name) for name in SAMPLING if name in values}
    sampling = replace(own, **changes) if changes else None
    return SpeechRequest(text, voice, **values, sampling=sampling)


def _read(options: str) -> RequestOptions:
    try:
        return READER.validate_json(options or "{}")
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(_complaint(first["type"], first["loc"], first["msg"])) from error


def _complaint(kind: str, location: tuple[int | str, ...], message: str) -> str:
    if kind == "json_invalid":
        return f"options is not JSON: {message}"
    if not location:
        return 'options must be a JSON object, e.g. {"speed": 1.2}'
    name = str(location[0])
    if kind == "extra_forbidden":
        return f"unknown option {name!r:.40}: use {', '.join(TYPES)}"
    if name == "mode":
        return f"option mode must be one of {', '.join(Mode)}"
    return f"option {name} must be a {TYPES[name].__name__}"
