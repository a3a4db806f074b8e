"""Who may ask: clients that send a key of ours, as `Authorization: Bearer KEY`. Knows no route.

Keys are compared by their hashes in constant time, all of them, so that an answer's time tells
nothing of any key.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from cosyserve.gateway.errors import Refusal

OPEN_TO_ALL = frozenset({"/health", "/ready", "/docs", "/openapi.json"})


class Keys:
    """ASGI middleware. Without keys, anybody may ask."""

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app = app
        self._hashes = [_hash(key.encode()) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._hashes and scope["type"] == "http" and scope["path"] not in OPEN_TO_ALL:
            self._check(Headers(scope=scope).get("authorization", ""))
        await self._app(scope, receive, send)

    def _check(self, authorization: str) -> None:
        scheme, _, given = authorization.partition(" ")
        found = _hash(given.strip().encode("latin-1"))  # as it came
        same = sum(hmac.compare_digest(found, known) for known in self._hashes)
        if scheme.lower() != "bearer" or not same:
            raise Refusal(
                401,
                "a valid key is needed: send it as 'Authorization: Bearer KEY'",
                "invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )


def _hash(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
