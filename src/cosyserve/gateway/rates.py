"""Limits of what a client may ask for in a minute: texts, and characters in them.

An allowance fills up evenly while it is not used, up to that of a whole minute. OpenAI's headers
tell a client what is left.
"""

from __future__ import annotations

import time
from typing import Literal

from cosyserve.gateway.errors import Refusal, retry_after
from cosyserve.gateway.telemetry.record import Record

MINUTE = 60.0
PRUNE_FROM = 1024  # allowances: full ones are forgotten when there are so many

Kind = Literal["requests", "characters"]


class Rates:
    """What clients have left; a client is who asks, as `Record` has it."""

    def __init__(self, requests: int = 0, characters: int = 0) -> None:
        """Both for a minute; 0: any number."""
        limits: dict[Kind, int] = {"requests": requests, "characters": characters}
        self._limits = {kind: limit for kind, limit in limits.items() if limit}
        self._full_at: dict[tuple[str, Kind], float] = {}  # when an allowance is whole again
        self._prune_at = PRUNE_FROM

    def take(self, record: Record, characters: int) -> None:
        """Takes a text from what its client has left; a refused one takes nothing.

        Of a text that comes in pieces, `characters` are those that are known.
        """
        now = time.monotonic()
        wanted: dict[Kind, int] = {"requests": 1, "characters": characters}
        try:
            for kind in self._limits:
                self._check(kind, record.client, wanted[kind], now)
            self._spend(record.client, wanted, now)
        finally:
            record.headers |= self._headers(record.client, now)

    def add(self, record: Record, characters: int) -> None:
        """Takes characters that have come since: what is too much delays the next text."""
        self._spend(record.client, {"characters": characters}, time.monotonic())

    def _check(self, kind: Kind, client: str, wanted: int, now: float) -> None:
        limit = self._limits[kind]
        if wanted > limit:
            message = f"the text has {wanted} characters; {limit} may be spoken in a minute"
            raise Refusal(400, message, "input_too_long")
        lacking = max(wanted, 1) - self._left(kind, client, now)
        if lacking > 0:
            seconds = lacking * MINUTE / limit
            raise Refusal(
                429,
                f"the limit is {limit} {kind} a minute: try again in {duration(seconds)}",
                "rate_limit_exceeded",
                headers=retry_after(seconds),
            )

    def _spend(self, client: str, spent: dict[Kind, int], now: float) -> None:
        for kind in self._limits.keys() & spent.keys():
            full_at = max(now, self._full_at.get((client, kind), now))
            self._full_at[client, kind] = full_at + spent[kind] * MINUTE / self._limits[kind]
        if len(self._full_at) > self._prune_at:
            self._full_at = {key: at for key, at in self._full_at.items() if at > now}
            self._prune_at = max(PRUNE_FROM, 2 * len(self._full_at))

    def _left(self, kind: Kind, client: str, now: float) -> float:
        """May be less than nothing."""
        limit = self._limits[kind]
        missing = (self._full_at.get((client, kind), now) - now) * limit / MINUTE
        return limit - max(0.0, round(missing, 6))

    def _headers(self, client: str, now: float) -> dict[str, str]:
        headers: dict[str, str] = {}
        for kind, limit in self._limits.items():
            until_full = max(0.0, self._full_at.get((client, kind), now) - now)
            headers |= {
                f"x-ratelimit-limit-{kind}": str(limit),
                f"x-ratelimit-remaining-{kind}": str(max(0, int(self._left(kind, client, now)))),
                f"x-ratelimit-reset-{kind}": duration(until_full),
            }
        return headers


def duration(seconds: float) -> str:
    """As OpenAI writes it: `90ms`, `1.5s`, `6m0s`."""
    milliseconds = round(1000 * seconds)
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes}m{rest / 1000:g}s" if minutes else f"{rest / 1000:g}s"
