"""What `cosyserve bench offline` measures: a model whose LM may be of another folder or runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cosyserve.choices import LLMSampling
from cosyserve.cli.common import WITHOUT_LM, load_parts
from cosyserve.contracts import SpeechRequest
from cosyserve.errors import InputError
from cosyserve.settings import Settings

if TYPE_CHECKING:
    from cosyserve.backends.llm_server import LLMServer
    from cosyserve.backends.protocols import LMBackend, LMRequest, Token2WavBackend
    from cosyserve.bench.offline import OfflineModel
    from cosyserve.checkpoints.model import Model
    from cosyserve.contracts import Voice
    from cosyserve.engine.split.lm_backends import LMName

BACKENDS: dict[str, LMName] = {
    "ours": "ours",
    "hf": "hf",
    "trtllm": "trtllm",
    "vllm": "vllm",
    "openai": "openai",
    "trtllm-serve": "openai",  # the original's word
}
CHAT = "/chat/completions"
PATIENCE = 120.0  # seconds for a token: a batch that makes others wait is no failure


@dataclass(frozen=True)
class LMOptions:
    """Where runtimes find the LM, and how those without our sampling draw."""

    folder: Path | None  # of the LM; None: the model's own
    engine_dir: Path | None
    url: str
    served_name: str
    sampling: LLMSampling
    kv_cache_fraction: float

    def server(self) -> LLMServer:
        """The original writes the whole URL of a chat."""
        from cosyserve.backends.llm_server import LLMServer

        return LLMServer(
            self.url.removesuffix(CHAT),
            self.served_name,
            prompt="chat" if self.url.endswith(CHAT) else "ids",
            sampling=self.sampling,
            first_seconds=PATIENCE,
            between_seconds=PATIENCE,
        )


def check_backends(names: Sequence[str], options: LMOptions) -> list[LMName]:
    """The back ends by their own names; what one lacks is said before anything is loaded."""
    for name in names:
        if name not in BACKENDS:
            raise InputError(f"--backend is one of {', '.join(BACKENDS)}, got {name!r:.40}")
        if name in ("hf", "trtllm", "vllm") and options.folder is None:
            raise InputError(
                f"--backend {name} needs --llm-model-name-or-path, the LM's folder in its Hugging "
                "Face form"
            )
        if name == "trtllm" and options.engine_dir is None:
            raise InputError("--backend trtllm needs --engine-dir, the folder of an engine")
        if BACKENDS[name] == "openai":
            options.server()
    return [BACKENDS[name] for name in names]


def load_speaker(settings: Settings, lm_folder: Path | None) -> Model:
    """All of a model but the weights of its LM, perhaps with the text side of another folder."""
    from cosyserve.checkpoints.config_data import as_checkpoint_error
    from cosyserve.checkpoints.load import load_model

    model = load_parts(settings, WITHOUT_LM)
    if lm_folder is None:
        model.need_text_side()
        return model
    lm, tokenizer = load_model(lm_folder, device="cpu", only=()).need_text_side()
    with as_checkpoint_error(f"{lm_folder} and {settings.model} don't belong together"):
        config = replace(model.config, lm=lm)
    return replace(model, config=config, text_tokenizer=tokenizer)


def open_backend(
    name: LMName, settings: Settings, options: LMOptions, batch_size: int
) -> LMBackend:
    """A back end that has room for a batch."""
    from cosyserve.engine.split.lm_backends import open_lm

    return open_lm(
        name,
        options.folder or settings.models[0],
        device=settings.device,
        dtype=settings.dtype,
        slots=batch_size,
        sampling=options.sampling,
        engine_dir=options.engine_dir or "",
        kv_cache_fraction=options.kv_cache_fraction,
        server=options.server() if name == "openai" else None,
    )


def offline_model(model: Model, lm: LMBackend, token2wav: Token2WavBackend) -> OfflineModel:
    """The model as the benchmark asks it."""
    from cosyserve.bench.offline import OfflineModel
    from cosyserve.engine.scheduling.lm_requests import lm_tasks
    from cosyserve.text.numbers import read_numbers
    from cosyserve.voices.enroll import enroll
    from cosyserve.voices.shipped import default_voice

    _, tokenizer = model.need_text_side()

    def plan(text: str, voice: Voice) -> list[LMRequest]:
        request = SpeechRequest(text, voice, voice.mode)
        tasks = lm_tasks(model.config, tokenizer, request, text, read_numbers)
        return [task.request for task in tasks]

    return OfflineModel(lm, token2wav, partial(enroll, model), partial(default_voice, model), plan)
