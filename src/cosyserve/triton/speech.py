"""The tensors of the speech models: what goes into `cosyvoice2`, what comes out of it.

Names, types and shapes are the original's; ours also take whole voices and options, and tell
details.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np

from cosyserve.audio import resample
from cosyserve.audio.features import SPEECH_RATE
from cosyserve.contracts import SAMPLES_PER_TOKEN, AudioChunk, Floats, Mode, SpeechRequest, Voice
from cosyserve.errors import CosyError, InputError, VoiceError
from cosyserve.triton import tensors
from cosyserve.triton.options import request_options
from cosyserve.triton.tensors import Array, Tensors
from cosyserve.voices import file as voice_file


def speech_inputs(
    text: str, recording: Floats | None = None, recording_text: str = ""
) -> dict[str, Array]:
    """The inputs of a text; without a recording (16 kHz) the server speaks in its own voice."""
    inputs = {"target_text": tensors.text(text)}
    if recording is None:
        return inputs
    # Triton batches requests of one shape only: whole seconds make that likely.
    padded = np.zeros((1, -(-len(recording) // SPEECH_RATE) * SPEECH_RATE), np.float32)
    padded[0, : len(recording)] = recording
    return inputs | {
        "reference_wav": padded,
        "reference_wav_len": np.array([[len(recording)]], np.int32),
        "reference_text": tensors.text(recording_text),
    }


def request_inputs(request: SpeechRequest, text: str, *, own_voice: str) -> dict[str, Array]:
    """The inputs of one of our models; `own_voice` is the name of a voice that the server has."""
    options = request_options(request)
    if own_voice and request.mode is Mode.PRESET:  # the server knows which mode its voice is for
        del options["mode"]
    inputs = speech_inputs(text) | {"options": tensors.text(json.dumps(options))}
    if own_voice:
        inputs["voice_id"] = tensors.text(own_voice)
    else:
        voice = voice_file.to_bytes(replace(request.voice, source=None, source_rate=0))
        inputs["voice"] = np.frombuffer(voice, np.uint8)[None]
    return inputs


def plain_inputs(request: SpeechRequest, text: str, *, own_voice: str) -> dict[str, Array]:
    """The inputs of one of the original's models, which take recordings and nothing else."""
    if request.speed != 1.0 or request.mode is Mode.INSTRUCT:
        raise InputError("this Triton server knows neither speed nor instructions")
    if request.lexicon:
        raise InputError("this Triton server knows no lexicon: leave it out")
    if own_voice:
        return speech_inputs(text)
    return speech_inputs(text, _recording(request.voice), request.voice.prompt_text)


def waveform(answer: Tensors) -> Floats:
    """The samples of an answer."""
    samples = answer.get("waveform")
    if samples is None or samples.dtype != np.float32:
        raise CosyError("the model gives no float32 waveform: it is none of CosyVoice's")
    return samples.reshape(-1)


def audio_chunk(answer: Tensors, index: int, start: float) -> AudioChunk:
    """The chunk of an answer; what the original's models don't tell of it is counted here."""
    samples = waveform(answer)
    if "details" not in answer:
        return AudioChunk(samples, index, start, len(samples) // SAMPLES_PER_TOKEN)
    details: dict[str, Any] = json.loads(answer["details"].reshape(-1)[0])
    return AudioChunk(
        *(samples, index, start),
        tokens=details["tokens"],
        finish=details["finish"],
        text_tokens=details["text_tokens"],
        retries=details.get("retries", 0),
    )


def _recording(voice: Voice) -> Floats:
    if voice.source is None:
        raise VoiceError(
            f"voice '{voice.name}' has no recording, and this Triton server takes nothing else: "
            "add it again"
        )
    return resample(voice.source, voice.source_rate, SPEECH_RATE)
