"""One session: streaming is exact, seeds hold, modes, speed, text in pieces."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyserve.checkpoints.model import Model, assemble
from cosyserve.checkpoints.testmodel import random_parts
from cosyserve.contracts import AudioChunk, Mode, SpeechRequest, Voice
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.engine.speak import speak
from cosyserve.errors import CosyError, InputError, VoiceError
from cosyserve.models.lm.lm import KVCache
from cosyserve.voices.enroll import with_short_first_hop
from cosyserve.voices.file import save_voice
from tests.decibels import decibels

TEXT = "The quick brown fox jumps over the lazy dog."


def chunks(
    model: Model, text: str | Iterator[str], voice: Voice, **options: Any
) -> list[AudioChunk]:
    return list(speak(model, SpeechRequest(text, voice, **options)))


def samples(found: list[AudioChunk]) -> np.ndarray:
    return np.concatenate([chunk.samples for chunk in found])


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 60), st.integers(30, 160), st.sampled_from([1.0, 0.8, 1.7]))
def test_streamed_speech_is_whole_speech(
    either_model: Model, either_voice: Voice, cut: int, count: int, speed: float
) -> None:
    """Against the same chunk-masked model run over the whole utterance at once."""
    token2wav = Token2Wav(*either_model.need_token2wav())
    begun = replace(either_voice, flow_start=cut)
    start = token2wav.begin(begun, with_prompt=True, seed=5, speed=speed)
    tokens = torch.randint(0, 6561, (count,), generator=torch.Generator().manual_seed(cut)).tolist()
    ((whole, _),) = token2wav.advance([start], [tokens], [True])
    state, parts = start, []
    grid = range(8, count - 3)
    for end in [end for end in grid if (start.prompt_tokens + end) % 25 == 0]:
        ((part, state),) = token2wav.advance([state], [tokens[: end + 3]], [False])
        parts.append(part)
    ((part, state),) = token2wav.advance([state], [tokens], [True])
    parts.append(part)
    streamed = np.concatenate(parts)
    assert len(streamed) == len(whole) == 480 * int(2 * count / speed)
    assert decibels(streamed, whole) <= -30
    assert np.abs(np.diff(streamed)).max() <= 1.01 * np.abs(np.diff(whole)).max() + 1e-4


def test_a_stream_has_the_tokens_and_length_of_the_whole(
    either_model: Model, either_voice: Voice
) -> None:
    whole = chunks(either_model, TEXT, either_voice, seed=2)
    streamed = chunks(either_model, TEXT, either_voice, seed=2, stream=True)
    assert len(whole) == 1
    assert len(streamed) > 2
    assert sum(c.tokens for c in streamed) == whole[0].tokens
    assert len(samples(streamed)) == len(samples(whole)) == 960 * whole[0].tokens


def test_chunks_are_in_order_and_the_last_one_ends(
    either_model: Model, either_voice: Voice
) -> None:
    found = chunks(either_model, TEXT, either_voice, stream=True)
    assert [c.index for c in found] == list(range(len(found)))
    starts = np.cumsum([0, *(len(c.samples) for c in found)])[:-1] / 24_000
    assert [c.start for c in found] == pytest.approx(starts.tolist())
    assert [c.finish for c in found[:-1]] == [None] * (len(found) - 1)
    assert found[-1].finish in ("stop", "length")
    assert found[-1].final


def test_the_first_chunk_comes_before_the_rest_is_thought_of(
    either_model: Model, either_voice: Voice
) -> None:
    stream = speak(either_model, SpeechRequest(TEXT * 3, either_voice, stream=True))
    first = next(stream)
    assert first.tokens < 34
    stream.close()


def test_an_utterances_cache_is_freed_with_it(either_model: Model, either_voice: Voice) -> None:
    def caches() -> int:
        return sum(type(held) is KVCache for held in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = caches()
        chunks(either_model, TEXT, either_voice, stream=True)
        assert caches() == before
    finally:
        gc.enable()


def test_every_first_hop_can_be_10_tokens(either_model: Model, either_voice: Voice) -> None:
    short = with_short_first_hop(either_voice)
    assert 0 < short.flow_start < 25
    assert short.content_hash != either_voice.content_hash
    assert chunks(either_model, TEXT, short, stream=True)[0].tokens == 10


SCRIPT = """
import sys, numpy as np
from pathlib import Path
from cosyserve.contracts import SpeechRequest
from cosyserve.engine.speak import speak
from cosyserve.engine.tts import load
from cosyserve.voices.file import load_voice
model, voice, text, out = sys.argv[1:]
request = SpeechRequest(text, load_voice(Path(voice)), seed=11, stream=True)
chunks = speak(load(model, device="cpu").model, request)
np.save(out, np.concatenate([chunk.samples for chunk in chunks]))
"""


@pytest.mark.usefixtures("forked")
def test_the_same_seed_gives_the_same_speech_in_another_process(
    either_model: Model, either_voice: Voice, cosyvoice3_folder: Path, tmp_path: Path
) -> None:
    first, again, other = (
        samples(chunks(either_model, TEXT, either_voice, seed=seed, stream=True))
        for seed in (11, 11, 12)
    )
    assert np.array_equal(first, again)
    assert len(first) != len(other) or not np.array_equal(first, other)
    name = str(cosyvoice3_folder) if either_voice.family == "cosyvoice3" else "test"
    voice, file = tmp_path / "voice.safetensors", tmp_path / "speech.npy"
    save_voice(either_voice, voice)
    command = [sys.executable, "-c", SCRIPT, name, str(voice), TEXT, str(file)]
    subprocess.run(command, check=True)
    assert decibels(np.load(file), first) < -40


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("speed", [0.25, 0.5, 2.0, 4.0])
def test_speed_changes_the_length_alone(
    either_model: Model, either_voice: Voice, speed: float, stream: bool
) -> None:
    found = chunks(either_model, TEXT, either_voice, speed=speed, stream=stream)
    tokens = sum(c.tokens for c in found)
    assert len(samples(found)) == 480 * int(2 * tokens / speed)


def test_modes_prompt_the_model_differently(either_model: Model, either_voice: Voice) -> None:
    spoken = {
        mode: samples(
            chunks(either_model, TEXT, either_voice, mode=mode, instruction="Speak slowly.")
        )
        for mode in (Mode.ZERO_SHOT, Mode.CROSS_LINGUAL, Mode.INSTRUCT, Mode.PRESET)
    }
    lengths = {mode: len(wave) for mode, wave in spoken.items()}
    assert len({wave.tobytes() for wave in spoken.values()}) == 4, lengths


def test_an_instruction_ends_as_the_model_wants_it(
    either_model: Model, either_voice: Voice
) -> None:
    options = {"mode": Mode.INSTRUCT, "seed": 4}
    bare = samples(chunks(either_model, TEXT, either_voice, instruction="Slowly.", **options))
    ended = samples(
        chunks(either_model, TEXT, either_voice, instruction="Slowly.<|endofprompt|>", **options)
    )
    assert np.array_equal(bare, ended)


@pytest.mark.parametrize("stream", [False, True])
def test_conversion_keeps_the_length_of_the_source(
    either_model: Model, either_voice: Voice, stream: bool
) -> None:
    source = np.random.default_rng(1).standard_normal(2 * 16_000).astype(np.float32) * 0.1
    found = chunks(either_model, "", either_voice, mode=Mode.CONVERT, source=source, stream=stream)
    assert len(samples(found)) == 2 * 24_000
    assert found[-1].finish == "stop"


def test_text_in_pieces_is_spoken_before_it_has_ended(
    either_model: Model, either_voice: Voice
) -> None:
    asked = 0

    def pieces() -> Iterator[str]:
        nonlocal asked
        for word in (TEXT * 4).split():
            asked += 1
            yield word + " "

    stream = speak(either_model, SpeechRequest(pieces(), either_voice, stream=True))
    next(stream)
    before = asked
    rest = list(stream)
    assert before < asked
    assert rest[-1].finish in ("stop", "length")


def test_how_text_is_cut_in_pieces_makes_no_difference(
    either_model: Model, either_voice: Voice
) -> None:
    whole = samples(chunks(either_model, iter([TEXT]), either_voice, stream=True))
    letters = samples(chunks(either_model, iter(TEXT), either_voice, stream=True))
    assert np.array_equal(whole, letters)


def test_long_text_becomes_several_utterances(either_model: Model, either_voice: Voice) -> None:
    found = chunks(either_model, TEXT * 8, either_voice)
    assert len(found) > 1
    assert {c.finish for c in found[:-1]} == {None}


@pytest.mark.parametrize("text", ["", "   ", "...", "？！", "\n\t"])
def test_nothing_to_say_is_an_error(model: Model, voice: Voice, text: str) -> None:
    with pytest.raises(InputError, match="nothing to say"):
        chunks(model, text, voice)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"speed": 0.2}, "speed"),
        ({"speed": 4.1}, "speed"),
        ({"speed": float("nan")}, "speed"),
        ({"mode": Mode.INSTRUCT}, "instruction"),
        ({"mode": Mode.CONVERT}, "source"),
    ],
)
def test_bad_requests_say_what_to_change(voice: Voice, options: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        SpeechRequest(TEXT, voice, **options)


@pytest.mark.parametrize(
    "other",
    [
        {"fingerprint": "someone else's"},
        {"family": "cosyvoice9"},
        {"embedding": np.ones(7, np.float32)},
    ],
)
def test_a_voice_of_another_model_is_refused(
    either_model: Model, either_voice: Voice, other: dict[str, Any]
) -> None:
    with pytest.raises(VoiceError, match="noise"):
        chunks(either_model, TEXT, replace(either_voice, **other))


def test_broken_weights_are_an_error_not_noise(voice: Voice) -> None:
    parts = random_parts()
    parts.states["vocoder"]["conv_post.bias"][:] = float("nan")
    with pytest.raises(CosyError, match="NaN"):
        chunks(assemble(parts), TEXT, voice)


def test_a_text_that_never_ends_stops_at_its_limit(voice: Voice) -> None:
    parts = random_parts()
    parts.states["lm"]["head.bias"][6561] = -100.0
    found = chunks(assemble(parts), "Hi there.", voice)
    assert found[-1].finish == "length"
    assert found[-1].tokens == 20 * len("Hi there.")
