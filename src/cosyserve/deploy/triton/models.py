"""The models of a Triton repository: tensors, queues and parameters, as typed messages.

Tensors are the original's, by name, type and shape; those that it lacks are
optional.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from tritonclient.grpc import model_config_pb2 as pb

from cosyserve.deploy.triton import tensorrt_llm_config
from cosyserve.deploy.triton.settings import TritonSettings
from cosyserve.errors import InputError
from cosyserve.models.config import ModelConfig

CODE = {
    "audio_tokenizer": "encoders import AudioTokenizer as TritonPythonModel",
    "speaker_embedding": "encoders import SpeakerEmbedding as TritonPythonModel",
    "tensorrt_llm": "tensorrt_llm import TritonPythonModel",
    "token2wav": "token2wav import TritonPythonModel",
    "token2mel": "token2mel import TritonPythonModel",
    "vocoder": "vocoder import TritonPythonModel",
    "cosyvoice2": "cosyvoice import TritonPythonModel",
    "cosyvoice3": "cosyvoice import TritonPythonModel",
}
PARTS = {  # of the model's folder, that each of them can't be without
    "audio_tokenizer": ("speech_tokenizer",),
    "speaker_embedding": ("speaker_encoder",),
    "tensorrt_llm": ("lm",),
    "token2wav": ("flow", "vocoder"),
    "token2mel": ("flow", "vocoder"),
    "vocoder": ("vocoder",),
    "cosyvoice2": ("lm", "flow"),
    "cosyvoice3": ("lm", "flow"),
}
SpeechModel = Literal["cosyvoice2", "cosyvoice2_dit", "cosyvoice3"]

LLM_KEY_FILE = "llm_api_key"  # beside model.py
ALIASES = ("_offline", "_streaming")

Tensor = tuple[str, str, list[int]] | tuple[str, str, list[int], str]
RECORDING: list[Tensor] = [("reference_wav", "FP32", [-1]), ("reference_wav_len", "INT32", [1])]
TEXT_TO_WAVE: list[Tensor] = [
    ("reference_wav", "FP32", [-1], "optional"),
    ("reference_wav_len", "INT32", [1], "optional"),
    ("reference_text", "STRING", [1], "optional"),
    ("target_text", "STRING", [1]),
    ("voice_id", "STRING", [1], "optional"),
    ("voice", "UINT8", [-1], "optional"),
    ("options", "STRING", [1], "optional"),
]
STREAM: list[Tensor] = [
    ("token_offset", "INT32", [1], "optional"),
    ("finalize", "BOOL", [1], "optional"),
    ("voice", "UINT8", [-1], "optional"),
]
LLM: list[Tensor] = [
    ("input_ids", "INT32", [-1]),
    ("input_lengths", "INT32", [1]),
    ("request_output_len", "INT32", [1]),
    *(
        (name, kind, [1], "optional")
        for name, kind in (
            ("end_id", "INT32"),
            ("pad_id", "INT32"),
            ("beam_width", "INT32"),
            ("temperature", "FP32"),
            ("runtime_top_k", "INT32"),
            ("runtime_top_p", "FP32"),
            ("len_penalty", "FP32"),
            ("repetition_penalty", "FP32"),
            ("min_length", "INT32"),
            ("random_seed", "UINT64"),
            ("return_log_probs", "BOOL"),
            ("streaming", "BOOL"),
            ("stop", "BOOL"),
        )
    ),
]
LLM_OUTPUTS: list[Tensor] = [
    ("output_ids", "INT32", [-1, -1]),
    ("sequence_length", "INT32", [-1]),
    ("cum_log_probs", "FP32", [-1]),
    ("output_log_probs", "FP32", [-1, -1]),
]


def models(settings: TritonSettings, speech: SpeechModel) -> dict[str, pb.ModelConfig]:
    """The configuration of every model, by name. `speech` is the one that speaks."""
    dit = speech == "cosyvoice2_dit"
    token2wav = "token2wav_dit" if dit else "token2wav"
    alias = speech + ALIASES[not settings.decoupled_mode]
    configs = [
        _audio_tokenizer(settings),
        _speaker_embedding(settings),
        _token2wav(token2wav, speech, settings),
        _speech(speech, token2wav, settings.decoupled_mode, settings),
        _speech(alias, token2wav, not settings.decoupled_mode, settings),
    ]
    if speech == "cosyvoice3":
        configs.append(_vocoder(settings))
    if settings.role == "lm":
        configs.clear()
    if settings.role != "token2wav" and not settings.llm_url:
        python = settings.triton_backend == "python"
        configs.append(_llm(settings) if python else _tensorrt_llm(settings))
    return {model.name: model for model in configs}


def streaming_model(names: Iterable[str]) -> str:
    """The one of a repository's models that streams speech."""
    offline, streaming = ALIASES
    speaking = [n for n in names if n.startswith("cosyvoice") and not n.endswith(offline)]
    if not speaking:
        raise InputError("a repository with role=lm has no model that speaks")
    return max(speaking, key=lambda name: name.endswith(streaming))


def code(model: pb.ModelConfig) -> str:
    """The content of the model.py of one of our models."""
    return f"from cosyserve.triton.models.{CODE[_kind(model)]}  # noqa: F401\n"


def missing_parts(model: pb.ModelConfig, config: ModelConfig) -> list[str]:
    """The parts that one of our models loads, and that the folder of this config has not."""
    return [part for part in PARTS[_kind(model)] if getattr(config, part) is None]


def _kind(model: pb.ModelConfig) -> str:
    name = model.name
    for suffix in (*ALIASES, "_dit"):
        name = name.removesuffix(suffix)
    return "token2mel" if any(tensor.name == "mel" for tensor in model.output) else name


def _audio_tokenizer(settings: TritonSettings) -> pb.ModelConfig:
    outputs: list[Tensor] = [("prompt_speech_tokens", "INT32", [-1])]
    return _python(_model("audio_tokenizer", RECORDING, outputs, settings), settings)


def _speaker_embedding(settings: TritonSettings) -> pb.ModelConfig:
    outputs: list[Tensor] = [("prompt_spk_embedding", "FP16", [-1]), ("embedding", "FP32", [-1])]
    return _python(
        _model("speaker_embedding", RECORDING[:1], outputs, settings),
        settings,
        device=settings.token2wav_device or settings.device,
        flow_backend=settings.flow_backend,
        flow_engines=settings.flow_engines,
    )


def _token2wav(name: str, speech: SpeechModel, settings: TritonSettings) -> pb.ModelConfig:
    prompt: list[Tensor] = [
        ("prompt_speech_tokens", "INT32", [-1], "optional"),
        ("prompt_speech_feat", "FP16", [-1, 80], "optional"),
        ("prompt_spk_embedding", "FP16", [-1], "optional"),
    ]
    recording: list[Tensor] = [(*tensor[:3], "optional") for tensor in RECORDING]
    inputs: list[Tensor] = [
        ("target_speech_tokens", "INT32", [-1]),
        *(recording if speech == "cosyvoice2_dit" else prompt),
        *STREAM,
    ]
    outputs: list[Tensor] = [("waveform", "FP32", [-1])]
    if speech == "cosyvoice3":
        outputs.insert(0, ("mel", "FP32", [80, -1]))
    model = _model(name, inputs, outputs, settings)
    model.dynamic_batching.priority_levels = settings.priority_levels
    model.dynamic_batching.default_priority_level = settings.priority_levels
    return _python(
        model,
        settings,
        device=settings.token2wav_device or settings.device,
        max_requests=settings.max_requests,
        stream_seconds=settings.stream_seconds,
        flow_backend=settings.flow_backend,
        flow_engines=settings.flow_engines,
        voice_cache_bytes=settings.voice_cache_bytes,
    )


def _vocoder(settings: TritonSettings) -> pb.ModelConfig:
    inputs: list[Tensor] = [("mel", "FP32", [80, -1]), ("finalize", "BOOL", [1], "optional")]
    return _python(
        _model("vocoder", inputs, [("tts_speech", "FP32", [-1])], settings),
        settings,
        device=settings.token2wav_device or settings.device,
        max_requests=settings.max_requests,
    )


def _speech(name: str, token2wav: str, decoupled: bool, settings: TritonSettings) -> pb.ModelConfig:
    outputs: list[Tensor] = [("waveform", "FP32", [-1]), ("details", "STRING", [1])]
    model = _model(name, TEXT_TO_WAVE, outputs, settings)
    model.model_transaction_policy.decoupled = decoupled
    model.instance_group[0].count = settings.bls_instance_num
    return _python(
        model,
        settings,
        token2wav=token2wav,
        voices=settings.voices,
        default_voice=settings.default_voice,
        max_text_characters=settings.max_text_characters,
        max_requests=settings.max_requests,
        voice_cache_bytes=settings.voice_cache_bytes,
        triton_backend=settings.triton_backend,
        role=settings.role,
        grpc=settings.grpc,
        llm_url=settings.llm_url,
        llm_model=settings.llm_model,
        llm_prompt=settings.llm_prompt,
        llm_key_file=LLM_KEY_FILE if settings.llm_api_key else "",
        llm_connect_seconds=settings.llm_connect_seconds,
        llm_first_seconds=settings.llm_first_seconds,
        llm_between_seconds=settings.llm_between_seconds,
        llm_temperature=settings.llm_temperature,
        llm_top_p=settings.llm_top_p,
        llm_top_k=settings.llm_top_k,
        llm_repetition_penalty=settings.llm_repetition_penalty,
        llm_max_tokens=settings.llm_max_tokens,
    )


def _llm(settings: TritonSettings) -> pb.ModelConfig:
    model = _model("tensorrt_llm", LLM, LLM_OUTPUTS, settings)
    model.model_transaction_policy.decoupled = True
    return _python(
        model,
        settings,
        max_requests=settings.max_requests,
        slots=settings.slots,
        waiting=settings.waiting,
    )


def _tensorrt_llm(settings: TritonSettings) -> pb.ModelConfig:
    """The configuration of Triton's own TensorRT-LLM backend."""
    model = _model("tensorrt_llm", (), (), settings)
    model.backend = "tensorrtllm"
    model.model_transaction_policy.decoupled = True
    model.dynamic_batching.preferred_batch_size.append(settings.triton_max_batch_size)
    model.instance_group[0].count = settings.gpu_device_ids.count(";") + 1
    for name, kind, dims, scalar, ragged, optional in tensorrt_llm_config.inputs(settings):
        tensor = model.input.add(name=name, data_type=f"TYPE_{kind}", dims=dims, optional=optional)
        tensor.allow_ragged_batch = ragged
        if scalar:
            tensor.reshape.SetInParent()  # to no dimensions
    for name, kind, dims, *_ in tensorrt_llm_config.outputs(settings):
        model.output.add(name=name, data_type=f"TYPE_{kind}", dims=dims)
    _set(model, **tensorrt_llm_config.parameters(settings))
    return model


def _model(
    name: str, inputs: Iterable[Tensor], outputs: Iterable[Tensor], settings: TritonSettings
) -> pb.ModelConfig:
    model = pb.ModelConfig(
        name=name, backend="python", max_batch_size=settings.triton_max_batch_size
    )
    for tensor, kind, dims, *optional in inputs:
        model.input.add(name=tensor, data_type=f"TYPE_{kind}", dims=dims, optional=bool(optional))
    for tensor, kind, dims, *_ in outputs:
        model.output.add(name=tensor, data_type=f"TYPE_{kind}", dims=dims)
    model.instance_group.add(count=1, kind=pb.ModelInstanceGroup.KIND_CPU)
    batching = model.dynamic_batching
    batching.max_queue_delay_microseconds = settings.max_queue_delay_microseconds
    policy = batching.default_queue_policy
    policy.timeout_action = pb.ModelQueuePolicy.REJECT
    policy.default_timeout_microseconds = settings.queue_timeout_microseconds
    policy.allow_timeout_override = True
    policy.max_queue_size = settings.max_queue_size
    return model


def _python(model: pb.ModelConfig, settings: TritonSettings, **parameters: Any) -> pb.ModelConfig:
    shared = ("model_dir", "device", "dtype", "kernels", "threads")
    _set(model, **{key: getattr(settings, key) for key in shared} | parameters)
    return model


def _set(model: pb.ModelConfig, **parameters: Any) -> None:
    for key, value in parameters.items():
        model.parameters[key].string_value = str(value)
