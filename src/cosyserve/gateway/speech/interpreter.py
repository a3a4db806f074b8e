"""Turns the fields of a client's request into a `SpeechRequest`: the model, the voice, the mode."""

from __future__ import annotations

from collections.abc import AsyncIterator

from cosyserve.contracts import Engine, Mode, Recording, SpeechRequest, Voice
from cosyserve.errors import InputError
from cosyserve.gateway.speech.body import SpeechFields
from cosyserve.gateway.status import check_model
from cosyserve.gateway.voices.decoding import Decoder
from cosyserve.gateway.voices.known import KnownVoices
from cosyserve.voices.learned import LearnedVoices


class Interpreter:
    def __init__(
        self, engine: Engine, known: KnownVoices, learned: LearnedVoices, decoder: Decoder
    ) -> None:
        self._engine = engine
        self._known = known
        self._learned = learned
        self._decoder = decoder

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
        audio, text = fields.reference_audio, fields.reference_text
        if audio is None:
            return await self._known.speaker(fields.voice_name)
        fingerprint = self._engine.model.fingerprint
        return await self._learned.get(
            fingerprint, audio, text, learn=lambda: self._learn(audio, text)
        )

    async def _learn(self, reference_audio: bytes, text: str) -> Voice:
        audio = await self._decoder.decode(reference_audio)
        return await self._engine.embed(Recording(audio.samples, audio.rate, text))


def _mode(fields: SpeechFields, voice: Voice) -> Mode:
    """The mode that the fields name or imply, else that of the voice."""
    if fields.reference_text and fields.reference_audio is None:
        raise InputError("reference_text is given without reference_audio")
    if fields.instructions.strip():
        if fields.mode not in (None, Mode.INSTRUCT):
            raise InputError(f"instructions need mode 'instruct', not '{fields.mode}'")
        return Mode.INSTRUCT
    return fields.mode or voice.mode
