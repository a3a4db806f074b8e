"""The models behind cosyvoice2, asked directly, over gRPC and HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from cosyserve.audio import whisper_log_mel
from cosyserve.backends.protocols import LMRequest
from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Floats, Recording, Voice
from cosyserve.engine.compute.generation import Generation
from cosyserve.engine.compute.hops import hop_ends
from cosyserve.engine.compute.lm_runner import LMRunner
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.errors import CosyError, InputError, OverloadError, VoiceError
from cosyserve.triton.client import TritonClient
from cosyserve.triton.http_client import TritonHTTPClient
from cosyserve.triton.tensors import Array
from cosyserve.triton.vocabulary import COSYVOICE2 as VOCABULARY
from cosyserve.voices.enroll import enroll
from tests.triton.asking import asking, comes_to_rest
from tests.triton.server import Served

LIMITS = {"first_seconds": 30.0, "between_seconds": 30.0}


def one(value: Any, kind: type) -> Array:
    return np.array([[value]], kind)


def over_http(served: Served, model: str, given: dict[str, Array]) -> dict[str, Array]:
    async def run() -> dict[str, Array]:
        client = TritonHTTPClient(served.http)
        try:
            return await client.infer(model, given, seconds=30)
        finally:
            await client.close()

    return asyncio.run(run())


# audio_tokenizer and speaker_embedding


def recordings() -> list[Floats]:
    chance = np.random.default_rng(2)
    sizes = (9_000, 20_000, 13_337, 40_000, 16_000)
    return [(0.1 * chance.standard_normal(size)).astype(np.float32) for size in sizes]


def test_recordings_become_tokens_in_batches(served: Served, model: Model) -> None:
    tokenizer, _ = model.need_prompt_encoders()

    async def together(client: TritonClient) -> list[dict[str, Array]]:
        given = [
            {"reference_wav": wave[None], "reference_wav_len": one(len(wave), np.int32)}
            for wave in recordings()
        ]
        asked = (client.infer("audio_tokenizer", row, seconds=30) for row in given)
        return list(await asyncio.gather(*asked))

    for wave, found in zip(recordings(), asking(served, together), strict=True):
        expected = tokenizer(whisper_log_mel(wave)) + VOCABULARY.first
        assert found["prompt_speech_tokens"][0].tolist() == expected.tolist()


def test_a_recording_ends_where_it_says(served: Served) -> None:
    wave = recordings()[0]
    longer = np.concatenate([wave, np.ones(5_000, np.float32)])
    found = [
        over_http(
            served,
            "audio_tokenizer",
            {"reference_wav": given[None], "reference_wav_len": one(len(wave), np.int32)},
        )["prompt_speech_tokens"].tolist()
        for given in (wave, longer)
    ]
    assert found[0] == found[1]


def test_recordings_become_embeddings(served: Served, model: Model) -> None:
    for wave in recordings():
        found = over_http(served, "speaker_embedding", {"reference_wav": wave[None]})
        expected = enroll(model, Recording(wave, 16_000, "")).embedding
        np.testing.assert_allclose(found["embedding"][0], expected, rtol=1e-4, atol=1e-5)
        half = found["prompt_spk_embedding"]
        assert half.dtype == np.float16
        np.testing.assert_allclose(half[0], expected, rtol=1e-2, atol=1e-2)


def test_a_broken_recording_fails_alone(served: Served) -> None:
    good, broken = recordings()[1], np.full(16_000, np.nan, np.float32)

    async def together(client: TritonClient) -> list[Any]:
        asked = (
            client.infer("speaker_embedding", {"reference_wav": wave[None]}, seconds=30)
            for wave in (good, broken, good, good[:10])
        )
        return list(await asyncio.gather(*asked, return_exceptions=True))

    found = asking(served, together)
    assert [type(item) for item in found] == [dict, VoiceError, dict, VoiceError]


# token2wav


def test_whoever_has_waited_too_long_is_told(served: Served) -> None:
    wave = np.concatenate([recordings()[3]] * 4)
    given = {"reference_wav": wave[None], "reference_wav_len": one(len(wave), np.int32)}

    async def listen(client: TritonClient, microseconds: int) -> int:
        limit = {"timeout": microseconds}
        answers = client.stream("audio_tokenizer", given, parameters=limit, **LIMITS)
        return len([answer async for answer in answers])

    async def together(client: TritonClient) -> list[int | BaseException]:
        impatient = [listen(client, 1) for _ in range(7)]
        return await asyncio.gather(*impatient, return_exceptions=True)

    found = asking(served, together)
    assert any(isinstance(end, OverloadError) for end in found)  # behind the first one
    assert all(isinstance(end, OverloadError) or end == 1 for end in found), found
    assert asking(served, lambda client: listen(client, 30_000_000)) == 1


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


# tensorrt_llm


def question(**changes: Array) -> dict[str, Array]:
    asked = LMRequest((5, 6, 7), (9, 10), 20, 60)
    ids = np.array([VOCABULARY.lm.prompt(asked)], np.int32)
    return {
        "input_ids": ids,
        "input_lengths": one(ids.shape[1], np.int32),
        "request_output_len": one(60, np.int32),
        "min_length": one(20, np.int32),
        "end_id": one(VOCABULARY.lm.end, np.int32),
        "random_seed": one(3, np.uint64),
        "streaming": one(True, np.bool_),
    } | changes


async def answered(client: TritonClient, given: dict[str, Array]) -> list[dict[str, Array]]:
    return [answer async for answer in client.stream("tensorrt_llm", given, **LIMITS)]


def drawn(model: Model, seed: int) -> list[int]:
    lm, _ = model.need_lm()
    request = LMRequest((5, 6, 7), (9, 10), 20, 60, seed)
    row = Generation.from_request(lm.config, request, model.config.sampling)
    runner = LMRunner(lm, 1, 128)
    runner.join(row)
    while row.finish is None:
        runner.step()
    return VOCABULARY.ids(row.tokens)


def test_the_lm_streams_the_engines_tokens(served: Served, model: Model) -> None:
    for seed in (3, 4):
        given = question(random_seed=one(seed, np.uint64))
        found = asking(served, lambda c, given=given: answered(c, given))
        ids = [token for answer in found for token in answer["output_ids"][0, 0].tolist()]
        assert ids == drawn(model, seed)
        lengths = [int(answer["sequence_length"][0, 0]) for answer in found]
        assert lengths == [answer["output_ids"].shape[2] for answer in found]


def test_the_lm_answers_at_once_where_that_is_wanted(served: Served, model: Model) -> None:
    given = question(streaming=one(False, np.bool_), return_log_probs=one(True, np.bool_))
    (found,) = asking(served, lambda c: answered(c, given))
    assert found["output_ids"][0, 0].tolist() == drawn(model, 3)
    log_probs = found["output_log_probs"][0, 0]
    assert len(log_probs) == len(drawn(model, 3))
    assert (log_probs < 0).all()
    assert found["cum_log_probs"][0, 0] == pytest.approx(log_probs.sum(), rel=1e-4)


def test_the_lm_answers_what_the_originals_cosyvoice2_asks(served: Served, model: Model) -> None:
    given = question(
        pad_id=one(VOCABULARY.lm.end, np.int32),
        runtime_top_p=one(0.8, np.float32),
        runtime_top_k=one(25, np.int32),
        temperature=one(0.8, np.float32),
        repetition_penalty=one(1.1, np.float32),
    )
    found = asking(served, lambda c: answered(c, given))
    ids = [token for answer in found for token in answer["output_ids"][0, 0].tolist()]
    assert ids == drawn(model, 3)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"input_ids": np.array([[1, 2, 3]], np.int32)}, "input_ids must be"),
        ({"input_ids": np.zeros((1, 0), np.int32)}, "input_ids"),
        ({"request_output_len": one(0, np.int32)}, "tokens can follow"),
        ({"request_output_len": one(10**6, np.int32)}, "tokens can follow"),
        ({"runtime_top_p": one(0.0, np.float32)}, "top_p"),
        ({"runtime_top_k": one(0, np.int32)}, "top_k"),
        ({"temperature": one(0.0, np.float32)}, "temperature must be more than 0"),
        ({"repetition_penalty": one(np.nan, np.float32)}, "repetition_penalty must be more"),
        ({"beam_width": one(2, np.int32)}, "beam_width must be 1"),
        ({"random_seed": one(3, np.int32)}, "random_seed"),
    ],
)
def test_a_prompt_that_is_none_is_refused(
    served: Served, changes: dict[str, Array], complaint: str
) -> None:
    with pytest.raises(InputError if complaint != "random_seed" else CosyError, match=complaint):
        asking(served, lambda c: answered(c, question(**changes)))


def test_the_lm_pauses_after_its_first_chunk_until_it_is_resumed(
    served: Served, model: Model
) -> None:
    chunks = {"first_chunk": 8, "chunk": 8, "pause_id": 5}

    async def listen(client: TritonClient, seconds: float) -> tuple[list[int], float]:
        """The ids, and how long after the first piece the second one came."""
        ids, times = [], []
        answers = client.stream("tensorrt_llm", question(), parameters=chunks, **LIMITS)
        async for answer in answers:
            ids += answer["output_ids"][0, 0].tolist()
            times.append(time.monotonic())
            if len(times) == 1 and seconds:
                await asyncio.sleep(seconds)
                wake = client.stream("tensorrt_llm", question(), parameters={"resume": 5}, **LIMITS)
                assert [answer async for answer in wake] == []
        return ids, times[1] - times[0]

    resumed = []
    for _ in range(3):  # a busy machine may take its time
        ids, pause = asking(served, lambda c: listen(c, 0.2))
        assert ids == drawn(model, 3)
        resumed.append(pause)
    assert 0.2 < min(resumed) < 0.9
    ids, alone = asking(served, lambda c: listen(c, 0))  # nobody says so: it goes on by itself
    assert ids == drawn(model, 3)
    assert alone > 0.9


def test_leaving_the_lm_frees_its_row(served: Served) -> None:
    async def leave(client: TritonClient) -> None:
        given = question(request_output_len=one(3_000, np.int32), min_length=one(3_000, np.int32))
        listening = asyncio.create_task(answered(client, given))
        await asyncio.sleep(0.3)
        assert served.held()["cosyserve_lm_rows", "tensorrt_llm"] == 1
        listening.cancel()
        await asyncio.wait([listening])

    asking(served, leave)
    comes_to_rest(served)
