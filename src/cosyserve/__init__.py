"""Serve the CosyVoice family of text-to-speech models.

The public names are loaded when they are first used: importing the package costs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from cosyserve.version import __version__

if TYPE_CHECKING:
    from cosyserve.contracts import AudioChunk, Mode, Sampling, SpeechRequest, Voice
    from cosyserve.engine.in_process import LocalEngine
    from cosyserve.engine.tts import TTS, load
    from cosyserve.errors import CosyError

__all__ = [
    "TTS",
    "AudioChunk",
    "CosyError",
    "LocalEngine",
    "Mode",
    "Sampling",
    "SpeechRequest",
    "Voice",
    "__version__",
    "load",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'cosyserve' has no attribute {name!r}")
    rooms = {
        "TTS": "engine.tts",
        "load": "engine.tts",
        "LocalEngine": "engine.in_process",
        "CosyError": "errors",
    }
    return getattr(importlib.import_module(f"cosyserve.{rooms.get(name, 'contracts')}"), name)


def __dir__() -> list[str]:
    return __all__
