"""Learning a voice from a recording."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

import numpy as np

from cosyserve.audio import prompt_mel, resample, speaker_fbank, whisper_log_mel
from cosyserve.audio.features import PROMPT_TOP_HZ, SPEECH_RATE
from cosyserve.audio.formats import MAX_RATE, MIN_RATE
from cosyserve.contracts import (
    FRAMES_PER_TOKEN,
    MAX_PROMPT_SECONDS,
    SAMPLE_RATE,
    Floats,
    Ints,
    Recording,
    Voice,
)
from cosyserve.errors import VoiceError
from cosyserve.models.config import EncoderConfig, ModelConfig
from cosyserve.voices.fits import recording_of
from cosyserve.voices.transcript import transcript_warning

if TYPE_CHECKING:  # `voice_from_features` needs no torch
    from cosyserve.checkpoints.model import Model

log = logging.getLogger(__name__)

MIN_SECONDS = 0.5
GRID = EncoderConfig().chunk
TOP_HZ = {"cosyvoice3": SAMPLE_RATE / 2}  # of the prompt's mel, by family
FIRST_HOP = 10  # tokens: with a flow prompt of 15 mod 25


class Origin(Protocol):
    """The weights that make a voice."""

    @property
    def family(self) -> str: ...

    @property
    def fingerprint(self) -> str: ...


def enroll(model: Model, recording: Recording, *, keep_audio: bool = False) -> Voice:
    """The voice of a recording of 0.5 to 30 s, in which its text is said ("" = unknown)."""
    check_recording(recording)
    tokenizer, speaker = model.need_prompt_encoders()
    narrow = resample(recording.samples, recording.rate, SPEECH_RATE)
    tokens = tokenizer(whisper_log_mel(narrow))
    embedding = speaker(speaker_features(model.config, narrow))
    voice = voice_from_features(model.config, recording, tokens, embedding)
    if warning := transcript_warning(voice):
        log.warning("voice '%s': %s", voice.name, warning)
    return replace(voice, source=recording.samples) if keep_audio else voice


def made_anew(model: Model, voice: Voice) -> Voice:
    """The voice, learned again if it is another family's and has kept its recording."""
    recording = recording_of(voice)
    if recording is None or voice.family == model.config.family:
        return voice
    return enroll(model, recording, keep_audio=True)


def speaker_features(config: ModelConfig, wave: Floats) -> Floats:
    """What a model's speaker encoder hears of a recording, 16 kHz."""
    encoder = config.speaker_encoder
    return speaker_fbank(wave, silence=encoder is None or encoder.takes_silence)


def voice_from_features(
    origin: Origin, recording: Recording, tokens: Ints, embedding: Floats
) -> Voice:
    """The voice of a recording, given its speech tokens and its speaker embedding."""
    wave = resample(recording.samples, recording.rate, SAMPLE_RATE)
    mel = prompt_mel(wave, TOP_HZ.get(origin.family, PROMPT_TOP_HZ))
    count = min(len(mel) // FRAMES_PER_TOKEN, len(tokens))
    return Voice(
        prompt_text=recording.text.strip(),
        speech_tokens=tokens[:count].astype(np.int32),
        mel=mel[: FRAMES_PER_TOKEN * count],
        embedding=embedding,
        name=recording.name,
        language=recording.language,
        family=origin.family,
        fingerprint=origin.fingerprint,
        consent=recording.consent,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        source_rate=recording.rate,
    )


def check_recording(recording: Recording) -> None:
    texts = recording.text, recording.name, recording.language, recording.consent
    if any("\ud800" <= letter <= "\udfff" for text in texts for letter in text):
        raise VoiceError("the voice's texts hold half a surrogate pair: send valid Unicode")
    samples = recording.samples
    if samples.ndim != 1 or not np.isfinite(samples).all():
        raise VoiceError("the recording is not one channel of finite samples")
    if not MIN_RATE <= recording.rate <= MAX_RATE:
        raise VoiceError(
            f"the recording is at {recording.rate} Hz, it must be at {MIN_RATE}..{MAX_RATE} Hz"
        )
    if recording.seconds > MAX_PROMPT_SECONDS:
        raise VoiceError(
            f"the recording is {recording.seconds:.1f} s long; at most {MAX_PROMPT_SECONDS:.0f} s "
            "are used: cut it"
        )
    if recording.seconds < MIN_SECONDS:
        raise VoiceError(
            f"the recording is {recording.seconds:.2f} s long, at least {MIN_SECONDS} s are "
            "needed; 3 to 10 s are best"
        )


def with_short_first_hop(voice: Voice) -> Voice:
    """The same voice with a flow prompt that lets every stream begin after 10 tokens.

    Up to 24 leading tokens are left out of the flow's prompt; prompts under 2 s stay whole.
    """
    count = len(voice.speech_tokens)
    start = (count + FIRST_HOP) % GRID if count >= 2 * GRID else 0
    return replace(voice, flow_start=start)
