"""The speech tokenizer and the speaker encoder, loaded from published ONNX files.

They run in torch when the weights of the file were proven to give the same results there, and
through onnxruntime when not; callers can't tell the difference.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from cosyserve.checkpoints.onnx.weights import match_weights, read_onnx
from cosyserve.checkpoints.parts import meta_device
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
    from onnxruntime import InferenceSession

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


Onnx = TypeVar("Onnx", OnnxSpeechTokenizer, OnnxSpeakerEncoder)
Torch = TypeVar("Torch", TorchSpeechTokenizer, TorchSpeakerEncoder)


def load_speech_tokenizer(
    path: Path, config: S3Config = PUBLISHED_S3, threads: int = 1
) -> SpeechTokenizer:
    """Read a tokenizer from its ONNX file; `threads` are those of onnxruntime."""
    with meta_device():
        tokenizer = TorchSpeechTokenizer(S3Tokenizer(config))
        example = (torch.zeros(1, config.mels, 8), torch.tensor([8]))
    return _load(
        path,
        threads,
        "speech tokenizer",
        in_onnx=OnnxSpeechTokenizer,
        in_torch=tokenizer,
        example=example,
        trials=_trials(lambda frames: (config.mels, frames)),
        require_same=_require_same_tokens,
    )


def load_speaker_encoder(
    path: Path, config: CamPlusConfig = PUBLISHED_CAMPLUS, threads: int = 1
) -> SpeakerEncoder:
    """Read a speaker encoder from its ONNX file; `threads` are those of onnxruntime."""
    with meta_device():
        encoder = TorchSpeakerEncoder(CamPlus(config))
        example = (torch.zeros(1, 8, config.feat),)
    return _load(
        path,
        threads,
        "speaker encoder",
        in_onnx=lambda session: OnnxSpeakerEncoder(session, config.embedding),
        in_torch=encoder,
        example=example,
        trials=_trials(lambda frames: (frames, config.feat)),
        require_same=_require_same_embedding,
    )


def _load(
    path: Path,
    threads: int,
    name: str,
    *,
    in_onnx: Callable[[InferenceSession], Onnx],
    in_torch: Torch,
    example: tuple[Tensor, ...],
    trials: list[Floats],
    require_same: Callable[[Path, Torch, Floats, Any], None],
) -> Onnx | Torch:
    """The encoder in torch, with weights of the file that give the same results in all trials; or
    else in onnxruntime. `example` is an input of its module."""
    model = read_onnx(path)
    encoder = in_onnx(open_session(path, threads))
    expected = _run(path, encoder, trials)
    try:
        weights = match_weights(model, path, in_torch.module, example)
        in_torch.module.load_state_dict(weights, assign=True)
        for trial, result in zip(trials, expected, strict=True):
            require_same(path, in_torch, trial, result)
    except CheckpointError as reason:
        log.warning("the %s runs through onnxruntime: %s", name, reason)
        return encoder
    return in_torch


def open_session(model: Path | bytes, threads: int) -> InferenceSession:
    """An ONNX file, or what it holds, in onnxruntime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    try:
        source, provider = model if isinstance(model, bytes) else str(model), "CPUExecutionProvider"
        return onnxruntime.InferenceSession(source, options, providers=[provider])
    except Exception as error:  # onnxruntime has no common class for its errors
        name = "ONNX" if isinstance(model, bytes) else model
        raise CheckpointError(f"{name}: onnxruntime can't load it ({error})") from error


def _within_seconds(session: InferenceSession, inputs: dict[str, Any]) -> list[Any]:
    """Runs the session and stops it if it takes too long: a graph may hold loops that never end."""
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


def _run(path: Path, encoder: Callable[[Floats], Any], trials: list[Floats]) -> list[Any]:
    try:
        return [encoder(trial) for trial in trials]
    except Exception as error:  # onnxruntime has no common class for its errors
        raise CheckpointError(f"{path}: not the expected inputs and outputs ({error})") from error


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
