"""When a stream turns tokens into audio, on the grid that its flow must keep to."""

from __future__ import annotations

from collections.abc import Iterator

FIRST_TOKENS = 8  # at least so many in the first hop, or the vocoder has nothing to emit
HOP_TOKENS = 25  # the second hop, unless said otherwise
NEVER = 1 << 30  # more tokens than any utterance has: it is spoken as a whole
DOUBLING, EQUAL = 2, 1  # how many times as long as the hop before it a hop is


def hop_ends(
    prompt_tokens: int, grid: int, hop: int = HOP_TOKENS, growth: int = DOUBLING
) -> Iterator[int]:
    """Endless, rising counts of generated tokens at which a chunk ends; `hop` is on the grid.

    A chunk is exact when prompt and speech together end on the grid. Hops double without a cap:
    recomputing all that came before then costs a constant factor. Equal ones cost more with every
    hop, unless the flow remembers what came before.
    """
    end = FIRST_TOKENS + (-prompt_tokens - FIRST_TOKENS) % grid
    while True:
        yield end
        end += hop
        hop *= growth
