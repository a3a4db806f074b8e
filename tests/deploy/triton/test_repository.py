"""Rendered repositories: the original's tensors, nothing unfilled, and a check that sees damage."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from cosyserve.checkpoints.prepare import prepare
from cosyserve.deploy.triton.check import check
from cosyserve.deploy.triton.repository import render
from cosyserve.deploy.triton.settings import TritonSettings
from cosyserve.errors import CheckpointError, InputError

ORIGINAL = {
    "cosyvoice2": "reference_wav FP32 [-1], reference_wav_len INT32 [1], reference_text STRING [1],"
    " target_text STRING [1] -> waveform FP32 [-1]",
    "audio_tokenizer": "reference_wav FP32 [-1], reference_wav_len INT32 [1]"
    " -> prompt_speech_tokens INT32 [-1]",
    "speaker_embedding": "reference_wav FP32 [-1] -> prompt_spk_embedding FP16 [-1]",
    "token2wav": "target_speech_tokens INT32 [-1], prompt_speech_tokens INT32 [-1],"
    " prompt_speech_feat FP16 [-1, 80], prompt_spk_embedding FP16 [-1], token_offset INT32 [1],"
    " finalize BOOL [1] -> waveform FP32 [-1]",
    "token2wav_dit": "target_speech_tokens INT32 [-1], reference_wav FP32 [-1],"
    " reference_wav_len INT32 [1], finalize BOOL [1] -> waveform FP32 [-1]",
    "tensorrt_llm": "input_ids INT32 [-1], input_lengths INT32 [1], request_output_len INT32 [1],"
    " end_id INT32 [1], pad_id INT32 [1], runtime_top_k INT32 [1], runtime_top_p FP32 [1],"
    " temperature FP32 [1], repetition_penalty FP32 [1], random_seed UINT64 [1],"
    " streaming BOOL [1], stop BOOL [1] -> output_ids INT32 [-1, -1], sequence_length INT32 [-1]",
}
ORIGINAL["cosyvoice2_dit"] = ORIGINAL["cosyvoice2"]
COSYVOICE3 = {name: ORIGINAL[name] for name in ("audio_tokenizer", "speaker_embedding")} | {
    "cosyvoice3": ORIGINAL["cosyvoice2"],
    "token2wav": ORIGINAL["token2wav"].replace("waveform FP32 [-1]", "mel FP32 [80, -1]"),
    "vocoder": "mel FP32 [80, -1], finalize BOOL [1] -> tts_speech FP32 [-1]",
}
TENSOR = re.compile(r"(\w+) (\w+) (\[[^]]*\])")


@pytest.fixture(scope="module")
def dit_folder(
    tmp_path_factory: pytest.TempPathFactory, hugging_face_lm_folder: Path, token2wav_folder: Path
) -> Path:
    out = tmp_path_factory.mktemp("dit") / "native"
    prepare([str(hugging_face_lm_folder), str(token2wav_folder)], out, None, progress=False)
    return out


def rendered(folder: Path, *pairs: str, model: str = "test") -> dict[str, pb.ModelConfig]:
    names = render(TritonSettings.of(pairs, model_dir=model), folder / "repository")
    return {
        name: text_format.Parse(
            (folder / "repository" / name / "config.pbtxt").read_text(), pb.ModelConfig()
        )
        for name in names
    }


def test_lm_and_token2wav_may_have_a_server_each(tmp_path: Path) -> None:
    everything = set(rendered(tmp_path / "all"))
    assert set(rendered(tmp_path / "lm", "role=lm")) == {"tensorrt_llm"}
    others = rendered(tmp_path / "token2wav", "role=token2wav", "grpc=lm-host:8001")
    assert set(others) == everything - {"tensorrt_llm"}
    assert others["cosyvoice2"].parameters["grpc"].string_value == "lm-host:8001"
    for role in ("lm", "token2wav"):
        assert check(tmp_path / role / "repository") == []
    with pytest.raises(InputError, match="leave out llm_url"):
        rendered(tmp_path / "both", "role=lm", "llm_url=http://localhost:8000/v1")


def test_the_servers_paths_may_be_other_than_ours(tmp_path: Path, dit_folder: Path) -> None:
    pairs = ["model_dir=/models/native", "triton_backend=tensorrtllm", "engine_dir=/models/engine"]
    render(TritonSettings.of(pairs), tmp_path / "repository", source=str(dit_folder))
    for name, key, place in (
        ("cosyvoice2_dit", "model_dir", "/models/native"),
        ("token2wav_dit", "model_dir", "/models/native"),
        ("tensorrt_llm", "gpt_model_path", "/models/engine"),
    ):
        text = (tmp_path / "repository" / name / "config.pbtxt").read_text()
        config = text_format.Parse(text, pb.ModelConfig())
        assert config.parameters[key].string_value == place


def tensors(side: str) -> dict[str, tuple[str, str]]:
    return {name: (kind, dims) for name, kind, dims in TENSOR.findall(side)}


def described(found: object) -> dict[str, tuple[str, str]]:
    return {
        tensor.name: (
            pb.DataType.Name(tensor.data_type).removeprefix("TYPE_"),
            str(list(tensor.dims)),
        )
        for tensor in found  # type: ignore[attr-defined]
    }


@pytest.mark.parametrize("kind", ["unet", "dit", "cosyvoice3"])
def test_the_originals_tensors_are_all_there(
    tmp_path: Path, kind: str, dit_folder: Path, native3_folder: Path
) -> None:
    folders = {"unet": "test", "dit": str(dit_folder), "cosyvoice3": str(native3_folder)}
    models = rendered(tmp_path, model=folders[kind])
    original = COSYVOICE3 if kind == "cosyvoice3" else ORIGINAL
    expected = {name for name in original if name.endswith("_dit") == (kind == "dit")}
    shared = {"audio_tokenizer", "speaker_embedding", "tensorrt_llm"}
    speech = {"unet": "cosyvoice2", "dit": "cosyvoice2_dit"}.get(kind, kind)
    assert set(models) == expected | shared | {f"{speech}_offline"}
    assert check(tmp_path / "repository") == []
    for name in set(models) & set(original):
        inputs, outputs = original[name].split("->")
        assert tensors(inputs).items() <= described(models[name].input).items(), name
        assert tensors(outputs).items() <= described(models[name].output).items(), name
        added = described(models[name].input).keys() - tensors(inputs).keys()
        optional = {tensor.name for tensor in models[name].input if tensor.optional}
        assert added <= optional, "an original client would not send it"
        assert models[name].output[0].name == next(iter(tensors(outputs)))  # clients take the first


def test_both_modes_come_from_one_repository(tmp_path: Path) -> None:
    models = rendered(tmp_path / "a")
    assert models["cosyvoice2"].model_transaction_policy.decoupled
    assert not models["cosyvoice2_offline"].model_transaction_policy.decoupled
    models = rendered(tmp_path / "b", "decoupled_mode=false")
    assert not models["cosyvoice2"].model_transaction_policy.decoupled
    assert models["cosyvoice2_streaming"].model_transaction_policy.decoupled


def test_knobs_arrive(tmp_path: Path) -> None:
    models = rendered(
        tmp_path,
        "triton_max_batch_size=3",
        "max_queue_delay_microseconds=77",
        "bls_instance_num=2",
        "priority_levels=5",
        "max_queue_size=9",
    )
    assert {model.max_batch_size for model in models.values()} == {3}
    assert models["cosyvoice2"].instance_group[0].count == 2
    batching = models["token2wav"].dynamic_batching
    assert batching.max_queue_delay_microseconds == 77
    assert batching.priority_levels == 5
    assert batching.default_queue_policy.max_queue_size == 9


def engine(folder: Path) -> Path:
    """A folder like that of a TensorRT-LLM engine."""
    (folder / "engine").mkdir()
    (folder / "engine" / "config.json").touch()
    return folder / "engine"


def test_the_speaker_encoder_is_beside_the_flow(tmp_path: Path) -> None:
    """For it is computed by the same runtime."""
    models = rendered(
        tmp_path,
        *("device=cuda:0", "token2wav_device=cuda:1"),
        *("flow_backend=tensorrt", "flow_engines=/engines"),
    )
    settings = ("device", "flow_backend", "flow_engines")
    for name in ("token2wav", "speaker_embedding"):
        found = [models[name].parameters[key].string_value for key in settings]
        assert found == ["cuda:1", "tensorrt", "/engines"]
    assert models["audio_tokenizer"].parameters["device"].string_value == "cuda:0"


@pytest.mark.parametrize("family", ["cosyvoice2", "cosyvoice3"])
def test_tensorrt_llm_gets_all_of_its_configuration(
    tmp_path: Path, family: str, native3_folder: Path
) -> None:
    models = rendered(
        tmp_path,
        "triton_backend=tensorrtllm",
        f"engine_dir={engine(tmp_path)}",
        "max_tokens_in_paged_kv_cache=2560",
        "max_attention_window_size=2560",
        model=str(native3_folder) if family == "cosyvoice3" else "test",
    )
    assert models[family].parameters["triton_backend"].string_value == "tensorrtllm"
    model = models["tensorrt_llm"]
    values = {key: value.string_value for key, value in model.parameters.items()}
    assert model.backend == "tensorrtllm"
    assert (
        values.items()
        >= {
            "gpt_model_type": "inflight_fused_batching",
            "gpt_model_path": str(tmp_path / "engine"),
            "max_beam_width": "1",
            "max_tokens_in_paged_kv_cache": "2560",
            "max_attention_window_size": "2560",
            "kv_cache_free_gpu_mem_fraction": "0.5",
            "exclude_input_in_output": "True",
            "enable_kv_cache_reuse": "False",
        }.items()
    )
    assert not (tmp_path / "repository" / "tensorrt_llm" / "1" / "model.py").exists()
    assert check(tmp_path / "repository") == []


def test_an_llm_server_takes_the_place_of_the_lm(tmp_path: Path) -> None:
    knobs = ("llm_url=http://localhost:9000/v1", "llm_api_key=secret", "llm_top_k=40")
    models = rendered(tmp_path, *knobs)
    assert "tensorrt_llm" not in models
    values = models["cosyvoice2"].parameters
    assert values["llm_top_k"].string_value == "40"
    assert values["llm_temperature"].string_value == "0.8"
    assert "secret" not in str(models)  # Triton shows configurations to everybody
    key = tmp_path / "repository" / "cosyvoice2" / "1" / values["llm_key_file"].string_value
    assert key.read_text() == "secret"
    assert key.stat().st_mode & 0o777 == 0o600
    assert check(tmp_path / "repository") == []


def test_what_can_not_be_rendered_leaves_nothing(tmp_path: Path, cosyvoice2_folder: Path) -> None:
    with pytest.raises(CheckpointError, match="cosyserve prepare"):
        render(TritonSettings(model_dir=str(cosyvoice2_folder)), tmp_path / "repository")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "repository").mkdir()
    with pytest.raises(InputError, match="exists already"):
        render(TritonSettings(model_dir="test"), tmp_path / "repository")
