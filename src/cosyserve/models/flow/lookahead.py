"""CosyVoice3's flow encoder: each token sees a few tokens ahead, then becomes two frames."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyserve.contracts import FRAMES_PER_TOKEN
from cosyserve.models.config import LookaheadConfig
from cosyserve.models.flow.masks import valid


class PreLookahead(nn.Module):
    """Lets each token see `lookahead` tokens to its right."""

    def __init__(self, size: int, channels: int, lookahead: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(size, channels, lookahead + 1)
        self.conv2 = nn.Conv1d(channels, size, 3)

    def forward(self, x: Tensor, context: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
        """x [B, T, D], context [B, lookahead, D], left [B, channels, 2] -> [B, T, D], the next
        left."""
        y = torch.cat((x, context), dim=1).transpose(1, 2)
        y = F.leaky_relu(self.conv1(y))
        y = torch.cat((left, y), dim=2)
        return x + self.conv2(y).transpose(1, 2), y[:, :, -2:]

    def windows(self, x: Tensor) -> Tensor:
        """x [B, T, lookahead + 1, D]: each token and what it sees -> [B, T, D]."""
        weight = self.conv1.weight.transpose(1, 2).flatten(1)
        y = F.leaky_relu(F.linear(x.flatten(2), weight, self.conv1.bias)).transpose(1, 2)
        return x[:, :, 0] + self.conv2(F.pad(y, (2, 0))).transpose(1, 2)


class LookaheadEncoder(nn.Module):
    def __init__(self, config: LookaheadConfig) -> None:
        super().__init__()
        self.config = config
        self.pre_lookahead_layer = PreLookahead(config.size, config.channels, config.lookahead)

    def forward(
        self, tokens: Tensor, lengths: Tensor, inside: Tensor | None, size: int, streaming: bool
    ) -> Tensor:
        """As `UpsamplingConformer.forward`; there is no mask, so streaming makes no difference."""
        x = tokens * valid(lengths, tokens.shape[1])[..., None]
        x = F.pad(x, (0, 0, 0, size + self.config.lookahead - tokens.shape[1]))
        blank = x.new_zeros(len(x), self.config.channels, 2)
        x, _ = self.pre_lookahead_layer(x[:, :size], x[:, size:], blank)
        return x.repeat_interleave(FRAMES_PER_TOKEN, dim=1)
