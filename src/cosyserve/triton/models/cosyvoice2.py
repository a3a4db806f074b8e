"""Text in a voice to a waveform, by the other models of the repository. Knows no weights.

Serves `cosyvoice2` and `cosyvoice2_dit`, streamed where the model is decoupled and whole where it
is not.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import numpy as np

from cosyserve.audio import Audio
from cosyserve.backends.openai_llm import LLMServer, OpenAILLM
from cosyserve.contracts import AudioChunk, Floats, InputError, LMBackend, Voice
from cosyserve.engine.joined import JoinedEngine
from cosyserve.engine.local import describe
from cosyserve.engine.number_reader import NumberReader
from cosyserve.models.model import Model
from cosyserve.triton import vocabulary
from cosyserve.triton.models.inner import InnerLM, InnerToken2Wav, ask, output
from cosyserve.triton.models.loading import load
from cosyserve.triton.models.skin import Outputs, Request, Skin
from cosyserve.triton.options import speech_request
from cosyserve.voices import file as voice_file
from cosyserve.voices.enroll import PROMPT_RATE, check_recording, heard
from cosyserve.voices.library import VoiceLibrary
from cosyserve.voices.lru import ByteLRU
from cosyserve.voices.store import DEFAULT, open_store


class TritonPythonModel(Skin):
    def prepare(self) -> None:
        self.model = load(self.settings)
        shipped = describe(self.model).voices
        self.library = VoiceLibrary(open_store(self.settings["voices"]), lambda: shipped)
        self.recorded: ByteLRU[Voice] = ByteLRU(int(self.settings["voice_cache_bytes"]))
        assert self.model.config.flow
        lookahead = self.model.config.flow.encoder.lookahead
        token2wav = InnerToken2Wav(self.settings["token2wav"], lookahead)
        lm = _lm(self.settings, self.model)
        self.engine = JoinedEngine(self.model, lm, token2wav, NumberReader())

    async def answers(self, request: Request) -> AsyncGenerator[Outputs, None]:
        request.need("target_text")
        text, most = request.text("target_text"), int(self.settings["max_text_characters"])
        if len(text) > most:
            raise InputError(f"target_text has {len(text)} characters, at most {most} are taken")
        speech = speech_request(
            text,
            await self._voice(request),
            request.text("options"),
            stream=self.decoupled,
        )
        async with aclosing(self.engine.open(speech)) as chunks:
            if self.decoupled:
                async for chunk in chunks:
                    yield _outputs(chunk.samples, [chunk])
            else:
                spoken = [chunk async for chunk in chunks]
                yield _outputs(np.concatenate([chunk.samples for chunk in spoken]), spoken)

    async def _voice(self, request: Request) -> Voice:
        """A voice file, a recording, a voice of the store, or else the model's own."""
        if (packed := request.array("voice")) is not None:
            return voice_file.from_bytes(packed.tobytes(), "voice")
        wave = request.wave()
        if wave is None:
            name = request.text("voice_id") or DEFAULT
            if name == DEFAULT:  # of the model: no store is asked
                return self.library.get(name)
            return await asyncio.to_thread(self.library.get, name)
        text = request.text("reference_text")
        key = hashlib.sha256(text.encode() + b"\0" + wave.tobytes()).hexdigest()
        voice = self.recorded.get(key)
        if voice is None:
            voice = await self._learn(wave, text)
            self.recorded.put(key, voice, voice.mel.nbytes)
        return voice

    async def _learn(self, wave: Floats, text: str) -> Voice:
        audio = Audio(wave, PROMPT_RATE)
        check_recording(audio)
        length = np.array([len(wave)], np.int32)
        recording: Outputs = {"reference_wav": wave}
        tokens, embedding = await asyncio.gather(
            ask(
                "audio_tokenizer",
                recording | {"reference_wav_len": length},
                ("prompt_speech_tokens",),
            ).async_exec(),
            ask("speaker_embedding", recording, ("embedding",)).async_exec(),
        )
        return await asyncio.to_thread(
            heard,
            self.model.config,
            audio,
            text,
            np.array(vocabulary.heard(output(tokens, "prompt_speech_tokens").tolist()), np.int32),
            output(embedding, "embedding"),
        )


def _lm(settings: dict[str, str], model: Model) -> LMBackend:
    if not settings["llm_url"]:
        return InnerLM(ours=settings["triton_backend"] == "python")
    tokenizer = model.text_tokenizer
    assert tokenizer
    server = LLMServer(
        settings["llm_url"],
        settings["llm_model"],
        prompt=settings["llm_prompt"],  # type: ignore[arg-type]
    )
    return OpenAILLM(server, lambda ids: tokenizer.decode(ids, skip_special=False))


def _outputs(samples: Floats, chunks: list[AudioChunk]) -> Outputs:
    """`details` says of the samples what a client of ours wants to know."""
    last = chunks[-1]
    details: dict[str, Any] = {
        "index": last.index,
        "start": chunks[0].start,
        "tokens": sum(chunk.tokens for chunk in chunks),
        "finish": last.finish,
        "text_tokens": last.text_tokens,
    }
    return {
        "waveform": samples[None],
        "details": np.array([[json.dumps(details).encode()]], np.object_),
    }
