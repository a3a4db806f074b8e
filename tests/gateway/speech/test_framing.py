"""Codecs are opened and fed beside the event loop, and never wait for each other in a circle."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest

from cosyserve.audio import AudioFormat, Encoder, encode
from cosyserve.audio.formats import CODEC_FORMATS
from cosyserve.errors import AudioError
from cosyserve.gateway.speech import framing
from cosyserve.gateway.speech.framing import CODECS, Usage, open_framing

SOUND = np.random.default_rng(0).normal(0, 0.1, 12_000).astype(np.float32)
NOBODY = Usage(input_tokens=0, output_tokens=0, total_tokens=0)


def test_a_codec_is_opened_while_speech_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = threading.Event()

    def slow(*words: Any, **options: Any) -> Encoder:
        assert opened.wait(20)
        return Encoder(*words, **options)

    monkeypatch.setattr(framing, "Encoder", slow)
    made = open_framing("audio", AudioFormat.MP3, None)  # returns while the codec is still closed
    opened.set()
    audio = made.push(SOUND) + made.finish("stop", NOBODY)
    assert audio == encode(SOUND, AudioFormat.MP3)


def test_a_rate_that_a_format_lacks_is_refused_at_once() -> None:
    with pytest.raises(AudioError, match="can't be 44000 Hz"):
        open_framing("audio", AudioFormat.OPUS, 44_000)


@pytest.mark.parametrize("kind", sorted(CODEC_FORMATS))
def test_more_streams_than_threads_are_encoded(kind: AudioFormat) -> None:
    framings = [open_framing("audio", kind, None) for _ in range(4 * (os.cpu_count() or 1))]
    pushed = [CODECS.submit(made.push, SOUND) for made in framings]
    lengths = {
        len(first.result(20) + CODECS.submit(made.finish, "stop", NOBODY).result(20))
        for first, made in zip(pushed, framings, strict=True)
    }
    assert lengths == {len(open_framing("audio", kind, None).push(SOUND)) + last(kind)}


def last(kind: AudioFormat) -> int:
    """Bytes behind the last push."""
    made = open_framing("audio", kind, None)
    made.push(SOUND)
    return len(made.finish("stop", NOBODY))
