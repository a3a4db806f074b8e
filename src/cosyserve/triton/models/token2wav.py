"""Speech tokens to a waveform, whole or chunk by chunk. Knows no text and no LM.

Serves `token2wav` and `token2wav_dit`, which differ only in how a voice is given. With
`token_offset` a request is the next chunk of a stream: it gives all tokens so far, so that the
stream is found by its content, and made anew where it is not here.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import numpy as np

from cosyserve.audio import Audio
from cosyserve.contracts import MAX_SPEED, MIN_SPEED, Floats, InputError, Voice
from cosyserve.engine.hops import hop_ends
from cosyserve.engine.local import describe
from cosyserve.engine.token2wav import Voicing
from cosyserve.engine.token2wav_alone import Token2WavAlone
from cosyserve.triton import vocabulary
from cosyserve.triton.models.loading import load
from cosyserve.triton.models.skin import Outputs, Request, Skin
from cosyserve.triton.streams import Streams, content
from cosyserve.voices import file as voice_file
from cosyserve.voices.enroll import PROMPT_RATE, check_fits, enroll
from cosyserve.voices.lru import ByteLRU

PARTS = ("flow", "vocoder", "speech_tokenizer", "speaker_encoder")


@dataclass(frozen=True)
class Wanted:
    """What a request asks for, apart from its tokens."""

    voice: Voice
    with_prompt: bool
    seed: int
    speed: float
    session: str
    slack: float  # seconds of audio that the listener still has; negative: nothing was sent yet

    def key(self, tokens: tuple[int, ...]) -> str:
        voice = self.voice.content_hash
        return content(voice, self.seed, self.speed, self.with_prompt, tokens)


class TritonPythonModel(Skin):
    def prepare(self) -> None:
        self.model = load(self.settings, *PARTS)
        self.token2wav = Token2WavAlone(*self.model.need_token2wav())
        self.default = describe(self.model).voices["default"]
        limit, seconds = self._limit, float(self.settings["stream_seconds"])
        self.streams: Streams[Voicing] = Streams(limit, seconds)
        self.voices: ByteLRU[Voice] = ByteLRU(int(self.settings["voice_cache_bytes"]))

    def forget(self, session: str) -> None:
        self.streams.forget(session)

    def held(self) -> dict[str, int]:
        return super().held() | {"streams": len(self.streams)}

    async def answers(self, request: Request) -> AsyncGenerator[Outputs, None]:
        tokens = vocabulary.heard(request.need("target_speech_tokens").reshape(-1).tolist())
        wanted = await self._wanted(request)
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
        voicing = self.streams.take(wanted.key(tokens[:offset])) if offset else None
        if voicing is None:
            voicing = await self._made_again(wanted, tokens, offset)
        samples, voicing = await self._compute(wanted, voicing, tokens, final, True)
        if not final:
            self.streams.put(wanted.key(tokens[:end]), voicing, wanted.session)
        return samples

    async def _made_again(self, wanted: Wanted, tokens: tuple[int, ...], offset: int) -> Voicing:
        """The state of a stream that has spoken up to `offset`, which was lost or timed out."""
        voicing = self._begin(wanted)
        flow = self.token2wav.token2wav.flow
        for end in hop_ends(voicing.prompt_tokens, flow.grid):
            if voicing.flow.tokens >= offset:
                return voicing
            known = tokens[: min(end, offset) + flow.lookahead]
            _, voicing = await self._compute(wanted, voicing, known, False, True)
        raise AssertionError("hops never end")

    async def _compute(
        self, wanted: Wanted, voicing: Voicing, tokens: tuple[int, ...], final: bool, stream: bool
    ) -> tuple[Floats, Voicing]:
        return await self.token2wav.compute(
            voicing,
            tokens,
            final=final,
            stream=stream,
            first=wanted.slack < 0,
            dry=time.monotonic() + wanted.slack,
        )

    def _begin(self, wanted: Wanted) -> Voicing:
        return self.token2wav.token2wav.begin(
            wanted.voice, with_prompt=wanted.with_prompt, seed=wanted.seed, speed=wanted.speed
        )

    async def _wanted(self, request: Request) -> Wanted:
        given = request.parameters
        speed = float(given.get("speed", 1.0))
        if not MIN_SPEED <= speed <= MAX_SPEED:
            raise InputError(f"speed must be {MIN_SPEED}..{MAX_SPEED}, got {speed}")
        return Wanted(
            await self._voice(request),
            bool(given.get("with_prompt", True)),
            int(given.get("seed", 0)),
            speed,
            str(given.get("session", "")),
            float(given.get("slack", 0 if request.whole("token_offset", 0) else -1)),
        )

    async def _voice(self, request: Request) -> Voice:
        """A voice file, a recording, its features, or else the model's own voice."""
        if (packed := request.array("voice")) is not None:
            return self._fitting(voice_file.from_bytes(packed.tobytes(), "voice"))
        wave = request.wave()
        if wave is not None:
            key = hashlib.sha256(wave.tobytes()).hexdigest()
            found = self.voices.get(key)
            if found is None:
                audio = Audio(wave, PROMPT_RATE)
                found = await asyncio.to_thread(enroll, self.model, audio, "")
                self.voices.put(key, found, found.mel.nbytes)
            return found
        tokens = request.array("prompt_speech_tokens")
        if tokens is None:
            return self.default
        return self._fitting(
            Voice(
                "",
                np.array(vocabulary.heard(tokens.reshape(-1).tolist()), np.int32),
                request.need("prompt_speech_feat").astype(np.float32),
                request.need("prompt_spk_embedding").astype(np.float32).reshape(-1),
                family=self.model.config.family,
            )
        )

    def _fitting(self, voice: Voice) -> Voice:
        check_fits(voice, self.model)
        return voice
