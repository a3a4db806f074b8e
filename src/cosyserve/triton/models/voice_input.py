"""The voice that a request for speech names, brings along as a file, or as a recording."""

from __future__ import annotations

import asyncio

import numpy as np

from cosyserve.audio.features import SPEECH_RATE
from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Floats, Recording, Voice
from cosyserve.triton.models.backends import model_request, output
from cosyserve.triton.models.instance.async_model import Outputs, Request
from cosyserve.triton.vocabulary import vocabulary_of
from cosyserve.voices import file as voice_file
from cosyserve.voices.enroll import check_recording, voice_from_features
from cosyserve.voices.library import VoiceLibrary
from cosyserve.voices.memory.learned import LearnedVoices
from cosyserve.voices.shipped import describe
from cosyserve.voices.store import DEFAULT, open_store


class VoiceInput:
    """Reads the voices of requests; remembers those that came as recordings."""

    def __init__(self, model: Model, store: str, default_voice: str, cache_bytes: int) -> None:
        self._model = model
        self._vocabulary = vocabulary_of(model.config.family)
        shipped = describe(model).voices
        self._library = VoiceLibrary(open_store(store), lambda: shipped, default_voice)
        self._learned = LearnedVoices(cache_bytes)

    async def read(self, request: Request) -> Voice:
        """A voice file, a recording, a voice by its name, or else the voice `default`."""
        if (packed := request.array("voice")) is not None:
            return voice_file.from_bytes(packed.tobytes(), "voice")
        wave = request.wave()
        if wave is None:
            name = request.text("voice_id") or DEFAULT
            if name == DEFAULT:  # no store is asked
                return self._library.get(name)
            return await asyncio.to_thread(self._library.get, name)
        text = request.text("reference_text")
        return await self._learned.get(text, wave.tobytes(), learn=lambda: self._learn(wave, text))

    async def _learn(self, wave: Floats, text: str) -> Voice:
        recording = Recording(wave, SPEECH_RATE, text)
        check_recording(recording)
        length = np.array([len(wave)], np.int32)
        inputs: Outputs = {"reference_wav": wave}
        tokens, embedding = await asyncio.gather(
            model_request(
                "audio_tokenizer",
                inputs | {"reference_wav_len": length},
                ("prompt_speech_tokens",),
            ).async_exec(),
            model_request("speaker_embedding", inputs, ("embedding",)).async_exec(),
        )
        ids = output(tokens, "prompt_speech_tokens").tolist()
        return await asyncio.to_thread(
            voice_from_features,
            self._model.config,
            recording,
            np.array(self._vocabulary.tokens(ids), np.int32),
            output(embedding, "embedding"),
        )
