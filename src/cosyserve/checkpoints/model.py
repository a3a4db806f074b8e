"""A model ready to run: modules with their weights on a device.

Knows no request and no setting; the caller says where and in which precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from cosyserve.checkpoints.onnx.encoders import load_speaker_encoder, load_speech_tokenizer
from cosyserve.checkpoints.parts import Parts, build
from cosyserve.errors import CheckpointError
from cosyserve.models.config import ModelConfig
from cosyserve.models.encoders.campplus import CamPlus
from cosyserve.models.encoders.prompt_encoders import (
    SpeakerEncoder,
    SpeechTokenizer,
    TorchSpeakerEncoder,
    TorchSpeechTokenizer,
)
from cosyserve.models.encoders.s3 import S3Tokenizer
from cosyserve.models.flow.flow import Flow
from cosyserve.models.lm.lm import SpeechLM
from cosyserve.models.vocoder.hift import HiFT
from cosyserve.text import TextTokenizer


@dataclass(frozen=True)
class Model:
    """Parts that a folder lacks are None; asking for one that is needed names what to do."""

    config: ModelConfig
    device: torch.device
    lm: SpeechLM | None
    flow: Flow | None
    vocoder: HiFT | None
    text_tokenizer: TextTokenizer | None
    speech_tokenizer: SpeechTokenizer | None
    speaker_encoder: SpeakerEncoder | None
    voices: tuple[Path, ...]

    def need_lm(self) -> tuple[SpeechLM, TextTokenizer]:
        if self.lm is None or self.text_tokenizer is None:
            raise CheckpointError(
                f"model '{self.config.name}' has no speech LM: join one with "
                "`cosyserve prepare LM_DIR TOKEN2WAV_DIR --out DIR`"
            )
        return self.lm, self.text_tokenizer

    def need_token2wav(self) -> tuple[Flow, HiFT]:
        if self.flow is None or self.vocoder is None:
            raise CheckpointError(
                f"model '{self.config.name}' has no flow and vocoder: join a token2wav with "
                "`cosyserve prepare LM_DIR TOKEN2WAV_DIR --out DIR`"
            )
        return self.flow, self.vocoder

    def need_prompt_encoders(self) -> tuple[SpeechTokenizer, SpeakerEncoder]:
        if self.speech_tokenizer is None or self.speaker_encoder is None:
            raise CheckpointError(
                f"model '{self.config.name}' has no speech tokenizer or speaker encoder, so it "
                "can't learn a voice from audio: add speech_tokenizer_v2.onnx and campplus.onnx "
                "to its folder, or use a stored voice"
            )
        return self.speech_tokenizer, self.speaker_encoder


def assemble(
    parts: Parts,
    device: torch.device | str = "cpu",
    token2wav_device: torch.device | str | None = None,
    origin: str = "model",
) -> Model:
    """A model on its device; flow and vocoder may have one of their own."""
    config, states, device = parts.config, parts.states, torch.device(device)
    token2wav_device = torch.device(token2wav_device or device)
    lm = flow = vocoder = None
    if "lm" in states:
        lm = build(SpeechLM, config.lm, states["lm"], f"{origin}/lm").to(device)
        if parts.tokenizer and config.lm and parts.tokenizer.vocab_size > config.lm.vocab:
            raise CheckpointError(f"{origin}: the tokenizer has more ids than the LM")
    if "flow" in states:
        flow = build(Flow, config.flow, states["flow"], f"{origin}/flow").to(token2wav_device)
    if "vocoder" in states:
        vocoder = build(HiFT, config.vocoder, states["vocoder"], f"{origin}/vocoder")
        vocoder = vocoder.to(token2wav_device, torch.float32)
    speech_tokenizer: SpeechTokenizer | None = None
    speaker_encoder: SpeakerEncoder | None = None
    if "speech_tokenizer" in states:
        module = build(
            S3Tokenizer,
            config.speech_tokenizer,
            states["speech_tokenizer"],
            f"{origin}/speech_tokenizer",
        )
        speech_tokenizer = TorchSpeechTokenizer(module.to(device))
    elif "speech_tokenizer" in parts.onnx and config.speech_tokenizer:
        speech_tokenizer = load_speech_tokenizer(
            parts.onnx["speech_tokenizer"], config.speech_tokenizer
        )
    if "speaker_encoder" in states:
        encoder = build(
            CamPlus, config.speaker_encoder, states["speaker_encoder"], f"{origin}/speaker_encoder"
        )
        speaker_encoder = TorchSpeakerEncoder(encoder.to(device))
    elif "speaker_encoder" in parts.onnx and config.speaker_encoder:
        speaker_encoder = load_speaker_encoder(
            parts.onnx["speaker_encoder"], config.speaker_encoder
        )
    return Model(
        config,
        device,
        lm,
        flow,
        vocoder,
        parts.tokenizer,
        speech_tokenizer,
        speaker_encoder,
        parts.voices,
    )
