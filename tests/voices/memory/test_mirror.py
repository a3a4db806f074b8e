"""Both ends of a link hold the same voices, whatever is asked for and forgotten in between."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.voices.memory import mirror
from cosyserve.voices.memory.mirror import ReceivedVoices, SentVoices, voice_bytes, voice_key
from tests.voices.test_file import PRESET

VOICES = [replace(PRESET, name=name) for name in "abcd"]
ROOM = 2 * len(voice_bytes(VOICES[0])) + 10


@given(st.lists(st.sampled_from([0, 1, 2, 3, "forget"]), max_size=40))
def test_neither_end_ever_has_to_ask(uses: list[int | str]) -> None:
    ours, theirs = SentVoices(ROOM), ReceivedVoices(ROOM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mirror, "IDLE_SECONDS", 0.0)  # all that was not used in this moment
        for use in uses:
            if isinstance(use, str):
                for key in ours.forget_idle():
                    theirs.forget(key)
                assert len(theirs._kept) == 0
                continue
            voice = VOICES[use]
            taken = theirs.take(voice_key(voice), ours.bytes_for(voice))
            assert taken.name == voice.name
