"""Model parts whose weights follow the fill rule (`fill.py`), through the loaders' own naming."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from cosyserve.checkpoints.published import keys as keys
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
from cosyserve.models.flow.flow import Flow
from cosyserve.models.lm.lm import SpeechLM
from cosyserve.models.vocoder.hift import HiFT

Fill = Callable[[str, tuple[int, ...], int], np.ndarray]


def filled(shapes: keys.Shapes, salt: int, fill: Fill) -> keys.State:
    """The rotary frequencies of a flow are not filled: they are a formula."""
    state = {
        key: torch.from_numpy(fill(key, shape, salt))
        for key, shape in shapes.items()
        if key != keys.ROTARY
    }
    if keys.ROTARY in shapes:
        (half,) = shapes[keys.ROTARY]
        state[keys.ROTARY] = 10_000.0 ** -(torch.arange(half) / half)
    return state


def lm_config(c: dict) -> LMConfig:
    return LMConfig(
        hidden=c["hidden_size"],
        intermediate=c["intermediate_size"],
        layers=c["num_hidden_layers"],
        heads=c["num_attention_heads"],
        kv_heads=c["num_key_value_heads"],
        text_vocab=c["vocab_size"],
        speech_tokens=c["speech_tokens"],
        norm_eps=c["rms_eps"],
        rope_theta=c["rope_theta"],
        kind="cosyvoice3" if "extra_ids" in c else "cosyvoice2",
    )


def filled_lm(config: LMConfig, salt: int, fill: Fill) -> SpeechLM:
    shapes = keys.lm_shapes(config)
    del shapes[keys.LM_HEAD]
    with torch.device("meta"):
        lm = SpeechLM(config)
    lm.load_state_dict(keys.lm_state(config, filled(shapes, salt, fill)), assign=True)
    return lm.eval()


def unet_flow_config(c: dict) -> FlowConfig:
    encoder = EncoderConfig(
        size=c["d"],
        heads=c["heads"],
        feed_forward=c["ff"],
        blocks=c["blocks"],
        up_blocks=c["up_blocks"],
        lookahead=c["lookahead"],
        chunk=c["chunk_tokens"],
    )
    estimator = UNetConfig(
        channels=c["ch"], heads=c["nh"], head_dim=c["hd"], blocks=c["nb"], mid=c["mid"]
    )
    return FlowConfig(
        encoder,
        estimator,
        speech_tokens=c["vocab"],
        mel=c["mel"],
        speaker=c["spk"],
        steps=c["steps"],
        guidance=c["cfg"],
    )


def dit_flow_config(c: dict) -> FlowConfig:
    encoder = EncoderConfig(
        size=c["d"],
        heads=c["heads"],
        feed_forward=c["ff"],
        blocks=c["blocks"],
        up_blocks=c["up"],
        lookahead=c["lookahead"],
    )
    estimator = DiTConfig(
        hidden=c["hidden"],
        depth=c["depth"],
        heads=c["nh"],
        head_dim=c["hd"],
        mlp_ratio=c["mlp_ratio"],
        frequency_size=c["freq_embed"],
    )
    return FlowConfig(encoder, estimator, steps=c["steps"], guidance=c["cfg"])


def cosyvoice3_flow_config(c: dict) -> FlowConfig:
    return FlowConfig(
        LookaheadConfig(size=c["mel"], channels=c["pl"], lookahead=c["lookahead"]),
        RotaryDiTConfig(
            hidden=c["dim"], depth=c["depth"], heads=c["heads"], head_dim=c["dh"], mlp_ratio=c["ff"]
        ),
        mel=c["mel"],
        steps=c["steps"],
        guidance=c["cfg"],
    )


def filled_flow(config: FlowConfig, salt: int, fill: Fill) -> Flow:
    with torch.device("meta"):
        flow = Flow(config)
    state = keys.flow_state(config, filled(keys.flow_shapes(config), salt, fill))
    flow.load_state_dict(state, assign=True)
    return flow.eval()


def vocoder_config(c: dict) -> VocoderConfig:
    return VocoderConfig(
        mel=c["in_channels"],
        base=c["base"],
        f0_channels=c["f0"],
        harmonics=c["nb_harmonics"],
        sample_rate=c["sampling_rate"],
        sine_amplitude=c["nsf_alpha"],
        noise_sigma=c["nsf_sigma"],
        voiced_above=c["nsf_voiced_threshold"],
        upsample_rates=tuple(c["upsample_rates"]),
        upsample_kernels=tuple(c["upsample_kernel_sizes"]),
        n_fft=c["istft_params"]["n_fft"],
        hop=c["istft_params"]["hop_len"],
        kernels=tuple(c["resblock_kernel_sizes"]),
        dilations=tuple(tuple(d) for d in c["resblock_dilation_sizes"]),
        source_kernels=tuple(c["source_resblock_kernel_sizes"]),
        source_dilations=tuple(tuple(d) for d in c["source_resblock_dilation_sizes"]),
        slope=c["lrelu_slope"],
        limit=c["audio_limit"],
        causal="conv_pre_look_right" in c,
    )


def filled_vocoder(config: VocoderConfig, salt: int, fill: Fill) -> HiFT:
    with torch.device("meta"):
        vocoder = HiFT(config)
    state = keys.vocoder_state(filled(keys.vocoder_shapes(config), salt, fill))
    vocoder.load_state_dict(state, assign=True)
    return vocoder.eval()
