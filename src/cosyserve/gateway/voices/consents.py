"""Consents, read from their store without blocking the event loop."""

from __future__ import annotations

from cosyserve.gateway.errors import Refusal, invalid_value
from cosyserve.gateway.voices.store_threads import StoreThreads
from cosyserve.voices.consents import ID, PREFIX, Consent, ConsentStore


class Consents:
    def __init__(self, store: ConsentStore) -> None:
        self._store = store
        self._threads = StoreThreads()

    async def statement(self, consent: str) -> str:
        """What is kept with a voice: the client's own words, or those of the consent with this
        id."""
        if not consent.startswith(PREFIX):
            if ID.search(consent):  # would look as if it had been checked
                fault = "send the id of a consent alone, or words without one"
                raise invalid_value(fault, ["consent"])
            return consent
        kept = await self._threads.run(self._store.get, consent)
        if kept is None:
            raise no_consent(consent, 400)
        return f"{kept.name} ({kept.id})"

    async def add(self, name: str, language: str, recording: bytes) -> Consent:
        return await self._threads.run(self._store.add, name, language, recording)

    async def all(self) -> list[Consent]:
        """The newest first."""
        return await self._threads.run(self._store.all)

    async def get(self, id: str) -> Consent:
        return _found(id, await self._threads.run(self._store.get, id))

    async def rename(self, id: str, name: str) -> Consent:
        return _found(id, await self._threads.run(self._store.rename, id, name))

    async def remove(self, id: str) -> None:
        if not await self._threads.run(self._store.remove, id):
            raise no_consent(id)


def _found(id: str, consent: Consent | None) -> Consent:
    if consent is None:
        raise no_consent(id)
    return consent


def no_consent(id: str, status: int = 404, param: str = "consent") -> Refusal:
    message = f"no consent '{id:.80}'; GET /v1/audio/voice_consents lists them"
    return Refusal(status, message, "consent_not_found", param=param)
