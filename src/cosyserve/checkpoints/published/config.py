"""The sizes of a published model, out of its yaml and JSON files.

What a file leaves out is what the published models have; nonsense is an error about the file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cosyserve.checkpoints.config_data import (
    MAX_DEPTH,
    as_checkpoint_error,
    check_float,
    check_int,
    check_list,
)
from cosyserve.checkpoints.plain_files import read_json
from cosyserve.checkpoints.published import yaml_data
from cosyserve.models.config import (
    DiTConfig,
    EncoderConfig,
    FlowConfig,
    LMConfig,
    LookaheadConfig,
    RotaryDiTConfig,
    UNetConfig,
    VocoderConfig,
)
from cosyserve.models.config.lm import LMKind
from cosyserve.models.vocoder.layers import PRE_AHEAD

Encoder = EncoderConfig | LookaheadConfig
Estimator = UNetConfig | DiTConfig | RotaryDiTConfig


class ConfigReader:
    """Reads checked numbers of one file by their names; a default replaces what the file lacks."""

    def __init__(self, file: Path, look_up: Callable[[str], Any]) -> None:
        self.file = file
        self.look_up = look_up

    @classmethod
    def of_json(cls, file: Path) -> ConfigReader:
        return cls(file, read_json(file).get)

    @classmethod
    def of_yaml(cls, file: Path) -> ConfigReader:
        data = yaml_data.read(file)
        return cls(file, lambda path: yaml_data.get(data, path))

    def size(self, name: str, default: int | None = None) -> int:
        return check_int(*self._look_up(name, default))

    def depth(self, name: str, default: int | None = None) -> int:
        return check_int(*self._look_up(name, default), MAX_DEPTH)

    def number(self, name: str, default: float | None = None) -> float:
        return check_float(*self._look_up(name, default))

    def sizes(self, name: str) -> tuple[int, ...]:
        return self._sizes(*self._look_up(name))

    def rows(self, name: str) -> tuple[tuple[int, ...], ...]:
        value, where = self._look_up(name)
        return tuple(self._sizes(row, where) for row in check_list(value, where))

    @staticmethod
    def _sizes(value: Any, where: str) -> tuple[int, ...]:
        return tuple(check_int(item, where) for item in check_list(value, where))

    def _look_up(self, name: str, default: float | None = None) -> tuple[Any, str]:
        value = self.look_up(name)
        return default if value is None else value, f"{self.file}: '{name}'"


def qwen(file: Path, speech_tokens: int, kind: LMKind = "cosyvoice2") -> LMConfig:
    reader = ConfigReader.of_json(file)
    with as_checkpoint_error(str(file)):
        return LMConfig(
            hidden=reader.size("hidden_size"),
            intermediate=reader.size("intermediate_size"),
            layers=reader.depth("num_hidden_layers"),
            heads=reader.size("num_attention_heads"),
            kv_heads=reader.size("num_key_value_heads"),
            text_vocab=reader.size("vocab_size"),
            speech_tokens=speech_tokens,
            norm_eps=reader.number("rms_norm_eps", 1e-6),
            rope_theta=reader.number("rope_theta", 1e6),
            kind=kind,
        )


def conformer(reader: ConfigReader) -> EncoderConfig:
    lookahead = reader.size("flow.encoder.pre_lookahead_len", 3)
    return EncoderConfig(
        size=reader.size("flow.encoder.output_size"),
        heads=reader.size("flow.encoder.attention_heads"),
        feed_forward=reader.size("flow.encoder.linear_units"),
        blocks=reader.depth("flow.encoder.num_blocks"),
        up_blocks=reader.depth("flow.encoder.num_up_blocks", 4),
        lookahead=reader.size("flow.pre_lookahead_len", lookahead),
        chunk=reader.size("flow.encoder.static_chunk_size", 25),
    )


def lookahead(reader: ConfigReader) -> LookaheadConfig:
    layer, ahead = "flow.pre_lookahead_layer", reader.size("flow.pre_lookahead_len", 3)
    return LookaheadConfig(
        size=reader.size(f"{layer}.in_channels", 80),
        channels=reader.size(f"{layer}.channels", 1024),
        lookahead=reader.size(f"{layer}.pre_lookahead_len", ahead),
        chunk=reader.size("chunk_size", 25),
    )


def flow(reader: ConfigReader, encoder: Encoder, estimator: Estimator) -> FlowConfig:
    guidance = reader.number("flow.decoder.inference_cfg_rate", 0.7)
    return FlowConfig(
        encoder,
        estimator,
        speech_tokens=reader.size("flow.vocab_size"),
        mel=reader.size("flow.output_size"),
        speaker=reader.size("flow.spk_embed_dim", 192),
        guidance=reader.number("flow.decoder.cfm_params.content.inference_cfg_rate", guidance),
    )


def unet(reader: ConfigReader) -> UNetConfig:
    (channels,) = reader.sizes("flow.decoder.estimator.channels")
    return UNetConfig(
        channels=channels,
        heads=reader.size("flow.decoder.estimator.num_heads"),
        head_dim=reader.size("flow.decoder.estimator.attention_head_dim"),
        blocks=reader.depth("flow.decoder.estimator.n_blocks"),
        mid=reader.depth("flow.decoder.estimator.num_mid_blocks"),
    )


def dit(reader: ConfigReader) -> DiTConfig:
    return DiTConfig(
        hidden=reader.size("flow.decoder.estimator.hidden_size"),
        depth=reader.depth("flow.decoder.estimator.depth"),
        heads=reader.size("flow.decoder.estimator.num_heads"),
        head_dim=reader.size("flow.decoder.estimator.head_dim"),
        mlp_ratio=reader.number("flow.decoder.estimator.mlp_ratio", 4.0),
    )


def rotary_dit(reader: ConfigReader) -> RotaryDiTConfig:
    estimator = "flow.decoder.estimator"
    return RotaryDiTConfig(
        hidden=reader.size(f"{estimator}.dim"),
        depth=reader.depth(f"{estimator}.depth"),
        heads=reader.size(f"{estimator}.heads"),
        head_dim=reader.size(f"{estimator}.dim_head", 64),
        mlp_ratio=reader.number(f"{estimator}.ff_mult", 2.0),
    )


def vocoder(reader: ConfigReader, *, causal: bool) -> VocoderConfig:
    """Step-Audio2 folders don't describe their vocoder: it is CosyVoice2's."""
    if reader.look_up("hift") is None:
        return VocoderConfig()
    if causal and (ahead := reader.size("hift.conv_pre_look_right", PRE_AHEAD)) != PRE_AHEAD:
        raise ValueError(f"conv_pre_look_right is {ahead}, and only {PRE_AHEAD} is known")
    return VocoderConfig(
        mel=reader.size("hift.in_channels"),
        base=reader.size("hift.base_channels"),
        f0_channels=reader.size("hift.f0_predictor.cond_channels"),
        harmonics=reader.size("hift.nb_harmonics"),
        sample_rate=reader.size("hift.sampling_rate"),
        sine_amplitude=reader.number("hift.nsf_alpha"),
        noise_sigma=reader.number("hift.nsf_sigma"),
        voiced_above=reader.number("hift.nsf_voiced_threshold"),
        upsample_rates=reader.sizes("hift.upsample_rates"),
        upsample_kernels=reader.sizes("hift.upsample_kernel_sizes"),
        n_fft=reader.size("hift.istft_params.n_fft"),
        hop=reader.size("hift.istft_params.hop_len"),
        kernels=reader.sizes("hift.resblock_kernel_sizes"),
        dilations=reader.rows("hift.resblock_dilation_sizes"),
        source_kernels=reader.sizes("hift.source_resblock_kernel_sizes"),
        source_dilations=reader.rows("hift.source_resblock_dilation_sizes"),
        slope=reader.number("hift.lrelu_slope"),
        limit=reader.number("hift.audio_limit"),
        causal=causal,
    )
