"""The speech LM in vLLM, in this process: its asynchronous engine batches requests continuously.

Repetition-aware sampling is not done: vLLM draws by temperature and repetition penalty. It would
take a logits processor of the whole engine, which sees every draw.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

from cosyserve.backends.protocols import LMRequest, SpeechTokens, limited
from cosyserve.backends.vocabulary import Vocabulary
from cosyserve.choices import LLMSampling
from cosyserve.contracts import FinishReason
from cosyserve.errors import InputError, LLMServerError, WorkerError

ARCHITECTURE = "CosyVoiceSpeechLM"
SEEDS = 1 << 63
FINISHES: dict[str, FinishReason] = {"stop": "stop", "length": "length"}


def register() -> None:
    """Makes the LM known to vLLM, which calls this in each of its processes."""
    from vllm import ModelRegistry

    if ARCHITECTURE not in ModelRegistry.get_supported_archs():
        ModelRegistry.register_model(ARCHITECTURE, f"cosyserve.backends.vllm_model:{ARCHITECTURE}")


class VLLM:
    """Implements `LMBackend`, for one event loop."""

    def __init__(
        self,
        folder: Path,
        vocabulary: Vocabulary,
        sampling: LLMSampling | None = None,
        *,
        dtype: str = "auto",
        max_batch: int = 64,
        gpu_memory: float = 0.4,
    ) -> None:
        """`folder` has the LM in its Hugging Face form. `gpu_memory` is vLLM's share of the GPU:
        flow and vocoder need theirs."""
        try:
            from vllm import AsyncEngineArgs, SamplingParams
            from vllm.sampling_params import RequestOutputKind
            from vllm.v1.engine.async_llm import AsyncLLM
            from vllm.v1.engine.exceptions import EngineDeadError
        except ModuleNotFoundError as error:
            raise InputError("the backend vllm needs vLLM: pip install vllm") from error
        register()
        self.vocabulary = vocabulary
        # CosyVoice3's head has no bias, so that it is one that vLLM knows, and could say text.
        overrides, self._allowed = {"architectures": [ARCHITECTURE]}, None
        if vocabulary.kind == "cosyvoice3":
            overrides, self._allowed = {}, list(range(vocabulary.text, vocabulary.ends.stop))
        self.sampling = sampling or LLMSampling()
        self._sampling_params = SamplingParams
        self._delta = RequestOutputKind.DELTA
        self._dead = EngineDeadError
        self._engine: Any = AsyncLLM.from_engine_args(
            AsyncEngineArgs(
                model=str(folder),
                dtype=dtype,
                max_num_seqs=max_batch,
                gpu_memory_utilization=gpu_memory,
                skip_tokenizer_init=True,
                hf_overrides=overrides,
            )
        )

    async def generate(self, request: LMRequest) -> AsyncGenerator[SpeechTokens, None]:
        """Closing the iterator makes vLLM abort the request."""
        request = limited(request, self.sampling.max_tokens)
        prompt = {"prompt_token_ids": self.vocabulary.prompt(request)}
        outputs = self._engine.generate(prompt, self._params(request), uuid.uuid4().hex)
        try:
            async with aclosing(outputs):
                async for output in outputs:
                    completion = output.outputs[0]
                    finish = completion.finish_reason
                    if finish is not None and finish not in FINISHES:
                        raise LLMServerError(f"vLLM gave up: finish_reason {finish!r:.60}")
                    tokens = self.vocabulary.tokens(completion.token_ids)
                    yield SpeechTokens(tokens, finish and FINISHES[finish])
        except self._dead as error:
            raise WorkerError("the engine of vLLM has died") from error

    async def close(self) -> None:
        self._engine.shutdown()

    def _params(self, request: LMRequest) -> Any:
        sampling, own = self.sampling, request.sampling or self.sampling
        return self._sampling_params(
            temperature=own.temperature,
            top_p=own.top_p,
            top_k=own.top_k,
            repetition_penalty=sampling.repetition_penalty,
            min_tokens=request.min_tokens,
            max_tokens=request.max_tokens,
            seed=request.seed % SEEDS,
            stop_token_ids=list(self.vocabulary.ends),
            allowed_token_ids=self._allowed,
            detokenize=False,
            output_kind=self._delta,
        )
