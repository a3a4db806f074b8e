"""Backends by name: what is missing is said, and runtimes that are not here are asked correctly."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cosyserve.backends.llm_server import LLMServer
from cosyserve.backends.openai_llm import OpenAILLM
from cosyserve.backends.protocols import LMBackend, LMRequest, SpeechTokens
from cosyserve.checkpoints.plain_files import read_json
from cosyserve.checkpoints.published.folder import hugging_face_sizes
from cosyserve.choices import LLMSampling
from cosyserve.contracts import Sampling
from cosyserve.engine.split.lm_backends import open_lm
from cosyserve.engine.split.lm_service import LMService
from cosyserve.errors import CheckpointError, CosyError, InputError, LLMServerError, WorkerError
from tests.published import TEXT_IDS

REQUEST = LMRequest((5, 6), (7,), min_tokens=30, max_tokens=400, seed=-1)
SAMPLING = LLMSampling(0.7, 0.9, 40, 1.2, max_tokens=20)
END = TEXT_IDS + 6561
PROMPT = [END + 3, 5, 6, END + 4, TEXT_IDS + 7]
ASKED = {
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 40,
    "repetition_penalty": 1.2,
    "min_tokens": 20,
    "max_tokens": 20,
    "seed": (1 << 63) - 1,
    "detokenize": False,
}
# Ids that a runtime draws, piece by piece, each with a finish reason.
DRAWN = [([TEXT_IDS + 1], None), ([TEXT_IDS + 22, TEXT_IDS + 333], None), ([END], "stop")]


class DeadEngineError(Exception): ...


class Runtime:
    """Stands in for vLLM and TensorRT-LLM, neither of which can run here."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.drawn: list[Any] = DRAWN
        self.opened: dict[str, Any] = {}
        self.asked: dict[str, Any] = {}
        self.prompt: Any = None
        self.left = self.closed = False
        self.registered: dict[str, str] = {}
        registry = SimpleNamespace(
            get_supported_archs=lambda: list(self.registered),
            register_model=self.registered.__setitem__,
        )
        modules = {
            "vllm": {
                "AsyncEngineArgs": dict,
                "SamplingParams": dict,
                "ModelRegistry": registry,
            },
            "vllm.sampling_params": {"RequestOutputKind": SimpleNamespace(DELTA="delta")},
            "vllm.v1": {},
            "vllm.v1.engine": {},
            "vllm.v1.engine.async_llm": {"AsyncLLM": SimpleNamespace(from_engine_args=self._open)},
            "vllm.v1.engine.exceptions": {"EngineDeadError": DeadEngineError},
            "tensorrt_llm": {"SamplingParams": dict},
            "tensorrt_llm.llmapi": {"KvCacheConfig": dict},
            "tensorrt_llm._tensorrt_engine": {"LLM": lambda **options: self._open(options)},
        }
        for name, content in modules.items():
            module = ModuleType(name)
            module.__dict__.update(content)
            monkeypatch.setitem(sys.modules, name, module)

    def _open(self, options: dict[str, Any]) -> Runtime:
        self.opened = options
        return self

    async def generate(
        self, prompt: dict[str, list[int]], params: dict[str, Any], request_id: str
    ) -> AsyncGenerator[Any, None]:
        """vLLM's."""
        self.prompt, self.asked = prompt["prompt_token_ids"], params
        try:
            async for output in self._outputs():
                yield output
        finally:
            self.left = True

    def generate_async(
        self, prompt: list[int], params: dict[str, Any], *, streaming: bool
    ) -> Runtime:
        """TensorRT-LLM's."""
        assert streaming
        self.prompt, self.asked = prompt, params
        return self

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._outputs()

    def abort(self) -> None:
        self.left = True

    def shutdown(self) -> None:
        self.closed = True

    async def _outputs(self) -> AsyncGenerator[Any, None]:
        for piece in self.drawn:
            await asyncio.sleep(0)
            if isinstance(piece, Exception):
                raise piece
            ids, finish = piece
            completion = SimpleNamespace(token_ids=ids, token_ids_diff=ids, finish_reason=finish)
            yield SimpleNamespace(outputs=[completion])


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    return Runtime(monkeypatch)


def opened(name: Any, folder: Path) -> LMBackend:
    return open_lm(name, folder, sampling=SAMPLING, engine_dir="/engines", slots=3)


async def heard(lm: LMBackend, request: LMRequest = REQUEST) -> list[SpeechTokens]:
    return [piece async for piece in lm.generate(request)]


@pytest.mark.parametrize("name", ["vllm", "trtllm"])
def test_tokens_come_as_they_are_drawn(
    name: str, runtime: Runtime, hugging_face_lm_folder: Path
) -> None:
    async def run() -> None:
        lm = opened(name, hugging_face_lm_folder)
        pieces = await heard(lm)
        assert pieces == [
            SpeechTokens((1,)),
            SpeechTokens((22, 333)),
            SpeechTokens((), "stop"),
        ]
        assert runtime.prompt == PROMPT
        await lm.close()
        assert runtime.closed

    asyncio.run(run())


def test_what_vllm_is_asked(runtime: Runtime, hugging_face_lm_folder: Path) -> None:
    lm = opened("vllm", hugging_face_lm_folder)
    asyncio.run(heard(lm))
    assert runtime.asked == ASKED | {
        "stop_token_ids": [END, END + 1, END + 2],
        "allowed_token_ids": None,
        "output_kind": "delta",
    }
    name = "CosyVoiceSpeechLM"
    assert runtime.registered == {name: f"cosyserve.backends.vllm_model:{name}"}
    assert runtime.opened == {
        "model": str(hugging_face_lm_folder),
        "dtype": "auto",
        "max_num_seqs": 3,
        "gpu_memory_utilization": 0.4,
        "skip_tokenizer_init": True,
        "hf_overrides": {"architectures": [name]},
    }


@pytest.mark.parametrize("name", ["vllm", "trtllm"])
def test_cosyvoice3_draws_no_text_and_ends_at_any_control_id(
    name: str, runtime: Runtime, hugging_face_lm3_folder: Path
) -> None:
    folder = hugging_face_lm3_folder
    first = hugging_face_sizes(folder)[0].text_vocab
    sos, *others = range(first + 6561, first + 6761)
    silence = [first + 28] * 7
    runtime.drawn = [([first + 100, *silence], None), ([first + 200, others[50]], "stop")]
    assert asyncio.run(heard(opened(name, folder))) == [
        SpeechTokens((100, *[28] * 5)),  # as our own LM cuts it short
        SpeechTokens((200,), "stop"),
    ]
    assert runtime.prompt == [sos, 5, 6, sos + 2, first + 7]
    assert {*runtime.asked["stop_token_ids"], sos + 1} == {sos, *others}
    if name == "vllm":
        assert runtime.asked["allowed_token_ids"] == list(range(first, first + 6761))
        assert runtime.opened["hf_overrides"] == {}
    else:
        assert runtime.asked["end_id"] == sos + 1
        bias = runtime.asked["embedding_bias"].numpy()
        assert len(bias) == read_json(folder / "config.json")["vocab_size"]
        drawn = np.flatnonzero(bias > -1000).tolist()
        assert drawn == [*range(first, sos), sos + 1]


def test_what_tensorrt_llm_is_asked(runtime: Runtime, hugging_face_lm_folder: Path) -> None:
    lm = opened("trtllm", hugging_face_lm_folder)
    asyncio.run(heard(lm, LMRequest((5, 6), (7,), 30, 400, -1, Sampling(0.5, 7, temperature=0.6))))
    ends = {"end_id": END, "pad_id": END, "stop_token_ids": [END + 1, END + 2]}
    assert runtime.asked.pop("embedding_bias") is None
    assert runtime.asked == ASKED | ends | {"top_p": 0.5, "top_k": 7, "temperature": 0.6}
    assert runtime.opened == {
        "model": "/engines",
        "skip_tokenizer_init": True,
        "kv_cache_config": {"free_gpu_memory_fraction": 0.4},
    }


@pytest.mark.parametrize("name", ["vllm", "trtllm"])
def test_whoever_leaves_ends_the_request(
    name: str, runtime: Runtime, hugging_face_lm_folder: Path
) -> None:
    async def leave() -> None:
        async with aclosing(opened(name, hugging_face_lm_folder).generate(REQUEST)) as pieces:
            await anext(pieces)
            assert not runtime.left
        assert runtime.left

    asyncio.run(leave())


@pytest.mark.parametrize(
    ("name", "piece", "kind", "words"),
    [
        ("vllm", ([], "abort"), LLMServerError, "gave up: finish_reason 'abort'"),
        ("trtllm", ([], "timeout"), LLMServerError, "gave up: finish_reason 'timeout'"),
        ("vllm", ([5], None), LLMServerError, "drew the id 5"),
        ("trtllm", ([END + 4], None), LLMServerError, "no speech token"),
        ("vllm", DeadEngineError(), WorkerError, "has died"),
    ],
)
def test_failures_are_told(
    name: str,
    piece: Any,
    kind: type[CosyError],
    words: str,
    runtime: Runtime,
    hugging_face_lm_folder: Path,
) -> None:
    runtime.drawn = [piece]
    with pytest.raises(kind, match=words):
        asyncio.run(heard(opened(name, hugging_face_lm_folder)))


@pytest.mark.parametrize(
    ("name", "package", "words"),
    [
        ("hf", "transformers", r"pip install 'cosyserve\[hf\]'"),
        ("vllm", "vllm", "pip install vllm"),
        ("trtllm", "tensorrt_llm", "pip install tensorrt_llm"),
    ],
)
def test_a_runtime_that_is_not_installed_is_named(
    name: str,
    package: str,
    words: str,
    hugging_face_lm_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=words):
        opened(name, hugging_face_lm_folder)


def test_what_a_backend_lacks_is_said(hugging_face_lm_folder: Path, tmp_path: Path) -> None:
    unknown: Any = "sglang"
    with pytest.raises(InputError, match="use ours, hf, trtllm, vllm, openai"):
        open_lm(unknown, hugging_face_lm_folder)
    with pytest.raises(InputError, match="needs engine_dir"):
        open_lm("trtllm", hugging_face_lm_folder)
    with pytest.raises(InputError, match="needs server"):
        open_lm("openai", "test")
    with pytest.raises(CheckpointError, match=str(tmp_path)):
        open_lm("hf", tmp_path)


def test_our_own_and_a_client() -> None:
    async def run() -> None:
        ours = open_lm("ours", "test", device="cpu")
        assert isinstance(ours, LMService)
        assert (await heard(ours, LMRequest((5,), (), 4, 4)))[-1].finish == "length"
        await ours.close()
        client = open_lm("openai", "test", server=LLMServer("http://localhost:1/v1", "lm"))
        assert isinstance(client, OpenAILLM)
        await client.close()

    asyncio.run(run())
