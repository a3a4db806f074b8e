"""Text in a voice to a waveform, by the other models of the repository. Knows no weights.

Serves `cosyvoice2` and `cosyvoice2_dit`, streamed where the model is decoupled and whole where it
is not.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import numpy as np

from cosyserve.backends.openai_llm import LLMServer, OpenAILLM
from cosyserve.checkpoints.model import Model
from cosyserve.contracts import AudioChunk, Floats, LMBackend
from cosyserve.engine.split.pipeline import SplitEngine
from cosyserve.errors import InputError
from cosyserve.text.number_process import NumberProcess
from cosyserve.triton.models.backends import InnerLM, InnerToken2Wav
from cosyserve.triton.models.base import Outputs, Request, Skin
from cosyserve.triton.models.loading import load
from cosyserve.triton.models.voice_input import GivenVoice
from cosyserve.triton.options import speech_request


class TritonPythonModel(Skin):
    def prepare(self) -> None:
        model = load(self.settings)
        cache_bytes = int(self.settings["voice_cache_bytes"])
        self.voice = GivenVoice(model, self.settings["voices"], cache_bytes)
        assert model.config.flow
        lookahead = model.config.flow.encoder.lookahead
        token2wav = InnerToken2Wav(self.settings["token2wav"], lookahead, cache_bytes)
        lm = _lm(self.settings, model)
        self.engine = SplitEngine(model, lm, token2wav, NumberProcess())

    async def answers(self, request: Request) -> AsyncGenerator[Outputs, None]:
        request.need("target_text")
        text, most = request.text("target_text"), int(self.settings["max_text_characters"])
        if len(text) > most:
            raise InputError(f"target_text has {len(text)} characters, at most {most} are taken")
        speech = speech_request(
            text, await self.voice.of(request), request.text("options"), stream=self.decoupled
        )
        async with aclosing(self.engine.open(speech)) as chunks:
            if self.decoupled:
                async for chunk in chunks:
                    yield _outputs(chunk.samples, [chunk])
            else:
                spoken = [chunk async for chunk in chunks]
                yield _outputs(np.concatenate([chunk.samples for chunk in spoken]), spoken)


def _lm(settings: dict[str, str], model: Model) -> LMBackend:
    if not settings["llm_url"]:
        return InnerLM(settings["grpc"], ours=settings["triton_backend"] == "python")
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
