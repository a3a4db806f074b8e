"""Speech tokens to a waveform, whole or chunk by chunk. Knows no text and no LM.

Serves `token2wav` and `token2wav_dit`, which differ only in how a voice is given. With
`token_offset` a request is the next chunk of a stream: it gives all tokens so far, so that the
stream is found by its content, and made anew where it is not here.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator

from cosyserve.contracts import Floats
from cosyserve.engine.compute.hops import hop_ends
from cosyserve.engine.compute.token2wav import Token2WavState
from cosyserve.engine.split.token2wav_service import ChunkRequest, Token2WavService
from cosyserve.errors import InputError
from cosyserve.triton import vocabulary
from cosyserve.triton.models.base import Outputs, Request, Skin
from cosyserve.triton.models.loading import load
from cosyserve.triton.models.token2wav_input import Wanted, Wishes
from cosyserve.triton.streams import Streams

PARTS = ("flow", "vocoder", "speech_tokenizer", "speaker_encoder")


class TritonPythonModel(Skin):
    def prepare(self) -> None:
        model = load(self.settings, *PARTS)
        self.token2wav = Token2WavService(*model.need_token2wav())
        limit, seconds = self._limit, float(self.settings["stream_seconds"])
        self.streams: Streams[Token2WavState] = Streams(limit, seconds)
        self.wishes = Wishes(model, int(self.settings["voice_cache_bytes"]))

    def forget(self, session: str) -> None:
        self.streams.forget(session)

    def held(self) -> dict[str, int]:
        return super().held() | {"streams": len(self.streams)}

    async def answers(self, request: Request) -> AsyncGenerator[Outputs, None]:
        tokens = vocabulary.heard(request.need("target_speech_tokens").reshape(-1).tolist())
        wanted = await self.wishes.of(request)
        if not tokens:
            raise InputError("target_speech_tokens is empty")
        if request.array("token_offset") is None:
            samples, _ = await self._compute(wanted, self._begin(wanted), tokens, True, False)
        else:
            offset = request.whole("token_offset", 0)
            samples = await self._next(wanted, tokens, offset, request.flag("finalize", False))
        yield {"waveform": samples[None]}

    async def _next(
        self, wanted: Wanted, tokens: tuple[int, ...], offset: int, final: bool
    ) -> Floats:
        flow = self.token2wav.token2wav.flow
        end = len(tokens) if final else len(tokens) - flow.lookahead
        if not 0 <= offset < end:
            raise InputError(
                f"token_offset is {offset}, but {len(tokens)} tokens make audio up to {end}: send "
                f"all tokens so far{'' if final else f' and {flow.lookahead} more to look at'}"
            )
        state = self.streams.take(wanted.key(tokens[:offset])) if offset else None
        if state is None:
            state = await self._made_again(wanted, tokens, offset)
        samples, state = await self._compute(wanted, state, tokens, final, True)
        if not final:
            self.streams.put(wanted.key(tokens[:end]), state, wanted.session)
        return samples

    async def _made_again(
        self, wanted: Wanted, tokens: tuple[int, ...], offset: int
    ) -> Token2WavState:
        """The state of a stream that has spoken up to `offset`, which was lost or timed out."""
        state = self._begin(wanted)
        flow = self.token2wav.token2wav.flow
        for end in hop_ends(state.prompt_tokens, flow.grid):
            if state.flow.tokens >= offset:
                return state
            known = tokens[: min(end, offset) + flow.lookahead]
            _, state = await self._compute(wanted, state, known, False, True)
        raise AssertionError("hops never end")

    async def _compute(
        self,
        wanted: Wanted,
        state: Token2WavState,
        tokens: tuple[int, ...],
        final: bool,
        stream: bool,
    ) -> tuple[Floats, Token2WavState]:
        chunk = ChunkRequest(
            state=state,
            tokens=tokens,
            final=final,
            stream=stream,
            urgent=wanted.slack < 0,
            deadline=time.monotonic() + wanted.slack,
        )
        return await self.token2wav.compute(chunk), chunk.state

    def _begin(self, wanted: Wanted) -> Token2WavState:
        return self.token2wav.token2wav.begin(
            wanted.voice, with_prompt=wanted.with_prompt, seed=wanted.seed, speed=wanted.speed
        )
