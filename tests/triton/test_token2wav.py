"""Tokens to a waveform by the model token2wav, asked directly: streams never mix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Floats, Voice
from cosyserve.engine.compute.hops import hop_ends
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.errors import CosyError
from cosyserve.triton.client import TritonClient
from cosyserve.triton.tensors import Array
from cosyserve.triton.vocabulary import COSYVOICE2 as VOCABULARY
from tests.triton.asking import LIMITS, asking, comes_to_rest, one, over_http
from tests.triton.server import Served


def spoken(count: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, 6561, count).tolist()


def chunk(voice: Voice, tokens: Sequence[int], offset: int | None, final: bool) -> dict[str, Array]:
    given = {
        "target_speech_tokens": np.array([VOCABULARY.ids(tokens)], np.int32),
        "prompt_speech_tokens": np.array([VOCABULARY.ids(voice.speech_tokens.tolist())], np.int32),
        "prompt_speech_feat": voice.mel[None].astype(np.float16),
        "prompt_spk_embedding": voice.embedding[None].astype(np.float16),
        "finalize": one(final, np.bool_),
    }
    return given if offset is None else given | {"token_offset": one(offset, np.int32)}


def rounded(voice: Voice) -> Voice:
    """What is left of a voice in the half floats of the original's tensors."""
    return Voice(
        "",
        voice.speech_tokens,
        voice.mel.astype(np.float16).astype(np.float32),
        voice.embedding.astype(np.float16).astype(np.float32),
    )


def test_tokens_become_a_waveform(served: Served, model: Model, voice: Voice) -> None:
    token2wav, tokens = Token2Wav(*model.need_token2wav()), spoken(60, 0)
    begun = token2wav.begin(rounded(voice), with_prompt=True, seed=0, speed=1.0)
    ((expected, _),) = token2wav.whole([begun], [tokens])
    for found in (
        over_http(served, "token2wav", chunk(voice, tokens, None, True)),
        asking(served, lambda c: c.infer("token2wav", chunk(voice, tokens, None, True), seconds=9)),
    ):
        np.testing.assert_allclose(found["waveform"][0], expected, atol=1e-3)


def chunks(model: Model, voice: Voice, tokens: list[int]) -> list[tuple[int, int, Floats]]:
    """Where chunks begin and how many tokens they need, with what the engine makes of them."""
    token2wav = Token2Wav(*model.need_token2wav())
    state = token2wav.begin(rounded(voice), with_prompt=True, seed=0, speed=1.0)
    found, begin = [], 0
    for end in hop_ends(state.prompt_tokens, state.grid):
        final = end + state.lookahead >= len(tokens)
        needed = len(tokens) if final else end + state.lookahead
        ((samples, state),) = token2wav.advance([state], [tokens[:needed]], [final])
        found.append((begin, needed, samples))
        if final:
            return found
        begin = end
    raise AssertionError


def test_streams_with_one_id_never_mix(served: Served, model: Model, voice: Voice) -> None:
    """Two clients, one id, one voice, tokens that begin alike, their chunks in turns."""
    begin = spoken(30, 1)
    texts = [begin + spoken(70, 2), begin + spoken(70, 3)]
    expected = [chunks(model, voice, tokens) for tokens in texts]

    async def in_turns(client: TritonClient) -> list[list[Floats]]:
        found: list[list[Floats]] = [[], []]
        for number in range(len(expected[0])):
            for who, tokens in enumerate(texts):
                offset, needed, _ = expected[who][number]
                given = chunk(voice, tokens[:needed], offset, needed == len(tokens))
                answer = await client.infer("token2wav", given, seconds=30, request_id="0")
                found[who].append(answer["waveform"][0])
        return found

    for theirs, ours in zip(asking(served, in_turns), expected, strict=True):
        for got, (_, _, samples) in zip(theirs, ours, strict=True):
            np.testing.assert_allclose(got, samples, atol=1e-3)
    comes_to_rest(served)


def test_a_stream_goes_on_where_its_state_is_gone(
    served: Served, model: Model, voice: Voice
) -> None:
    """Another instance, a process that died, a time-out: the next chunk is the same."""
    tokens = spoken(100, 4)
    *_, (offset, needed, samples) = chunks(model, voice, tokens)
    given = chunk(voice, tokens[:needed], offset, True)
    found = asking(served, lambda c: c.infer("token2wav", given, seconds=30))
    np.testing.assert_allclose(found["waveform"][0], samples, atol=1e-3)


def test_a_chunk_that_comes_after_its_cancel_leaves_nothing(served: Served, voice: Voice) -> None:
    given = chunk(voice, spoken(40, 5), 0, False)

    async def ask(client: TritonClient, **parameters: int) -> int:
        answers = client.stream("token2wav", given, parameters=parameters, **LIMITS)
        return len([answer async for answer in answers])

    assert asking(served, lambda c: ask(c, session=77)) == 1
    assert asking(served, lambda c: ask(c, cancel=77)) == 0
    with pytest.raises(CosyError, match="cancelled"):
        asking(served, lambda c: ask(c, session=77))
    comes_to_rest(served)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"target_speech_tokens": np.zeros((1, 5), np.int32)}, "speech ids"),
        ({"target_speech_tokens": np.zeros((1, 0), np.int32)}, "empty"),
        ({"token_offset": one(-1, np.int32)}, "token_offset"),
        ({"token_offset": one(40, np.int32)}, "token_offset"),
        # Speech up to there took three tokens more.
        ({"token_offset": one(38, np.int32), "finalize": one(True, np.bool_)}, "took 41 tokens"),
        ({"prompt_speech_feat": np.zeros((1, 3, 80), np.float16)}, "mel must have"),
        ({"prompt_speech_feat": np.zeros((1, 3, 7), np.float16)}, "shape"),
        ({"prompt_spk_embedding": np.zeros((1, 7), np.float16)}, "embedding of 7"),
        ({"voice": np.zeros((1, 7), np.uint8)}, "not a voice"),
        ({"finalize": one(1.0, np.float32)}, "finalize"),
    ],
)
def test_tokens_that_make_no_audio_are_refused(
    served: Served, voice: Voice, change: dict[str, Array], complaint: str
) -> None:
    given = chunk(voice, spoken(40, 0), 0, False) | change
    with pytest.raises(CosyError, match=complaint):
        asking(served, lambda c: c.infer("token2wav", given, seconds=30))
    with pytest.raises(CosyError, match=complaint):
        over_http(served, "token2wav", given)
