"""The models of a gateway: an engine for each, found by the name that a request has for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path

from cosyserve.contracts import (
    AudioChunk,
    Engine,
    EngineStats,
    ModelInfo,
    Recording,
    SpeechRequest,
    Voice,
)
from cosyserve.errors import InputError
from cosyserve.gateway.errors import Refusal
from cosyserve.gateway.policy import Policy


class Models:
    """Implements `contracts.Engine`: by itself it speaks with its first model."""

    def __init__(self, engines: Sequence[Engine], asked: Sequence[str] = ()) -> None:
        """`asked`: the names or folders that the models were asked for by, if any."""
        self.engines = list(engines)
        self._asked = [{name, Path(name).name} for name in asked] or [set()] * len(self.engines)

    @classmethod
    def of(cls, engine: Engine) -> Models:
        return engine if isinstance(engine, Models) else cls([engine])

    def check_names(self) -> None:
        """Refuses two models of one name; once the engines have started."""
        if doubled := {name for name in self.names if self.names.count(name) > 1}:
            raise InputError(
                f"two models are named '{min(doubled)}': change `name` in the config.json of one"
            )

    @property
    def names(self) -> list[str]:
        return [engine.model.name for engine in self.engines]

    @property
    def first(self) -> Engine:
        return self.engines[0]

    def named(self, name: str, policy: Policy) -> Engine:
        """The engine of the model that a client names; the first's if it names none."""
        for engine, asked in zip(self.engines, self._asked, strict=True):
            if name == engine.model.name or name in asked:
                return engine
        if not name or policy.is_alias(name):
            return self.first
        served = " and ".join(f"'{known}'" for known in self.names)
        message = f"no model named '{name:.80}'; this server runs {served}"
        raise Refusal(404, message, "model_not_found", param="model")

    def of_family(self, family: str) -> Engine:
        """The first engine of a family, or else the first of all."""
        same = (engine for engine in self.engines if engine.model.family == family)
        return next(same, self.first)

    @property
    def model(self) -> ModelInfo:
        return self.first.model

    def open(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        return self.first.open(request)

    async def embed(self, recording: Recording) -> Voice:
        return await self.first.embed(recording)

    def stats(self) -> EngineStats:
        """Of all together; ready when each is."""
        each = [engine.stats() for engine in self.engines]
        total = sum(each, EngineStats(False, 0, 0))
        return replace(total, ready=all(stats.ready for stats in each))

    async def close(self) -> None:
        await asyncio.gather(*(engine.close() for engine in self.engines))
