"""Speech tokens to a waveform, whole or chunk by chunk.

Serves `token2wav` and `token2wav_dit`, which differ only in how a voice is params. With
`token_offset` a request is the next chunk of a stream: it gives all tokens so far, so that the
stream's state is found by its content, and computed again where it is not here.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator

from cosyserve.contracts import Floats
from cosyserve.engine.compute.hops import hop_ends
from cosyserve.engine.compute.queued_audio import Token2WavState
from cosyserve.engine.split.token2wav_service import ChunkRequest, Token2WavService
from cosyserve.errors import InputError
from cosyserve.triton.models.instance.async_model import (
    QUEUE_TIME,
    AsyncTritonModel,
    Outputs,
    Request,
)
from cosyserve.triton.models.instance.loading import load_parts, with_flow_backend
from cosyserve.triton.models.token2wav_input import InputReader, Token2WavInput
from cosyserve.triton.streams import Streams

PARTS = ("flow", "vocoder", "speech_tokenizer", "speaker_encoder")


class TritonPythonModel(AsyncTritonModel):
    def prepare(self) -> None:
        model = with_flow_backend(load_parts(self.settings, *PARTS), self.settings)
        self.token2wav = Token2WavService(*model.need_token2wav())
        limit, seconds = self._limit, float(self.settings["stream_seconds"])
        self.streams: Streams[Token2WavState] = Streams(limit, seconds)
        self.inputs = InputReader(model, int(self.settings["voice_cache_bytes"]))

    def forget(self, session: str) -> None:
        self.streams.forget(session)

    def held(self) -> dict[str, int]:
        return super().held() | {"streams": len(self.streams)}

    def totals(self) -> dict[str, float]:
        return super().totals() | {QUEUE_TIME: 1e6 * self.token2wav.waited_seconds}

    async def answers(self, request: Request) -> AsyncGenerator[Outputs, None]:
        ids = request.need("target_speech_tokens").reshape(-1).tolist()
        tokens = self.inputs.vocabulary.tokens(ids)
        params = await self.inputs.read(request)
        if not tokens:
            raise InputError("target_speech_tokens is empty")
        yield await self.outputs(request, params, tokens)

    async def outputs(
        self, request: Request, params: Token2WavInput, tokens: tuple[int, ...]
    ) -> Outputs:
        if request.array("token_offset") is None:
            state = self.begin(params)
            samples, _ = await self._compute(params, state, tokens, final=True, stream=False)
        else:
            offset = request.get_int("token_offset", 0)
            final = request.get_bool("finalize", False)
            samples = await self._next(params, tokens, offset, final=final)
        return {"waveform": samples[None]}

    async def _next(
        self, params: Token2WavInput, tokens: tuple[int, ...], offset: int, *, final: bool
    ) -> Floats:
        end = self.end(tokens, offset, final=final)
        state = self.streams.take(params.key(tokens[:offset])) if offset else None
        if state is None:
            state = await self._recompute(params, tokens, offset)
        samples, state = await self._compute(params, state, tokens, final=final, stream=True)
        if not final:
            self.streams.put(params.key(tokens[:end]), state, params.session)
        return samples

    def end(self, tokens: tuple[int, ...], offset: int, *, final: bool) -> int:
        """How many tokens the next chunk makes audio of, those before it included."""
        lookahead = self.token2wav.token2wav.flow.lookahead
        end = len(tokens) if final else len(tokens) - lookahead
        if not 0 <= offset < end:
            raise InputError(
                f"token_offset is {offset}, but {len(tokens)} tokens make audio up to {end}: send "
                f"all tokens so far{'' if final else f' and {lookahead} more to look at'}"
            )
        return end

    async def _recompute(
        self, params: Token2WavInput, tokens: tuple[int, ...], offset: int
    ) -> Token2WavState:
        """The state of a stream whose audio reaches `offset`, which was lost or timed out."""
        flow = self.token2wav.token2wav.flow
        if offset and len(tokens) < offset + flow.lookahead:
            raise InputError(
                f"token_offset is {offset}, which took {offset + flow.lookahead} tokens, but "
                f"{len(tokens)} are there: send all tokens so far"
            )
        state = self.begin(params)
        for end in hop_ends(state.prompt_tokens, flow.grid):
            if state.flow.tokens >= offset:
                return state
            known = tokens[: min(end, offset) + flow.lookahead]
            _, state = await self._compute(params, state, known, final=False, stream=True)
        raise AssertionError("hops never end")

    async def _compute(
        self,
        params: Token2WavInput,
        state: Token2WavState,
        tokens: tuple[int, ...],
        *,
        final: bool,
        stream: bool,
    ) -> tuple[Floats, Token2WavState]:
        chunk = ChunkRequest(
            state=state,
            tokens=tokens,
            final=final,
            stream=stream,
            urgent=params.slack < 0,
            deadline=time.monotonic() + params.slack,
        )
        return await self.token2wav.compute(chunk), chunk.state

    def begin(self, params: Token2WavInput) -> Token2WavState:
        return self.token2wav.token2wav.begin(
            params.voice, with_prompt=params.with_prompt, seed=params.seed, speed=params.speed
        )
