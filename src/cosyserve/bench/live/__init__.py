"""Conversations with a speech server over WebSockets: words in as a language model writes them."""

from cosyserve.bench.live.conversation import Talker
from cosyserve.bench.live.dialects import DIALECTS
from cosyserve.bench.live.report import LiveOptions, LiveReport, live_table, write_live_report
from cosyserve.bench.live.run import run_live

__all__ = [
    "DIALECTS",
    "LiveOptions",
    "LiveReport",
    "Talker",
    "live_table",
    "run_live",
    "write_live_report",
]
