"""What turns prompt features into speech tokens and a speaker embedding, from published files.

The networks run in torch when the weights of the ONNX file were proven to give the same results
there, and through onnxruntime when not; callers can't tell the difference.

Knows no audio, no voice and no setting.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from cosyserve.checkpoints.onnx.weights import match_weights, read_onnx
from cosyserve.contracts import Floats, Ints
from cosyserve.errors import CheckpointError
from cosyserve.models.config import CamPlusConfig, S3Config
from cosyserve.models.encoders.campplus import CamPlus
from cosyserve.models.encoders.prompt_encoders import (
    SpeakerEncoder,
    SpeechTokenizer,
    TorchSpeakerEncoder,
    TorchSpeechTokenizer,
)
from cosyserve.models.encoders.s3 import S3Tokenizer, bounded

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnxruntime import InferenceSession

Result = TypeVar("Result")

PUBLISHED_S3 = S3Config()
PUBLISHED_CAMPLUS = CamPlusConfig()
TRIAL_LENGTHS = (131, 307)  # feature frames; the longer one spans several context segments
ROUNDING_EDGE = 0.5
EDGE_MARGIN = 1e-3  # nearer to a rounding edge than this, two runtimes may disagree on a token
ONNX_SECONDS = 60.0  # for one recording; a second or two are usual
EMBEDDING_TOLERANCE = 1e-3  # of the largest component

log = logging.getLogger(__name__)


class OnnxSpeechTokenizer:
    """A `SpeechTokenizer` that runs an ONNX file: (features, length) -> tokens."""

    def __init__(self, session: InferenceSession) -> None:
        self.session = session

    def __call__(self, log_mel: Floats) -> Ints:
        features, length = (node.name for node in self.session.get_inputs())
        frames = np.array([log_mel.shape[1]], np.int32)
        (tokens,) = _within_seconds(self.session, {features: log_mel[None], length: frames})
        return np.asarray(tokens, np.int32).reshape(-1)

    def batch(self, log_mels: Sequence[Floats]) -> list[Ints]:
        """One by one: published files were exported for a batch of one."""
        return [self(log_mel) for log_mel in log_mels]


class OnnxSpeakerEncoder:
    """A `SpeakerEncoder` that runs an ONNX file; the output of the embedding's size is taken."""

    def __init__(self, session: InferenceSession, embedding: int) -> None:
        self.session = session
        self.embedding = embedding

    def __call__(self, fbank: Floats) -> Floats:
        (features,) = (node.name for node in self.session.get_inputs())
        outputs = _within_seconds(self.session, {features: fbank[None]})
        fitting = [out for out in outputs if out.shape[-1:] == (self.embedding,)]
        return np.asarray(fitting[0], np.float32).reshape(self.embedding)

    def batch(self, fbanks: Sequence[Floats]) -> list[Floats]:
        """One by one: published files know no lengths."""
        return [self(fbank) for fbank in fbanks]


def load_speech_tokenizer(
    path: Path, config: S3Config = PUBLISHED_S3, threads: int = 1
) -> SpeechTokenizer:
    """Read a tokenizer from its ONNX file; `threads` are those of onnxruntime."""
    model = read_onnx(path)
    fallback = OnnxSpeechTokenizer(_session(path, threads))
    with torch.device("meta"):
        module = S3Tokenizer(config)
        example = (torch.zeros(1, config.mels, 8), torch.tensor([8]))
    trials = _trials(lambda frames: (config.mels, frames))
    expected = _run(path, fallback, trials)
    try:
        _take_weights(module, model, path, example)
        tokenizer = TorchSpeechTokenizer(module)
        for trial, tokens in zip(trials, expected, strict=True):
            _require_same_tokens(path, tokenizer, trial, tokens)
    except CheckpointError as reason:
        log.warning("the speech tokenizer runs through onnxruntime: %s", reason)
        return fallback
    return tokenizer


def load_speaker_encoder(
    path: Path, config: CamPlusConfig = PUBLISHED_CAMPLUS, threads: int = 1
) -> SpeakerEncoder:
    """Read a speaker encoder from its ONNX file; `threads` are those of onnxruntime."""
    model = read_onnx(path)
    fallback = OnnxSpeakerEncoder(_session(path, threads), config.embedding)
    with torch.device("meta"):
        module = CamPlus(config)
        example = (torch.zeros(1, 8, config.feat),)
    trials = _trials(lambda frames: (frames, config.feat))
    expected = _run(path, fallback, trials)
    try:
        _take_weights(module, model, path, example)
        encoder = TorchSpeakerEncoder(module)
        for trial, embedding in zip(trials, expected, strict=True):
            _require_same_embedding(path, encoder, trial, embedding)
    except CheckpointError as reason:
        log.warning("the speaker encoder runs through onnxruntime: %s", reason)
        return fallback
    return encoder


def _session(path: Path, threads: int) -> InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has no common class for its errors
        raise CheckpointError(f"{path}: onnxruntime can't load it ({error})") from error


def _within_seconds(session: InferenceSession, inputs: dict[str, Any]) -> list[Any]:
    """A graph may hold loops: one that doesn't end is stopped, with an error of onnxruntime's."""
    import onnxruntime

    options = onnxruntime.RunOptions()
    stop = threading.Timer(ONNX_SECONDS, setattr, (options, "terminate", True))
    stop.start()
    try:
        outputs: list[Any] = session.run(None, inputs, options)
    finally:
        stop.cancel()
    return outputs


def _trials(shape: Callable[[int], tuple[int, int]]) -> list[Floats]:
    random = np.random.default_rng(0)
    return [random.standard_normal(shape(n), np.float32) for n in TRIAL_LENGTHS]


def _run(path: Path, encoder: Callable[[Floats], Result], trials: list[Floats]) -> list[Result]:
    try:
        return [encoder(trial) for trial in trials]
    except Exception as error:  # onnxruntime has no common class for its errors
        raise CheckpointError(f"{path}: not the expected inputs and outputs ({error})") from error


def _take_weights(
    module: nn.Module, model: ModelProto, path: Path, example: tuple[Tensor, ...]
) -> None:
    module.load_state_dict(match_weights(model, path, module, example), assign=True)


def _require_same_tokens(
    path: Path, tokenizer: TorchSpeechTokenizer, log_mel: Floats, expected: Ints
) -> None:
    tokens = tokenizer(log_mel)
    if len(tokens) != len(expected):
        raise CheckpointError(f"{path}: {len(expected)} tokens where torch gives {len(tokens)}")
    to_edge = (bounded(tokenizer.pre_quant(log_mel)[0]).abs() - ROUNDING_EDGE).abs().amin(dim=1)
    wrong = (tokens != expected) & (to_edge.numpy() >= EDGE_MARGIN)
    if wrong.any():
        raise CheckpointError(
            f"{path}: torch gives {wrong.sum()} of {len(tokens)} tokens otherwise than onnxruntime"
        )


def _require_same_embedding(
    path: Path, encoder: TorchSpeakerEncoder, fbank: Floats, expected: Floats
) -> None:
    error = np.abs(encoder(fbank) - expected).max() / np.abs(expected).max()
    if not error <= EMBEDDING_TOLERANCE:  # so that nan fails
        raise CheckpointError(f"{path}: torch's embedding is off by {error:.1e} of its size")
