"""The decoding step of a small speech LM on a CPU, in numpy: torch takes longer to call its many
small operations than to compute them. `SpeechLM.extend` and `lm.draw.draw` are its reference.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosyserve.contracts import MAX_WINDOW, Floats
from cosyserve.models.config import LMConfig
from cosyserve.models.lm.draw import (
    ACTIVE,
    FORBIDDEN,
    HISTORY,
    MAX_REPEATS,
    MIN_TOKENS,
    OTHERS,
    SCALE,
    SEED,
    STEP,
    TOKEN,
    TOP_K,
    TOP_P,
    WINDOW,
)
from cosyserve.models.lm.lm import KVCache, Layer, SpeechLM
from cosyserve.models.randomness import hash32

_RULES = [SEED, STEP, MIN_TOKENS, TOP_K, WINDOW, FORBIDDEN]
MAX_WEIGHTS = 1 << 24  # of an LM that is small: reading more takes longer than calling torch


def host_lm(lm: SpeechLM) -> HostLM | None:
    """The LM in numpy, where that is quick."""
    weight = lm.head.weight
    if weight.device.type != "cpu" or weight.dtype is not torch.float32:
        return None
    small = sum(weight.numel() for weight in lm.layers.parameters()) <= MAX_WEIGHTS
    return HostLM(lm) if small else None


class HostLM:
    def __init__(self, lm: SpeechLM) -> None:
        config = lm.config
        self.config = config
        self._embedding = _numbers(lm.embedding.weight)
        self._layers = [
            _HostLayer(layer, config) for layer in lm.layers if isinstance(layer, Layer)
        ]
        self._norm = _numbers(lm.norm.weight)
        self._head = _numbers(lm.head.weight), _numbers(lm.head.bias)
        exponent = np.arange(0, config.head_dim, 2) / config.head_dim
        self._turns = config.rope_theta**-exponent

    def logits(self, ids: Tensor, lengths: Tensor, cache: KVCache, span: int) -> Tensor:
        """Appends ids [B] to rows that hold `lengths` [B] positions -> float32 [B, classes]."""
        positions = np.minimum(lengths.numpy(), span - 1)
        x = self._embedding[ids.numpy()]
        angle = positions[:, None, None] * self._turns
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        rotary = np.concatenate((cos, cos), axis=2), np.concatenate((-sin, sin), axis=2)
        layers = zip(self._layers, cache.keys.numpy(), cache.values.numpy(), strict=True)
        with np.errstate(over="ignore"):  # a gate far below zero is zero
            for layer, keys, values in layers:
                x = layer.step(x, rotary, keys, values, positions.tolist())
        weight, bias = self._head
        x = _rms(x, self._norm, self.config.norm_eps)
        return torch.from_numpy(_linear(x, weight) + bias)

    def draw(self, logits: Tensor, ints: Tensor, floats: Tensor) -> Tensor:
        """`lm.draw.draw`."""
        lines = zip(logits.numpy(), ints.numpy(), floats.numpy(), strict=True)
        return torch.tensor([_draw(*line, self.config) for line in lines], dtype=torch.float64)


class _HostLayer:
    """`lm.Layer`, for one position of each row."""

    def __init__(self, layer: Layer, config: LMConfig) -> None:
        self.heads, self.kv_heads, self.head_dim = layer.heads, layer.kv_heads, layer.head_dim
        self.eps, self.wide = config.norm_eps, config.intermediate
        self.attn_norm, self.mlp_norm = (
            _numbers(norm.weight) for norm in (layer.attn_norm, layer.mlp_norm)
        )
        self.qkv, self.bias = _numbers(layer.qkv.weight), _numbers(layer.qkv.bias)
        self.out, self.gate_up, self.down = (
            _numbers(linear.weight) for linear in (layer.out, layer.gate_up, layer.down)
        )

    def step(
        self,
        x: Floats,
        rotary: tuple[Floats, Floats],
        keys: Floats,
        values: Floats,
        positions: list[int],
    ) -> Floats:
        """x [B, hidden], keys and values [rows, kv_heads, capacity, head_dim] -> [B, hidden]."""
        qkv = _linear(_rms(x, self.attn_norm, self.eps), self.qkv) + self.bias
        qkv = qkv.reshape(len(x), -1, self.head_dim)
        turned, v = qkv[:, : -self.kv_heads], qkv[:, -self.kv_heads :]
        half, (cos, sin) = self.head_dim // 2, rotary
        turned = turned * cos + np.concatenate((turned[..., half:], turned[..., :half]), -1) * sin
        q = turned[:, : self.heads].reshape(len(x), self.kv_heads, -1, self.head_dim)
        q *= self.head_dim**-0.5
        y = np.empty_like(q)
        for row, position in enumerate(positions):
            keys[row, :, position] = turned[row, self.heads :]
            values[row, :, position] = v[row]
            scores = q[row] @ keys[row, :, : position + 1].swapaxes(1, 2)
            np.matmul(_softmax(scores), values[row, :, : position + 1], out=y[row])
        x = x + _linear(y.reshape(len(x), -1), self.out)
        wide = _linear(_rms(x, self.mlp_norm, self.eps), self.gate_up)
        gate, up = wide[:, : self.wide], wide[:, self.wide :]
        return x + _linear(gate / (1.0 + np.exp(-gate)) * up, self.down)


def _numbers(weight: Tensor) -> Floats:
    """The same memory."""
    return weight.detach().numpy()


def _linear(x: Floats, weight: Floats) -> Floats:
    """x [B, n], weight [m, n] -> [B, m]; in this order the weights are not copied first."""
    return np.dot(weight, x.T).T


def _rms(x: Floats, weight: Floats, eps: float) -> Floats:
    mean = np.einsum("bh,bh->b", x, x)[:, None] / x.shape[1]
    return x / np.sqrt(mean + np.float32(eps)) * weight


def _softmax(x: Floats) -> Floats:
    y = np.exp(x - x.max(-1, keepdims=True))
    y /= y.sum(-1, keepdims=True)
    return y


def _draw(
    logits: Floats, line: NDArray[np.int64], floats: NDArray[np.float64], config: LMConfig
) -> tuple[int, float]:
    """`lm.draw.draw` of one row: logits [classes], its line [INTS] and [FLOATS]. Of a row that
    does not go on, or has no rules, nothing."""
    if not (line[ACTIVE] and line[TOP_K]) or not np.isfinite(logits).all():
        return -1, 0.0
    seed, step, min_tokens, top_k, window, bits = line[_RULES].tolist()
    top_p, max_repeats = floats[TOP_P], floats[MAX_REPEATS]
    allowed = logits * np.float32(floats[SCALE])
    for index, id_ in enumerate(config.control):
        if step < min_tokens or bits >> min(index, OTHERS) & 1:
            allowed[id_] = -np.inf
    likely = _most_likely(probs := _softmax(allowed), top_k)
    chosen = probs[likely].astype(np.float64)
    inside = chosen.cumsum() - chosen < top_p
    token = int(likely[_inverse_cdf(chosen[inside], hash32(seed, step, 0))])
    history = line[HISTORY:]
    newest = history[(step - 1 - np.arange(window)) % MAX_WINDOW]
    if np.count_nonzero(newest == token) >= window * max_repeats:
        allowed[token] = -np.inf
        token = _inverse_cdf(_softmax(allowed).astype(np.float64), hash32(seed, step, 1))
    history[step % MAX_WINDOW] = token
    line[TOKEN] = config.text_vocab + token
    line[STEP] += 1
    top = logits.max()
    return token, float(logits[token] - top - np.log(np.exp(logits - top).sum()))


def _most_likely(probs: Floats, count: int) -> NDArray[np.int64]:
    """Ids by falling probability, equal ones by rising id: see `sampling.nucleus`."""
    classes = len(probs)
    key = probs.view(np.int32).astype(np.int64) * classes + np.arange(classes - 1, -1, -1)
    if count < classes:
        key = np.partition(key, classes - count)[classes - count :]
    return classes - 1 - np.sort(key)[::-1] % classes


def _inverse_cdf(weights: NDArray[np.float64], bits: int) -> int:
    """The first index whose cumulated weight exceeds what 32 random bits say."""
    total = weights.cumsum()
    return int(np.argmax(total > bits / 2.0**32 * total[-1]))
