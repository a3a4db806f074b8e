"""Recordings of clients become voices: decoded, then heard by the engine, when it is their turn.

A client that leaves takes its recording along, wherever that is.
"""

from __future__ import annotations

from cosyserve.audio import Audio
from cosyserve.contracts import Engine, Recording, Voice
from cosyserve.gateway.telemetry import audit
from cosyserve.gateway.telemetry.record import Record
from cosyserve.gateway.voices.decoding import Decoder
from cosyserve.gateway.voices.turns import Turns

AT_ONCE = 2  # one is decoded while another is heard; more would take cores from those who speak
WAITING = 64
WAITING_PER_CLIENT = 16


class Enrolment:
    """`record` is that of the request, whose client waits for its turn."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._turns = Turns(AT_ONCE, WAITING, WAITING_PER_CLIENT)

    async def decode(self, data: bytes, record: Record) -> Audio:
        async with self._turns.take(record.client):
            return await self._decoder.decode(data)

    async def learn(
        self,
        engine: Engine,
        data: bytes,
        record: Record,
        *,
        text: str,
        name: str = "",
        language: str = "",
        consent: str = "",
    ) -> Voice:
        """The voice of a file's recording, in which the text is said."""
        async with self._turns.take(record.client):
            audio = await self._decoder.decode(data)
            recording = Recording(audio.samples, audio.rate, text, name, language, consent)
            voice = await engine.embed(recording)
        audit.note("voice.learned", record, voice)
        return voice

    async def embed(self, engine: Engine, recording: Recording, record: Record) -> Voice:
        async with self._turns.take(record.client):
            voice = await engine.embed(recording)
        audit.note("voice.learned", record, voice)
        return voice
