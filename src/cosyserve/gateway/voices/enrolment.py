"""Recordings of clients become voices: decoded, then heard by the engine, when it is their turn.

A client that leaves takes its recording along, wherever that is.
"""

from __future__ import annotations

from cosyserve.audio import Audio
from cosyserve.contracts import Engine, Recording, Voice
from cosyserve.gateway.voices.decoding import Decoder
from cosyserve.gateway.voices.turns import Turns

AT_ONCE = 2  # one is decoded while another is heard; more would take cores from those who speak
WAITING = 64
WAITING_PER_CLIENT = 16


class Enrolment:
    """`client` is who asks, as `Record` has it."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._turns = Turns(AT_ONCE, WAITING, WAITING_PER_CLIENT)

    async def decode(self, data: bytes, client: str) -> Audio:
        async with self._turns.take(client):
            return await self._decoder.decode(data)

    async def learn(
        self,
        engine: Engine,
        data: bytes,
        client: str,
        *,
        text: str,
        name: str = "",
        language: str = "",
        consent: str = "",
    ) -> Voice:
        """The voice of a file's recording, in which the text is said."""
        async with self._turns.take(client):
            audio = await self._decoder.decode(data)
            return await engine.embed(
                Recording(audio.samples, audio.rate, text, name, language, consent)
            )

    async def embed(self, engine: Engine, recording: Recording, client: str) -> Voice:
        async with self._turns.take(client):
            return await engine.embed(recording)
