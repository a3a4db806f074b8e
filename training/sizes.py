"""Sizes of the model that the recipes train, and of a toy of the same shape for tests.

Knows no training.
"""

from __future__ import annotations

from cosyserve.contracts import Sampling
from cosyserve.models.config import (
    LEVELS,
    CamPlusConfig,
    EncoderConfig,
    FlowConfig,
    LMConfig,
    ModelConfig,
    S3Config,
    UNetConfig,
    VocoderConfig,
)

CODE_DIMS = 7  # 2187 speech tokens: what training.codes has to say
CODES = LEVELS**CODE_DIMS
TEXT_TOKENS = 108  # room for phoneme marks, special tokens not counted
SPEECH_PER_TEXT = (0.9, 6.0)  # tokens per phoneme mark: English has 1.3
PAUSE = 0.24  # seconds, six tokens: the corpus is cut 0.08 s behind the last sound
SPECIAL_TOKENS = 20
EMBEDDING = 128

NANO = ModelConfig(
    name="cosyserve-nano",
    sampling=Sampling(top_p=0.8, max_repeats=0.6),
    lm=LMConfig(
        hidden=256,
        intermediate=640,
        layers=6,
        heads=4,
        kv_heads=2,
        text_vocab=TEXT_TOKENS + SPECIAL_TOKENS,
        speech_tokens=CODES,
        rope_theta=1e4,
        speech_per_text=SPEECH_PER_TEXT,
        pause=PAUSE,
        takes_pieces=False,
    ),
    flow=FlowConfig(
        encoder=EncoderConfig(size=192, heads=4, feed_forward=512, blocks=3, up_blocks=2),
        estimator=UNetConfig("unet", channels=192, heads=4, head_dim=48, blocks=1, mid=5),
        speech_tokens=CODES,
        speaker=EMBEDDING,
    ),
    vocoder=VocoderConfig(base=256, f0_channels=128),
    speech_tokenizer=S3Config(state=160, heads=4, layers=4, code_dims=CODE_DIMS),
    speaker_encoder=CamPlusConfig(
        embedding=EMBEDDING,
        head_channels=8,
        init_channels=64,
        growth=16,
        bn_size=2,
        block_layers=(4, 8, 6),
        takes_silence=False,  # the corpus has none that is long
    ),
)

TOY = ModelConfig(
    name="toy",
    lm=LMConfig(
        32,
        64,
        2,
        2,
        1,
        text_vocab=TEXT_TOKENS + SPECIAL_TOKENS,
        speech_tokens=CODES,
        rope_theta=1e4,
    ),
    flow=FlowConfig(
        encoder=EncoderConfig(size=16, heads=2, feed_forward=32, blocks=1, up_blocks=1),
        estimator=UNetConfig("unet", channels=16, heads=2, head_dim=8, blocks=1, mid=1),
        speech_tokens=CODES,
        speaker=16,
        steps=2,
    ),
    vocoder=VocoderConfig(base=16, f0_channels=16),
    speech_tokenizer=S3Config(state=32, heads=1, layers=1, code_dims=CODE_DIMS),
    speaker_encoder=CamPlusConfig(
        embedding=16, head_channels=2, init_channels=8, growth=4, bn_size=2, block_layers=(1, 1, 1)
    ),
)
