"""Opens an LM backend by its name."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from cosyserve.backends.llm_server import LLMServer
from cosyserve.backends.protocols import LMBackend
from cosyserve.backends.vocabulary import COSYVOICE3, Vocabulary
from cosyserve.checkpoints.load import load_model
from cosyserve.checkpoints.model import Model
from cosyserve.checkpoints.published.folder import hugging_face_sizes
from cosyserve.choices import LLMSampling
from cosyserve.engine.compute.profile import CPU_SLOTS
from cosyserve.engine.split.lm_service import LMService
from cosyserve.engine.split.silences import short_silences
from cosyserve.errors import CheckpointError, InputError

LMName = Literal["ours", "hf", "trtllm", "vllm", "openai"]


def open_lm(
    name: LMName,
    model: str | Path,
    *,
    device: str = "auto",
    dtype: str = "auto",
    slots: int = CPU_SLOTS,
    sampling: LLMSampling | None = None,
    engine_dir: str | Path = "",
    kv_cache_fraction: float = 0.4,
    server: LLMServer | None = None,
) -> LMBackend:
    """The LM of a model.

    `model` is a model of `load_model` for `ours` and `openai`, and else a folder with the LM in its
    Hugging Face form. `slots` requests are computed at once. `sampling` is that of `trtllm` and
    `vllm`; `openai` has it in its `server`, `ours` and `hf` have the repetition-aware one. `trtllm`
    needs an `engine_dir`, and takes that fraction of the free GPU memory for its cache.
    """
    if name == "ours":
        loaded = load_model(model, device=device, dtype=dtype, only=("lm",))
        return LMService(loaded.need_lm()[0], sampling=loaded.config.sampling, slots=slots)
    if name == "openai":
        if server is None:
            raise InputError("the backend openai needs server, which says where the LLM server is")
        return open_llm_server(server, load_model(model, device="cpu", only=()))
    if name not in get_args(LMName):
        raise InputError(f"unknown backend {name!r:.40}: use {', '.join(get_args(LMName))}")
    folder = Path(model)
    sizes, _ = hugging_face_sizes(folder)
    vocabulary = Vocabulary.of(sizes)
    lm: LMBackend
    if name == "hf":
        from cosyserve.backends.hugging_face import HuggingFaceLM

        lm = HuggingFaceLM(folder, vocabulary, device=device, dtype=dtype, max_batch=slots)
    elif name == "vllm":
        from cosyserve.backends.vllm import VLLM

        lm = VLLM(folder, vocabulary, sampling, dtype=dtype, max_batch=slots)
    elif engine_dir:
        from cosyserve.backends.tensorrt_llm import TensorRTLLM

        lm = TensorRTLLM(Path(engine_dir), vocabulary, sampling, gpu_memory=kv_cache_fraction)
    else:
        raise InputError("the backend trtllm needs engine_dir, the folder of an engine")
    return short_silences(lm, sizes.silent)


def open_llm_server(server: LLMServer, model: Model) -> LMBackend:
    """The LM behind an LLM server, for a model that needs no LM of its own."""
    from cosyserve.backends.openai_llm import OpenAILLM  # its HTTP library takes its time

    config, tokenizer = model.need_text_side()
    if config.kind == "cosyvoice3":
        server = replace(server, vocabulary=COSYVOICE3)
    if config.speech_tokens != server.vocabulary.speech:
        raise CheckpointError(
            f"model '{model.config.name}' has {config.speech_tokens} speech tokens, the LM of an "
            f"LLM server {server.vocabulary.speech}: use a CosyVoice model"
        )
    lm = OpenAILLM(server, partial(tokenizer.decode, skip_special=False))
    return short_silences(lm, config.silent)
