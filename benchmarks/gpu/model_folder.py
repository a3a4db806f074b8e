"""A model folder of random weights, for servers that figures start."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.listeners import TOKENS_PER_LETTER, VOICES
from cosyserve.checkpoints import native
from cosyserve.checkpoints.parts import Parts
from cosyserve.models.config import LEVELS, CamPlusConfig, S3Config
from cosyserve.models.encoders.campplus import CamPlus
from cosyserve.models.encoders.s3 import S3Tokenizer
from cosyserve.text import byte_tokenizer
from cosyserve.voices.enroll import with_short_first_hop
from cosyserve.voices.file import save_voice


def write_model(bench: Bench, folder: Path) -> None:
    """Utterances are as long as their texts say. The encoders, which Triton wants, are small."""
    assert bench.config.lm
    assert bench.config.flow
    lm = replace(bench.config.lm, speech_per_text=(TOKENS_PER_LETTER, 2 * TOKENS_PER_LETTER))
    digits = round(math.log(bench.config.flow.speech_tokens, LEVELS))
    tokenizer = S3Config(state=64, heads=1, layers=1, code_dims=digits)
    speaker = CamPlusConfig(
        head_channels=4, init_channels=16, growth=8, bn_size=2, block_layers=(2, 2, 2)
    )
    modules = {
        "lm": bench.lm,
        "flow": bench.flow,
        "vocoder": bench.vocoder,
        "speech_tokenizer": S3Tokenizer(tokenizer),
        "speaker_encoder": CamPlus(speaker),
    }
    states = {
        name: {key: weight.cpu().clone() for key, weight in module.state_dict().items()}
        for name, module in modules.items()
    }
    head = states["lm"]  # an end is drawn as soon as it is allowed
    if "head.bias" in head:
        head["head.bias"][lm.eos] = 100.0
    else:  # whatever the state, one of two opposite ends is far ahead
        head["head.weight"][lm.stops[0]] = 100.0 * head["head.weight"][lm.eos]
        head["head.weight"][lm.stops[1]] = -head["head.weight"][lm.stops[0]]
    voices = []
    for number in range(VOICES):
        voice = bench.random_voice(number, 60 + 30 * number)
        voices.append(folder.parent / f"voice{number}.safetensors")
        voice = with_short_first_hop(voice)  # as every voice that was learnt
        save_voice(replace(voice, prompt_text="It was a fine day."), voices[-1])
    config = replace(
        bench.config, lm=lm, speech_tokenizer=tokenizer, speaker_encoder=speaker, speech=False
    )
    native.write(Parts(config, states, tokenizer=byte_tokenizer(), voices=tuple(voices)), folder)
