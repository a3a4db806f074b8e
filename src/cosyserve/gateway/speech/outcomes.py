"""How past streams ended: a raw stream of audio has no room to say it. And the route to ask."""

from __future__ import annotations

from collections import OrderedDict

from fastapi import APIRouter, Request
from pydantic import BaseModel

from cosyserve.gateway.errors import Refusal
from cosyserve.gateway.speech.framing import Usage

KEPT = 1024  # the newest


class Outcome(BaseModel):
    request_id: str
    finish_reason: str  # as of an `AudioChunk`
    usage: Usage


class Outcomes:
    """Those of the newest streams, each for the key that asked for it alone."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str | None, str], Outcome] = OrderedDict()

    def keep(self, key: str | None, outcome: Outcome) -> None:
        """`key` is the name of the client's key, None without keys."""
        self._kept[key, outcome.request_id] = outcome
        self._kept.move_to_end((key, outcome.request_id))
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def get(self, key: str | None, request_id: str) -> Outcome:
        outcome = self._kept.get((key, request_id))
        if outcome is None:
            message = f"no stream with the id '{request_id:.80}' has ended lately"
            raise Refusal(404, message, "not_found")
        return outcome


def routes(outcomes: Outcomes) -> APIRouter:
    router = APIRouter(tags=["speech"])

    @router.get("/v1/audio/speech/{request_id}")
    async def speech_outcome(request_id: str, request: Request) -> Outcome:
        """How a stream ended, by the `x-request-id` of its answer."""
        return outcomes.get(getattr(request.state, "key", None), request_id)

    return router
