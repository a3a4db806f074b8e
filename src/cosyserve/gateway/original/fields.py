"""What the original's Python runtimes are asked for, in the words of this gateway."""

from __future__ import annotations

from pydantic import ValidationError

from cosyserve.audio import AudioFormat
from cosyserve.gateway.connection.context import ConnectionContext
from cosyserve.gateway.errors import Refusal, as_refusal
from cosyserve.gateway.limits import MAX_TEXT
from cosyserve.gateway.speech.body import SpeechFields
from cosyserve.voices.store import DEFAULT

# The speakers of CosyVoice-300M-SFT, the first of which the original's clients name by default.
# A model that has no such voice speaks with its own.
SPEAKERS = frozenset({"中文女", "中文男", "日语男", "粤语女", "英文女", "英文男", "韩语女"})


async def speech_fields(
    context: ConnectionContext,
    *,
    spk_id: str = DEFAULT,
    instruct_text: str = "",
    prompt_wav: bytes | None = None,
    prompt_text: str = "",
) -> SpeechFields:
    """How to speak with a voice by name or, if there is one, in that of a recording."""
    if spk_id in SPEAKERS and spk_id not in await context.voices.names():
        spk_id = DEFAULT
    check_length(prompt_text, "prompt_text")
    check_length(instruct_text, "instruct_text")
    try:
        return SpeechFields(
            model=context.engine.model.name,
            voice=spk_id,
            instructions=instruct_text,
            reference_audio=prompt_wav,
            reference_text=prompt_text,
            response_format=AudioFormat.PCM,
        )
    except ValidationError as error:
        raise as_refusal(error) from error


def check_length(text: str, param: str) -> None:
    """Refuses an instruction, or what a recording says, that is too long."""
    if len(text) > MAX_TEXT:
        message = f"{param} has {len(text)} characters; the limit is {MAX_TEXT}"
        raise Refusal(400, message, "invalid_value", param=param)
