"""A model ready to run: modules with their weights on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from cosyserve.checkpoints.onnx.encoders import load_speaker_encoder, load_speech_tokenizer
from cosyserve.checkpoints.parts import Parts, build, drop_blanks
from cosyserve.errors import CheckpointError, InputError
from cosyserve.models.config import LMConfig, ModelConfig
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

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Model:
    """Parts that a folder lacks are None; `need_...` raises an error that says what to do then."""

    config: ModelConfig
    device: torch.device
    lm: SpeechLM | None
    token2wavs: tuple[tuple[Flow, HiFT], ...]  # flow and vocoder, on each of their devices
    text_tokenizer: TextTokenizer | None
    speech_tokenizer: SpeechTokenizer | None
    speaker_encoder: SpeakerEncoder | None
    voices: tuple[Path, ...]

    @property
    def devices(self) -> set[torch.device]:
        return {self.device, *(next(flow.parameters()).device for flow, _ in self.token2wavs)}

    def need_lm(self) -> tuple[SpeechLM, TextTokenizer]:
        _, tokenizer = self.need_text_side()
        if self.lm is None:
            raise self._no_lm()
        return self.lm, tokenizer

    def need_text_side(self) -> tuple[LMConfig, TextTokenizer]:
        """What plans a text for an LM that runs elsewhere: sizes and a tokenizer, no weights."""
        if self.config.lm is None or self.text_tokenizer is None:
            raise self._no_lm()
        return self.config.lm, self.text_tokenizer

    def _no_lm(self) -> CheckpointError:
        return CheckpointError(
            f"model '{self.config.name}' has no speech LM: join one with "
            "`cosyserve prepare LM_DIR TOKEN2WAV_DIR --out DIR`"
        )

    def need_token2wav(self) -> tuple[Flow, HiFT]:
        if not self.token2wavs:
            raise CheckpointError(
                f"model '{self.config.name}' has no flow and vocoder: join a token2wav with "
                "`cosyserve prepare LM_DIR TOKEN2WAV_DIR --out DIR`"
            )
        return self.token2wavs[0]

    def need_prompt_encoders(self) -> tuple[SpeechTokenizer, SpeakerEncoder]:
        if self.speech_tokenizer is None or self.speaker_encoder is None:
            raise InputError(
                f"model '{self.config.name}' has no speech tokenizer or speaker encoder, so it "
                "can't learn a voice from audio: add speech_tokenizer_v2.onnx (CosyVoice3: v3) and "
                "campplus.onnx to its folder, or use a stored voice"
            )
        return self.speech_tokenizer, self.speaker_encoder


def assemble(
    parts: Parts,
    device: torch.device | str = "cpu",
    token2wav_devices: Sequence[torch.device | str] = (),
    origin: str = "model",
) -> Model:
    """Builds every part that is there; `origin` names them in errors. Flow and vocoder may have
    devices of their own, on each of which they are."""
    config, device = parts.config, torch.device(device)

    def built(name: str, module: Callable[[Any], M], place: torch.device) -> M | None:
        state = parts.states.get(name)
        if state is None:
            return None
        return build(module, getattr(config, name), state, f"{origin}/{name}").to(place)

    lm = built("lm", SpeechLM, device)
    if lm and parts.tokenizer and parts.tokenizer.vocab_size > lm.config.vocab:
        raise CheckpointError(f"{origin}: the tokenizer has more ids than the LM")
    token2wavs = []
    for place in token2wav_devices or [device]:
        flow = built("flow", Flow, torch.device(place))
        vocoder = built("vocoder", HiFT, torch.device(place))
        if flow and vocoder:
            token2wavs.append((flow, vocoder.to(torch.float32)))
    speech_tokenizer = built("speech_tokenizer", S3Tokenizer, device)
    speaker_encoder = built("speaker_encoder", CamPlus, device)
    drop_blanks()
    return Model(
        config=config,
        device=device,
        lm=lm,
        token2wavs=tuple(token2wavs),
        text_tokenizer=parts.tokenizer,
        speech_tokenizer=_speech_tokenizer(parts, speech_tokenizer),
        speaker_encoder=_speaker_encoder(parts, speaker_encoder),
        voices=parts.voices,
    )


def _speech_tokenizer(parts: Parts, module: S3Tokenizer | None) -> SpeechTokenizer | None:
    if module:
        return TorchSpeechTokenizer(module)
    file, config = parts.onnx.get("speech_tokenizer"), parts.config.speech_tokenizer
    return load_speech_tokenizer(file, config) if file and config else None


def _speaker_encoder(parts: Parts, module: CamPlus | None) -> SpeakerEncoder | None:
    if module:
        return TorchSpeakerEncoder(module)
    file, config = parts.onnx.get("speaker_encoder"), parts.config.speaker_encoder
    return load_speaker_encoder(file, config) if file and config else None
