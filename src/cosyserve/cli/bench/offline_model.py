"""What `cosyserve bench offline` measures: a model whose LM may be of another folder or runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cosyserve.cli.common import load_tts
from cosyserve.errors import InputError
from cosyserve.settings import Dtype

if TYPE_CHECKING:
    from cosyserve.backends.protocols import LMBackend, LMRequest, Token2WavBackend
    from cosyserve.bench.offline import OfflineModel
    from cosyserve.checkpoints.model import Model
    from cosyserve.contracts import Voice

BACKENDS = {name: name for name in ("ours", "hf", "trtllm", "vllm", "openai")} | {
    "trtllm-serve": "openai"  # the original's word
}


@dataclass(frozen=True)
class LMOptions:
    """Where other runtimes find the LM, and how they draw."""

    folder: Path | None
    engine_dir: Path | None
    url: str
    served_name: str
    top_p: float
    top_k: int
    temperature: float
    kv_cache_fraction: float


def check_backends(names: Sequence[str]) -> list[str]:
    for name in names:
        if name not in BACKENDS:
            raise InputError(f"--backend is one of {', '.join(BACKENDS)}, got {name!r:.40}")
    return [BACKENDS[name] for name in names]


def load_model(
    model: str | None, lm_folder: Path | None, device: str | None, dtype: Dtype | None
) -> Model:
    """The model, perhaps with the LM and the text tokenizer of another folder."""
    from cosyserve.checkpoints.config_data import as_checkpoint_error

    loaded = load_tts(model, device, dtype).model
    if lm_folder is None:
        return loaded
    other = load_tts(str(lm_folder), device, dtype).model
    lm, tokenizer = other.need_lm()
    with as_checkpoint_error(f"{lm_folder} and {loaded.config.name} don't belong together"):
        config = replace(loaded.config, lm=lm.config)
    return replace(loaded, config=config, lm=lm, text_tokenizer=tokenizer)


def open_lm(name: str, model: Model, options: LMOptions, batch_size: int) -> LMBackend:
    """A back end that has room for a batch."""
    from cosyserve.backends.openai_llm import LLMServer, OpenAILLM
    from cosyserve.engine.split.lm_service import LMService

    lm, tokenizer = model.need_lm()
    if name == "ours":
        return LMService(lm, slots=batch_size)
    if name == "openai":
        chat = options.url.endswith("/chat/completions")  # as the original writes it
        server = LLMServer(
            options.url.removesuffix("/chat/completions"),
            options.served_name,
            prompt="chat" if chat else "ids",
            temperature=options.temperature,
            repetition_penalty=1.1,
        )
        return OpenAILLM(server, lambda ids: tokenizer.decode(ids, skip_special=False))
    raise InputError(f"the back end {name} is not there yet")


def offline_model(model: Model, lm: LMBackend, token2wav: Token2WavBackend) -> OfflineModel:
    from cosyserve.bench.offline import OfflineModel
    from cosyserve.contracts import SpeechRequest
    from cosyserve.engine.scheduling.lm_requests import lm_tasks
    from cosyserve.text.numbers import read_numbers
    from cosyserve.voices.enroll import enroll
    from cosyserve.voices.shipped import default_voice

    _, tokenizer = model.need_lm()

    def plan(text: str, voice: Voice) -> list[LMRequest]:
        request = SpeechRequest(text, voice, voice.mode)
        tasks = lm_tasks(model.config, tokenizer, request, text, read_numbers)
        return [task.request for task in tasks]

    return OfflineModel(lm, token2wav, partial(enroll, model), partial(default_voice, model), plan)
