"""The sizes of a published model, out of its yaml and JSON files.

Knows no weights. What a file leaves out is what the published models have; nonsense is an error
about the file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cosyserve.checkpoints.config_data import MAX_DEPTH, items, real, sensible, whole
from cosyserve.checkpoints.plain_files import read_json
from cosyserve.checkpoints.published import yaml_data
from cosyserve.models.config import (
    DiTConfig,
    EncoderConfig,
    FlowConfig,
    LMConfig,
    UNetConfig,
    VocoderConfig,
)


class Numbers:
    """The numbers of one file, by name. A default stands in for what the file leaves out."""

    def __init__(self, file: Path, look_up: Callable[[str], Any]) -> None:
        self.file = file
        self.look_up = look_up

    @classmethod
    def of_json(cls, file: Path) -> Numbers:
        return cls(file, read_json(file).get)

    @classmethod
    def of_yaml(cls, file: Path) -> Numbers:
        data = yaml_data.read(file)
        return cls(file, lambda path: yaml_data.get(data, path))

    def size(self, name: str, default: int | None = None) -> int:
        return whole(*self._found(name, default))

    def depth(self, name: str, default: int | None = None) -> int:
        return whole(*self._found(name, default), MAX_DEPTH)

    def real(self, name: str, default: float | None = None) -> float:
        return real(*self._found(name, default))

    def sizes(self, name: str) -> tuple[int, ...]:
        return self._sizes(*self._found(name))

    def rows(self, name: str) -> tuple[tuple[int, ...], ...]:
        value, where = self._found(name)
        return tuple(self._sizes(row, where) for row in items(value, where))

    @staticmethod
    def _sizes(value: Any, where: str) -> tuple[int, ...]:
        return tuple(whole(item, where) for item in items(value, where))

    def _found(self, name: str, default: float | None = None) -> tuple[Any, str]:
        value = self.look_up(name)
        return default if value is None else value, f"{self.file}: '{name}'"


def qwen(file: Path, speech_tokens: int) -> LMConfig:
    numbers = Numbers.of_json(file)
    with sensible(str(file)):
        return LMConfig(
            hidden=numbers.size("hidden_size"),
            intermediate=numbers.size("intermediate_size"),
            layers=numbers.depth("num_hidden_layers"),
            heads=numbers.size("num_attention_heads"),
            kv_heads=numbers.size("num_key_value_heads"),
            text_vocab=numbers.size("vocab_size"),
            speech_tokens=speech_tokens,
            norm_eps=numbers.real("rms_norm_eps", 1e-6),
            rope_theta=numbers.real("rope_theta", 1e6),
        )


def flow(numbers: Numbers, estimator: UNetConfig | DiTConfig) -> FlowConfig:
    guidance = numbers.real("flow.decoder.inference_cfg_rate", 0.7)
    lookahead = numbers.size("flow.encoder.pre_lookahead_len", 3)
    encoder = EncoderConfig(
        size=numbers.size("flow.encoder.output_size"),
        heads=numbers.size("flow.encoder.attention_heads"),
        feed_forward=numbers.size("flow.encoder.linear_units"),
        blocks=numbers.depth("flow.encoder.num_blocks"),
        up_blocks=numbers.depth("flow.encoder.num_up_blocks", 4),
        lookahead=numbers.size("flow.pre_lookahead_len", lookahead),
        chunk=numbers.size("flow.encoder.static_chunk_size", 25),
    )
    return FlowConfig(
        encoder,
        estimator,
        speech_tokens=numbers.size("flow.vocab_size"),
        mel=numbers.size("flow.output_size"),
        speaker=numbers.size("flow.spk_embed_dim", 192),
        guidance=numbers.real("flow.decoder.cfm_params.content.inference_cfg_rate", guidance),
    )


def unet(numbers: Numbers) -> UNetConfig:
    (channels,) = numbers.sizes("flow.decoder.estimator.channels")
    return UNetConfig(
        channels=channels,
        heads=numbers.size("flow.decoder.estimator.num_heads"),
        head_dim=numbers.size("flow.decoder.estimator.attention_head_dim"),
        blocks=numbers.depth("flow.decoder.estimator.n_blocks"),
        mid=numbers.depth("flow.decoder.estimator.num_mid_blocks"),
    )


def dit(numbers: Numbers) -> DiTConfig:
    return DiTConfig(
        hidden=numbers.size("flow.decoder.estimator.hidden_size"),
        depth=numbers.depth("flow.decoder.estimator.depth"),
        heads=numbers.size("flow.decoder.estimator.num_heads"),
        head_dim=numbers.size("flow.decoder.estimator.head_dim"),
        mlp_ratio=numbers.real("flow.decoder.estimator.mlp_ratio", 4.0),
    )


def vocoder(numbers: Numbers) -> VocoderConfig:
    """Step-Audio2 folders don't describe their vocoder: it is CosyVoice2's."""
    if numbers.look_up("hift") is None:
        return VocoderConfig()
    return VocoderConfig(
        mel=numbers.size("hift.in_channels"),
        base=numbers.size("hift.base_channels"),
        f0_channels=numbers.size("hift.f0_predictor.cond_channels"),
        harmonics=numbers.size("hift.nb_harmonics"),
        sample_rate=numbers.size("hift.sampling_rate"),
        sine_amplitude=numbers.real("hift.nsf_alpha"),
        noise_sigma=numbers.real("hift.nsf_sigma"),
        voiced_above=numbers.real("hift.nsf_voiced_threshold"),
        upsample_rates=numbers.sizes("hift.upsample_rates"),
        upsample_kernels=numbers.sizes("hift.upsample_kernel_sizes"),
        n_fft=numbers.size("hift.istft_params.n_fft"),
        hop=numbers.size("hift.istft_params.hop_len"),
        kernels=numbers.sizes("hift.resblock_kernel_sizes"),
        dilations=numbers.rows("hift.resblock_dilation_sizes"),
        source_kernels=numbers.sizes("hift.source_resblock_kernel_sizes"),
        source_dilations=numbers.rows("hift.source_resblock_dilation_sizes"),
        slope=numbers.real("hift.lrelu_slope"),
        limit=numbers.real("hift.audio_limit"),
    )
