"""Text in a voice to a waveform, by the other models of the repository.

Serves `cosyvoice2` and `cosyvoice2_dit`, streamed where the model is decoupled and whole where it
is not.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from cosyserve.backends.openai_llm import LLMServer, OpenAILLM, PromptForm
from cosyserve.backends.protocols import LMBackend
from cosyserve.checkpoints.model import Model
from cosyserve.contracts import AudioChunk, Floats
from cosyserve.engine.split.pipeline import SplitEngine
from cosyserve.errors import InputError
from cosyserve.text.number_process import NumberProcess
from cosyserve.triton.models.backends import TritonLM, TritonToken2Wav
from cosyserve.triton.models.base import AsyncTritonModel, Outputs, Request
from cosyserve.triton.models.loading import load_parts
from cosyserve.triton.models.voice_input import VoiceInput
from cosyserve.triton.options import speech_request
from cosyserve.triton.process import GRPC


class TritonPythonModel(AsyncTritonModel):
    def prepare(self) -> None:
        model = load_parts(self.settings)
        cache_bytes = int(self.settings["voice_cache_bytes"])
        self.voice_input = VoiceInput(
            model, self.settings["voices"], self.settings["default_voice"], cache_bytes
        )
        assert model.config.flow
        lookahead = model.config.flow.encoder.lookahead
        token2wav = TritonToken2Wav(self.settings["token2wav"], lookahead, cache_bytes)
        lm = _lm(self.settings, model)
        self.engine = SplitEngine(model, lm, token2wav, NumberProcess())

    async def answers(self, request: Request) -> AsyncGenerator[Outputs, None]:
        request.need("target_text")
        text, limit = request.text("target_text"), int(self.settings["max_text_characters"])
        if len(text) > limit:
            raise InputError(f"target_text has {len(text)} characters, at most {limit} are taken")
        voice = await self.voice_input.read(request)
        speech = speech_request(text, voice, request.text("options"), stream=self.decoupled)
        async with aclosing(self.engine.open(speech)) as chunks:
            if self.decoupled:
                async for chunk in chunks:
                    yield _outputs(chunk.samples, [chunk])
            else:
                utterance = [chunk async for chunk in chunks]
                yield _outputs(np.concatenate([chunk.samples for chunk in utterance]), utterance)


def _lm(settings: dict[str, str], model: Model) -> LMBackend:
    if not settings["llm_url"]:
        address = os.environ.get(GRPC, settings["grpc"])
        return TritonLM(address, ours=settings["triton_backend"] == "python")
    tokenizer = model.text_tokenizer
    assert tokenizer
    server = LLMServer(
        settings["llm_url"],
        settings["llm_model"],
        prompt=TypeAdapter(PromptForm).validate_python(settings["llm_prompt"]),
    )
    return OpenAILLM(server, lambda ids: tokenizer.decode(ids, skip_special=False))


def _outputs(samples: Floats, chunks: list[AudioChunk]) -> Outputs:
    """The samples, and `details` of them as JSON."""
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
