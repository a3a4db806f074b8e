"""Bounds that every engine keeps to, whether its LM and its token2wav run together or apart."""

from __future__ import annotations

MAX_POSITIONS = 4096  # of the LM, for prompt, text and speech of an utterance
MAX_PREFIX_TOKENS = 150  # of a voice's prompt, for which the flow keeps what it computed
SILENCE = 1e-4  # an utterance whose samples never exceed this is no speech
OFFLINE_SLACK = 0.5  # seconds that a whole text may wait, as if its listener had so much left
POLL_SECONDS = 2e-4  # between two looks at a GPU when there is nothing else to do
SEED_MASK = (1 << 63) - 1  # seeds as the device holds them
