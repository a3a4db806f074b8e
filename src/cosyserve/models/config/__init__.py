"""Every size of a model, as frozen dataclasses; the defaults are CosyVoice2-0.5B.

A config that exists can be built: sizes that contradict each other are a ValueError.
"""

from cosyserve.models.config.encoders import LEVELS, CamPlusConfig, S3Config
from cosyserve.models.config.flow import (
    DiTConfig,
    EncoderConfig,
    FlowConfig,
    LookaheadConfig,
    RotaryDiTConfig,
    UNetConfig,
)
from cosyserve.models.config.lm import LMConfig
from cosyserve.models.config.model import ModelConfig
from cosyserve.models.config.vocoder import VocoderConfig

__all__ = [
    "LEVELS",
    "CamPlusConfig",
    "DiTConfig",
    "EncoderConfig",
    "FlowConfig",
    "LMConfig",
    "LookaheadConfig",
    "ModelConfig",
    "RotaryDiTConfig",
    "S3Config",
    "UNetConfig",
    "VocoderConfig",
]
