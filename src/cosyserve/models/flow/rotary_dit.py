"""The CosyVoice3 flow estimator: a diffusion transformer whose frames see all earlier chunks.

Convolutions at its input and a rotation of the first head's channels tell it of positions. Module
names are those of the published checkpoint.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyserve.models.config import RotaryDiTConfig
from cosyserve.models.config.flow import POSITION_GROUPS
from cosyserve.models.flow.dit import attend, modulate, time_angles

FREQUENCIES = 128  # of the time
POSITION_KERNEL = 31
ROTARY_BASE = 10_000.0


def rotary_frequencies(head_dim: int, device: torch.device) -> Tensor:
    """[head_dim / 2]: how far each pair of channels turns from a position to the next."""
    exponent = torch.arange(0, head_dim, 2, device=device, dtype=torch.float32) / head_dim
    return ROTARY_BASE**-exponent


def rotary_table(positions: int, head_dim: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines of where each pair of channels has turned to: [positions, head_dim / 2]."""
    position = torch.arange(positions, device=device, dtype=torch.float32)
    turn = position[:, None] * rotary_frequencies(head_dim, device)
    return turn.cos(), turn.sin()


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [B, heads, T, D] with neighbouring channels of its first head turned, cos and sin [T, D/2].

    The published weights were trained so: the other heads know no positions but the input's.
    """
    even, odd = x[:, :1, :, 0::2], x[:, :1, :, 1::2]
    first = torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2)
    return torch.cat((first, x[:, 1:]), dim=1)


class PositionConvolutions(nn.Module):
    """Two causal convolutions over groups of channels."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.conv1 = nn.Sequential(
            nn.Conv1d(hidden, hidden, POSITION_KERNEL, groups=POSITION_GROUPS)
        )
        self.conv2 = nn.Sequential(
            nn.Conv1d(hidden, hidden, POSITION_KERNEL, groups=POSITION_GROUPS)
        )

    def forward(self, x: Tensor) -> Tensor:
        """x [B, T, C] -> [B, T, C]."""
        y = x.transpose(1, 2)
        for conv in (self.conv1, self.conv2):
            y = F.mish(conv(F.pad(y, (POSITION_KERNEL - 1, 0))))
        return y.transpose(1, 2)


class InputEmbedding(nn.Module):
    def __init__(self, hidden: int, mel: int) -> None:
        super().__init__()
        self.proj = nn.Linear(4 * mel, hidden)  # x, prompt, mu, speaker
        self.conv_pos_embed = PositionConvolutions(hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = self.proj(x)
        return x + self.conv_pos_embed(x)


class RotaryAttention(nn.Module):
    def __init__(self, config: RotaryDiTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        inner = config.heads * config.head_dim
        self.to_q = nn.Linear(config.hidden, inner)
        self.to_k = nn.Linear(config.hidden, inner)
        self.to_v = nn.Linear(config.hidden, inner)
        self.to_out = nn.Sequential(nn.Linear(inner, config.hidden))

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor], bias: Tensor | None) -> Tensor:
        q, k, v = (
            linear(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for linear in (self.to_q, self.to_k, self.to_v)
        )
        y, _ = attend(rotated(q, *rotary), rotated(k, *rotary), v, bias, None)
        return self.to_out(y)


class RotaryFeedForward(nn.Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.ff = nn.Sequential(
            nn.Sequential(nn.Linear(hidden, inner), nn.GELU(approximate="tanh")),
            nn.Identity(),
            nn.Linear(inner, hidden),
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.ff(x)
        return y


class Modulation(nn.Module):
    def __init__(self, hidden: int, parts: int) -> None:
        super().__init__()
        self.parts = parts
        self.linear = nn.Linear(hidden, parts * hidden)

    def forward(self, time: Tensor) -> tuple[Tensor, ...]:
        """time [B, C] -> so many of [B, 1, C]."""
        return self.linear(F.silu(time))[:, None].chunk(self.parts, dim=-1)


class RotaryBlock(nn.Module):
    def __init__(self, config: RotaryDiTConfig) -> None:
        super().__init__()
        self.attn_norm = Modulation(config.hidden, 6)
        self.attn = RotaryAttention(config)
        self.ff = RotaryFeedForward(config.hidden, int(config.mlp_ratio * config.hidden))

    def forward(
        self, x: Tensor, time: Tensor, rotary: tuple[Tensor, Tensor], bias: Tensor | None
    ) -> Tensor:
        shift, scale, gate, ff_shift, ff_scale, ff_gate = self.attn_norm(time)
        x = x + gate * self.attn(modulate(x, shift, scale), rotary, bias)
        return x + ff_gate * self.ff(modulate(x, ff_shift, ff_scale))


class RotaryDiT(nn.Module):
    def __init__(self, config: RotaryDiTConfig, mel: int) -> None:
        super().__init__()
        self.config = config
        hidden = config.hidden
        self.time_embed = nn.ModuleDict(
            {
                "time_mlp": nn.Sequential(
                    nn.Linear(2 * FREQUENCIES, hidden), nn.SiLU(), nn.Linear(hidden, hidden)
                )
            }
        )
        self.input_embed = InputEmbedding(hidden, mel)
        self.transformer_blocks = nn.ModuleList(RotaryBlock(config) for _ in range(config.depth))
        self.norm_out = Modulation(hidden, 2)
        self.proj_out = nn.Linear(hidden, mel)

    def forward(
        self,
        x: Tensor,
        mu: Tensor,
        speaker: Tensor,
        prompt: Tensor,
        t: Tensor,
        bias: Tensor | None,
    ) -> Tensor:
        """x, mu, prompt [B, mel, T], speaker [B, mel], t [B] -> [B, mel, T].

        bias: what `masks.attention_bias` gives.
        """
        time = self.embed_time(t, x.dtype)
        x = torch.cat((x, prompt, mu, speaker[..., None].expand_as(x)), dim=1).transpose(1, 2)
        x = self.input_embed(x)
        cos, sin = rotary_table(x.shape[1], self.config.head_dim, x.device)
        rotary = cos.to(x.dtype), sin.to(x.dtype)
        for block in self.transformer_blocks:
            x = block(x, time, rotary, bias)
        scale, shift = self.norm_out(time)
        return self.proj_out(modulate(x, shift, scale)).transpose(1, 2)

    def embed_time(self, t: Tensor, dtype: torch.dtype) -> Tensor:
        """t [B] -> [B, hidden]."""
        angle = time_angles(t, FREQUENCIES, FREQUENCIES - 1)
        time: Tensor = self.time_embed["time_mlp"](
            torch.cat((angle.sin(), angle.cos()), dim=-1).to(dtype)
        )
        return time
