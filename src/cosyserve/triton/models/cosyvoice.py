"""Text in a voice to a waveform, by the other models of the repository.

Serves `cosyvoice2`, `cosyvoice2_dit` and `cosyvoice3`, streamed where the model is decoupled and
whole where it is not.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from cosyserve.backends.llm_server import LLMServer
from cosyserve.backends.protocols import LMBackend
from cosyserve.checkpoints.model import Model
from cosyserve.choices import LLMSampling, PromptForm
from cosyserve.contracts import AudioChunk, Floats
from cosyserve.engine.split.lm_backends import open_llm_server
from cosyserve.engine.split.pipeline import SplitEngine
from cosyserve.engine.split.silences import short_silences
from cosyserve.errors import InputError
from cosyserve.text.number_process import NumberProcess
from cosyserve.triton.drain import speaking
from cosyserve.triton.models.backends import TritonLM, TritonToken2Wav
from cosyserve.triton.models.instance.async_model import AsyncTritonModel, Outputs, Request
from cosyserve.triton.models.instance.loading import load_parts
from cosyserve.triton.models.voice_input import VoiceInput
from cosyserve.triton.options import own_sampling, speech_request
from cosyserve.triton.process import GRPC
from cosyserve.triton.vocabulary import vocabulary_of


class TritonPythonModel(AsyncTritonModel):
    def prepare(self) -> None:
        model = load_parts(self.settings)
        cache_bytes = int(self.settings["voice_cache_bytes"])
        self.voice_input = VoiceInput(
            model, self.settings["voices"], self.settings["default_voice"], cache_bytes
        )
        assert model.config.flow
        lookahead = model.config.flow.encoder.lookahead
        token2wav = TritonToken2Wav(
            self.settings["token2wav"], lookahead, cache_bytes, vocabulary_of(model.config.family)
        )
        lm = self._lm(model)
        self.sampling = own_sampling(self.settings, model.config.sampling)
        self.engine = SplitEngine(model, lm, token2wav, NumberProcess())

    def _lm(self, model: Model) -> LMBackend:
        settings = self.settings
        sampling = LLMSampling(
            temperature=float(settings["llm_temperature"]),
            top_p=float(settings["llm_top_p"]),
            top_k=int(settings["llm_top_k"]),
            repetition_penalty=float(settings["llm_repetition_penalty"]),
            max_tokens=int(settings["llm_max_tokens"]),
        )
        if not settings["llm_url"]:
            ours, here = settings["triton_backend"] == "python", settings["role"] != "token2wav"
            address = os.environ.get(GRPC, settings["grpc"]) if here else settings["grpc"]
            vocabulary = vocabulary_of(model.config.family).lm
            if ours:
                return TritonLM(address, None, vocabulary)
            sizes, _ = model.need_text_side()
            return short_silences(TritonLM(address, sampling, vocabulary), sizes.silent)
        key_file = settings["llm_key_file"]
        server = LLMServer(
            settings["llm_url"],
            settings["llm_model"],
            (self.folder / key_file).read_text() if key_file else "",
            TypeAdapter(PromptForm).validate_python(settings["llm_prompt"]),
            sampling=sampling,
            connect_seconds=float(settings["llm_connect_seconds"]),
            first_seconds=float(settings["llm_first_seconds"]),
            between_seconds=float(settings["llm_between_seconds"]),
        )
        return open_llm_server(server, model)

    async def answers(self, request: Request) -> AsyncGenerator[Outputs, None]:
        with speaking():
            async with aclosing(self._speech(request)) as outputs:
                async for output in outputs:
                    yield output

    async def _speech(self, request: Request) -> AsyncGenerator[Outputs, None]:
        request.need("target_text")
        text, limit = request.text("target_text"), int(self.settings["max_text_characters"])
        if len(text) > limit:
            raise InputError(f"target_text has {len(text)} characters, at most {limit} are taken")
        voice = await self.voice_input.read(request)
        options = request.text("options")
        speech = speech_request(text, voice, options, stream=self.decoupled, own=self.sampling)
        async with aclosing(self.engine.open(speech)) as chunks:
            if self.decoupled:
                async for chunk in chunks:
                    yield _outputs(chunk.samples, [chunk])
            else:
                utterance = [chunk async for chunk in chunks]
                yield _outputs(np.concatenate([chunk.samples for chunk in utterance]), utterance)


def _outputs(samples: Floats, chunks: list[AudioChunk]) -> Outputs:
    """The samples, and `details` of them as JSON."""
    last = chunks[-1]
    details: dict[str, Any] = {
        "index": last.index,
        "start": chunks[0].start,
        "tokens": sum(chunk.tokens for chunk in chunks),
        "finish": last.finish,
        "text_tokens": sum(chunk.text_tokens for chunk in chunks),
        "retries": sum(chunk.retries for chunk in chunks),
    }
    return {
        "waveform": samples[None],
        "details": np.array([[json.dumps(details).encode()]], np.object_),
    }
