"""Turns the fields of a client's request into a `SpeechRequest`: the model, the voice, the mode."""

from __future__ import annotations

from collections.abc import AsyncIterator

from cosyserve.contracts import Engine, Mode, SpeechRequest, Voice
from cosyserve.errors import InputError
from cosyserve.gateway.known_voices import KnownVoices
from cosyserve.gateway.references import References
from cosyserve.gateway.requests import SpeechFields
from cosyserve.gateway.status import check_model


class Interpreter:
    def __init__(self, engine: Engine, voices: KnownVoices, references: References) -> None:
        self._engine, self._voices, self._references = engine, voices, references

    async def request(self, fields: SpeechFields, text: str | AsyncIterator[str]) -> SpeechRequest:
        check_model(self._engine.model, fields.model)
        voice = await self._speaker(fields)
        return SpeechRequest(
            text=text,
            voice=voice,
            mode=_mode(fields, voice),
            instruction=fields.instructions,
            speed=fields.speed,
            seed=fields.seed,
            stream=True,
            language=fields.language,
        )

    async def _speaker(self, fields: SpeechFields) -> Voice:
        if fields.reference_audio is None:
            return await self._voices.speaker(fields.voice_name)
        return await self._references.voice(fields.reference_audio, fields.reference_text)


def _mode(fields: SpeechFields, voice: Voice) -> Mode:
    """The mode that the fields name or imply, else that of the voice."""
    if fields.reference_text and fields.reference_audio is None:
        raise InputError("reference_text is given without reference_audio")
    if fields.instructions.strip():
        if fields.mode not in (None, Mode.INSTRUCT):
            raise InputError(f"instructions need mode 'instruct', not '{fields.mode}'")
        return Mode.INSTRUCT
    return fields.mode or voice.mode
