"""Prompt encoders: features in, speech tokens or a speaker embedding out, as numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from cosyserve.contracts import Floats, Ints
from cosyserve.models.encoders.campplus import CamPlus
from cosyserve.models.encoders.s3 import S3Tokenizer


class SpeechTokenizer(Protocol):
    """log-mel float32 [mels, T] -> speech tokens int32 [ceil(T / 4)]"""

    def __call__(self, log_mel: Floats) -> Ints: ...

    def batch(self, log_mels: Sequence[Floats]) -> list[Ints]: ...


class SpeakerEncoder(Protocol):
    """filterbank float32 [T, feat] -> embedding float32 [E]"""

    def __call__(self, fbank: Floats) -> Floats: ...

    def batch(self, fbanks: Sequence[Floats]) -> list[Floats]: ...


class TorchSpeechTokenizer:
    """A `SpeechTokenizer` whose weights are those of `module`."""

    def __init__(self, module: S3Tokenizer) -> None:
        self.module = module.eval()

    @torch.inference_mode()
    def __call__(self, log_mel: Floats) -> Ints:
        return self.module.codes(self.pre_quant(log_mel))[0].cpu().numpy()

    @torch.inference_mode()
    def batch(self, log_mels: Sequence[Floats]) -> list[Ints]:
        mel, lengths = _padded(self.module, [log_mel.T for log_mel in log_mels])
        codes, counts = self.module(mel.transpose(1, 2), lengths)
        return [row[:count].cpu().numpy() for row, count in zip(codes, counts, strict=True)]

    @torch.inference_mode()
    def pre_quant(self, log_mel: Floats) -> Tensor:
        """log-mel [mels, T] -> code dimensions before rounding [1, L, code_dims]"""
        mel = _batch_of_one(self.module, log_mel)
        hidden, _ = self.module.hidden(mel, torch.tensor([mel.shape[2]], device=mel.device))
        return self.module.pre_quant(hidden)


class TorchSpeakerEncoder:
    """A `SpeakerEncoder` whose weights are those of `module`."""

    def __init__(self, module: CamPlus) -> None:
        self.module = module.eval()

    @torch.inference_mode()
    def __call__(self, fbank: Floats) -> Floats:
        return self.module(_batch_of_one(self.module, fbank))[0].float().cpu().numpy()

    @torch.inference_mode()
    def batch(self, fbanks: Sequence[Floats]) -> list[Floats]:
        return list(self.module(*_padded(self.module, fbanks)).float().cpu().numpy())


def _batch_of_one(module: nn.Module, features: Floats) -> Tensor:
    like = next(module.parameters())
    return torch.tensor(features, dtype=like.dtype, device=like.device)[None]


def _padded(module: nn.Module, rows: Sequence[Floats]) -> tuple[Tensor, Tensor]:
    """Rows [T, features] of several lengths as [B, T, features], and their lengths."""
    like = next(module.parameters())
    padded = nn.utils.rnn.pad_sequence([torch.from_numpy(row) for row in rows], batch_first=True)
    return padded.to(like), torch.tensor([len(row) for row in rows], device=like.device)
