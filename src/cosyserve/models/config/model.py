"""The sizes of a whole model."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from cosyserve.audio.features import KALDI_BINS, WHISPER_BINS
from cosyserve.contracts import (
    MEL_BINS,
    SAMPLE_RATE,
    SAMPLES_PER_FRAME,
    Sampling,
    VoiceFormat,
)
from cosyserve.models.config.checks import agree, require
from cosyserve.models.config.encoders import LEVELS, CamPlusConfig, S3Config
from cosyserve.models.config.flow import FlowConfig
from cosyserve.models.config.lm import LMConfig
from cosyserve.models.config.vocoder import VocoderConfig


@dataclass(frozen=True)
class ModelConfig:
    """A model folder: the parts it has (None = not in this folder)."""

    name: str = "cosyvoice2"
    family: str = "cosyvoice2"
    lm: LMConfig | None = None
    flow: FlowConfig | None = None
    vocoder: VocoderConfig | None = None
    speech_tokenizer: S3Config | None = None
    speaker_encoder: CamPlusConfig | None = None
    fingerprint: str = ""  # of the weights that make voices (tokenizer and speaker encoder)
    speech: bool = True  # False: random weights for tests, the output is no speech
    sampling: Sampling = field(default_factory=Sampling)

    @property
    def takes_pieces(self) -> bool:
        """Whether text may arrive while the model speaks."""
        return self.lm is None or self.lm.takes_pieces

    @property
    def voice_format(self) -> VoiceFormat:
        if self.flow is None:
            return VoiceFormat(self.family, self.fingerprint)
        return VoiceFormat(
            family=self.family,
            fingerprint=self.fingerprint,
            embedding=self.flow.speaker,
            mel=self.flow.mel,
            speech_tokens=self.flow.speech_tokens,
        )

    def __post_init__(self) -> None:
        """Parts agree on tokens, frames and samples, with each other and with `contracts`."""
        lm, flow, vocoder = self.lm, self.flow, self.vocoder
        tokens, speaker = self.speech_tokenizer, self.speaker_encoder
        if lm and flow:
            agree("speech tokens", "LM", lm.speech_tokens, "flow", flow.speech_tokens)
        if flow:
            agree("mel bins", "flow", flow.mel, "prompt", MEL_BINS)
        if vocoder:
            agree("mel bins", "vocoder", vocoder.mel, "flow", MEL_BINS)
            agree("samples per second", "vocoder", vocoder.sample_rate, "server", SAMPLE_RATE)
            frame = math.prod(vocoder.upsample_rates) * vocoder.hop
            agree("samples per frame", "vocoder", frame, "server", SAMPLES_PER_FRAME)
        if tokens:
            agree("mel bins", "speech tokenizer", tokens.mels, "recording", WHISPER_BINS)
            require(tokens.state % (2 * tokens.heads) == 0, "state is no even number per head")
            require(tokens.fsmn_kernel % 2 == 1, "fsmn_kernel is not odd")
        if tokens and flow:
            codes = LEVELS**tokens.code_dims
            agree("speech tokens", "speech tokenizer", codes, "flow", flow.speech_tokens)
        if speaker:
            agree("bins", "speaker encoder", speaker.feat, "recording", KALDI_BINS)
            require(
                len(speaker.block_layers) == len(speaker.dilations),
                "block_layers and dilations differ in length",
            )
            require(speaker.kernel % 2 == 1, "the speaker encoder's kernel is not odd")
        if speaker and flow:
            agree("embedding", "speaker encoder", speaker.embedding, "flow", flow.speaker)
