"""The golden cases of the prompt encoders: every output, from config, inputs and filled weights.

Knows no expected value and no tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from cosyserve.models.config import CamPlusConfig, S3Config
from cosyserve.models.encoders.campplus import CamPlus
from cosyserve.models.encoders.s3 import S3Tokenizer, bounded

Arrays = dict[str, npt.NDArray[Any]]
Fill = Callable[[str, tuple[int, ...], int], npt.NDArray[Any]]


def filled(module: nn.Module, salt: int, fill: Fill) -> nn.Module:
    """The module with every weight made by `fill`, ready to run."""
    module.load_state_dict(
        {
            key: torch.from_numpy(np.asarray(fill(key, tuple(value.shape), salt)))
            for key, value in module.state_dict().items()
        }
    )
    return module.eval()


@torch.inference_mode()
def s3_case(config: dict[str, Any], arrays: Arrays, salt: int, fill: Fill) -> Arrays:
    tokenizer = S3Tokenizer(
        S3Config(
            mels=config["n_mels"],
            state=config["n_audio_state"],
            heads=config["n_audio_head"],
            layers=config["n_audio_layer"],
            fsmn_kernel=config["fsmn_kernel"],
            attn_norm_eps=config.get("attn_ln_eps", 1e-6),
        )
    )
    filled(tokenizer, salt, fill)
    mel, lengths = torch.from_numpy(arrays["mel"]), torch.from_numpy(arrays["lengths"])
    hidden, code_lengths = tokenizer.hidden(mel, lengths)
    pre_quant = tokenizer.pre_quant(hidden)
    valid = torch.arange(hidden.shape[1]) < code_lengths[:, None]
    margin = (bounded(pre_quant[valid]).abs() - 0.5).abs().min()
    codes_single, _ = tokenizer(mel[:1, :, : int(lengths[0])], lengths[:1])
    return {
        "codes": tokenizer.codes(pre_quant).numpy(),
        "codes_len": code_lengths.numpy(),
        "pre_quant": pre_quant.numpy(),
        "hidden": hidden[:, :: int(arrays["frame_step"])].numpy(),
        "codes_single": codes_single.numpy(),
        "round_margin": margin.numpy(),
    }


@torch.inference_mode()
def campplus_case(config: dict[str, Any], arrays: Arrays, salt: int, fill: Fill) -> Arrays:
    encoder = CamPlus(CamPlusConfig(feat=config["feat"], embedding=config["emb"]))
    filled(encoder, salt, fill)
    x0, x1 = torch.from_numpy(arrays["x0"]), torch.from_numpy(arrays["x1"])
    head = encoder.head(x0.transpose(1, 2), torch.ones(x0.shape[0], 1, x0.shape[1]))
    return {
        "y0": encoder(x0).numpy(),
        "y1": encoder(x1).numpy(),
        "head0": head[:, :, ::8].numpy(),
    }
