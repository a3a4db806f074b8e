"""The speech LM as a TensorRT-LLM engine, in this process: its runtime batches in flight.

Repetition-aware sampling is not done: the runtime draws by temperature and repetition penalty. It
would take a logits processor, called by the runtime for every token.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import torch

from cosyserve.backends.protocols import LMRequest, SpeechTokens, limited
from cosyserve.backends.vocabulary import Vocabulary
from cosyserve.choices import LLMSampling
from cosyserve.contracts import FinishReason
from cosyserve.errors import InputError, LLMServerError

SEEDS = 1 << 63
FINISHES: dict[str, FinishReason] = {"stop": "stop", "length": "length"}


class TensorRTLLM:
    """Implements `LMBackend`, for one event loop."""

    def __init__(
        self,
        engine_dir: Path,
        vocabulary: Vocabulary,
        sampling: LLMSampling | None = None,
        *,
        gpu_memory: float = 0.4,
    ) -> None:
        """`engine_dir` is what trtllm-build has written, which fixes how many requests run at once.
        `gpu_memory` is the cache's share of the free memory: flow and vocoder need theirs."""
        llm, params, kv_cache = _runtime()
        self.vocabulary = vocabulary
        self._bias = None if vocabulary.bias is None else torch.from_numpy(vocabulary.bias)
        self.sampling = sampling or LLMSampling()
        self._sampling_params = params
        self._llm = llm(
            model=str(engine_dir),
            skip_tokenizer_init=True,
            kv_cache_config=kv_cache(free_gpu_memory_fraction=gpu_memory),
        )

    async def generate(self, request: LMRequest) -> AsyncGenerator[SpeechTokens, None]:
        request = limited(request, self.sampling.max_tokens)
        outputs = self._llm.generate_async(
            self.vocabulary.prompt(request), self._params(request), streaming=True
        )
        finished = False
        try:
            async for output in outputs:
                completion = output.outputs[0]
                finish = completion.finish_reason
                finished = finish is not None
                if finished and finish not in FINISHES:
                    raise LLMServerError(f"TensorRT-LLM gave up: finish_reason {finish!r:.60}")
                tokens = self.vocabulary.tokens(completion.token_ids_diff)
                yield SpeechTokens(tokens, FINISHES[finish] if finished else None)
        finally:
            if not finished:
                outputs.abort()

    async def close(self) -> None:
        await asyncio.to_thread(self._llm.shutdown)

    def _params(self, request: LMRequest) -> Any:
        sampling, own = self.sampling, request.sampling or self.sampling
        end = self.vocabulary.end
        return self._sampling_params(
            end_id=end,
            pad_id=end,
            stop_token_ids=[number for number in self.vocabulary.ends if number != end],
            embedding_bias=self._bias,
            temperature=own.temperature,
            top_p=own.top_p,
            top_k=own.top_k,
            repetition_penalty=sampling.repetition_penalty,
            min_tokens=request.min_tokens,
            max_tokens=request.max_tokens,
            seed=request.seed % SEEDS,
            detokenize=False,
        )


def _runtime() -> tuple[Any, Any, Any]:
    """The classes of the runtime for engines, sampling parameters and the cache."""
    try:
        from tensorrt_llm import SamplingParams
        from tensorrt_llm.llmapi import KvCacheConfig

        try:
            from tensorrt_llm._tensorrt_engine import LLM  # since 1.0, when LLM came to mean torch
        except ModuleNotFoundError:
            from tensorrt_llm import LLM
    except ModuleNotFoundError as error:
        raise InputError(
            "the backend trtllm needs TensorRT-LLM: pip install tensorrt_llm, or use NVIDIA's "
            "container with it"
        ) from error
    return LLM, SamplingParams, KvCacheConfig
