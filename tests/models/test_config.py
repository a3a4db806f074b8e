from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.checkpoints.config_data import from_json, to_json
from cosyserve.errors import CheckpointError
from cosyserve.models.config import (
    CamPlusConfig,
    DiTConfig,
    EncoderConfig,
    FlowConfig,
    LMConfig,
    ModelConfig,
    S3Config,
    VocoderConfig,
)

FULL = ModelConfig(
    lm=LMConfig(),
    flow=FlowConfig(estimator=DiTConfig()),
    vocoder=VocoderConfig(),
    speech_tokenizer=S3Config(),
    speaker_encoder=CamPlusConfig(),
)
Path = tuple[str | int, ...]


def paths(value: Any, path: Path = ()) -> list[Path]:
    """Where a value stands inside JSON data, for all values."""
    children = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path] + [p for key, child in children for p in paths(child, (*path, key))]


def changed(data: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    data[path[0]] = changed(data[path[0]], path[1:], value)
    return data


DATA = json.loads(json.dumps(to_json(FULL)))


@pytest.mark.parametrize("config", [FULL, ModelConfig(), replace(FULL, flow=FlowConfig())])
def test_json_round_trip(config: ModelConfig) -> None:
    assert from_json(json.loads(json.dumps(to_json(config))), "f") == config


@pytest.mark.parametrize("wrong", ["x", -1, 10**12, 10**400, [], [[]], float("nan"), True])
def test_every_value_is_checked(wrong: Any) -> None:
    for path in paths(DATA):
        data = changed(json.loads(json.dumps(DATA)), path, wrong)
        right: dict[str, type] = {"name": str, "family": str, "fingerprint": str}
        right |= dict.fromkeys(("speech", "takes_pieces", "causal", "takes_silence"), bool)
        if path and right.get(str(path[-1])) is type(wrong):
            continue
        with pytest.raises(CheckpointError, match=r"^config\.json: model") as caught:
            from_json(data, "config.json: model")
        assert len(str(caught.value)) < 300
        assert not path or str(path[0]) in str(caught.value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["lm", "flow", "encoder", "estimator", "kind", "heads", "x"]), inner
            )
        ),
    )
)
def test_any_json_is_a_config_or_one_error(data: Any) -> None:
    with contextlib.suppress(CheckpointError):
        assert isinstance(from_json(data, "f"), ModelConfig)


def test_an_unknown_key_is_named() -> None:
    with pytest.raises(CheckpointError, match=r"f\.lm: unknown key 'hiddn'"):
        from_json({"lm": {"hiddn": 3}}, "f")


@pytest.mark.parametrize(
    "build",
    [
        lambda: LMConfig(heads=13),
        lambda: LMConfig(kv_heads=3),
        lambda: LMConfig(hidden=7, heads=7, kv_heads=1),
        lambda: EncoderConfig(heads=7),
        lambda: DiTConfig(frequency_size=3),
        lambda: DiTConfig(mlp_ratio=0.0),
        lambda: VocoderConfig(upsample_rates=(8, 5)),
        lambda: VocoderConfig(base=4),
        lambda: VocoderConfig(kernels=(3, 7, 10)),
        lambda: VocoderConfig(upsample_kernels=(16, 10, 7)),
        lambda: VocoderConfig(n_fft=15),
        lambda: ModelConfig(lm=LMConfig(speech_tokens=10), flow=FlowConfig()),
        lambda: ModelConfig(flow=FlowConfig(mel=40)),
        lambda: ModelConfig(vocoder=VocoderConfig(sample_rate=22_050)),
        lambda: ModelConfig(vocoder=VocoderConfig(hop=8)),
        lambda: ModelConfig(speech_tokenizer=S3Config(mels=80)),
        lambda: ModelConfig(speech_tokenizer=S3Config(heads=7)),
        lambda: ModelConfig(speech_tokenizer=S3Config(code_dims=7), flow=FlowConfig()),
        lambda: ModelConfig(speaker_encoder=CamPlusConfig(feat=40)),
        lambda: ModelConfig(speaker_encoder=CamPlusConfig(embedding=80), flow=FlowConfig()),
        lambda: ModelConfig(speaker_encoder=CamPlusConfig(dilations=(1,))),
    ],
)
def test_sizes_that_contradict_each_other_are_no_config(build: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        build()


def test_contradictions_in_a_file_name_the_file() -> None:
    data = asdict(ModelConfig(lm=LMConfig()))
    data["lm"]["heads"] = 13
    with pytest.raises(CheckpointError, match=r"f\.lm: sizes that no model can have: hidden"):
        from_json(data, "f")
