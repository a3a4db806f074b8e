"""Measured in this process, without a server: texts to speech in batches, tokens to audio.

Which LM and which token2wav compute is the caller's choice: here are only their Protocols.
"""

from cosyserve.bench.offline.log import offline_table, write_log
from cosyserve.bench.offline.pipeline import OfflineModel, OfflineRun, OfflineTimes, run_offline
from cosyserve.bench.offline.token_items import TokenDataset, TokenFile
from cosyserve.bench.offline.tokens import (
    Streaming,
    TokenTimes,
    run_tokens,
    tokens_table,
    utterance,
)

__all__ = [
    "OfflineModel",
    "OfflineRun",
    "OfflineTimes",
    "Streaming",
    "TokenDataset",
    "TokenFile",
    "TokenTimes",
    "offline_table",
    "run_offline",
    "run_tokens",
    "tokens_table",
    "utterance",
    "write_log",
]
