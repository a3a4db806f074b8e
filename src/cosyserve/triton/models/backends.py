"""The LM and the token2wav of the Triton server we run in, as the two backends of `SplitEngine`.

Triton can't cancel a request between models. So each carries a session id that is made here, and
the parameter `cancel` of another request names the session to end.
"""

from __future__ import annotations

import asyncio
import secrets
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from functools import cached_property
from typing import Any

import numpy as np
import triton_python_backend_utils as pb

from cosyserve.backends.protocols import LMRequest, SpeechTokens, limited
from cosyserve.backends.vocabulary import Vocabulary
from cosyserve.choices import LLMSampling
from cosyserve.contracts import Floats, Voice
from cosyserve.engine.compute.limits import SEED_MASK
from cosyserve.engine.compute.playback import Playback
from cosyserve.errors import CosyError, WorkerError
from cosyserve.triton.client import TritonClient
from cosyserve.triton.models.instance.async_model import Array, Outputs
from cosyserve.triton.models.instance.errors import check
from cosyserve.triton.vocabulary import TritonVocabulary
from cosyserve.voices.memory.lru import IDLE_SECONDS, ByteLRU
from cosyserve.voices.memory.mirror import voice_bytes, voice_key

LM = "tensorrt_llm"
SEND_SECONDS = 0.005  # first audio takes so long to its listener: an LM that resumes delays it
SILENT_SECONDS = 60.0  # after so long without tokens the LM is dead: the wait for a slot is shorter


def model_request(
    model: str, inputs: Outputs, outputs: Sequence[str], session: str = "", **parameters: Any
) -> Any:
    """A request to another model of this server; `inputs` are without their batch dimension."""
    return pb.InferenceRequest(
        model_name=model,
        request_id=session,
        requested_output_names=list(outputs),
        inputs=[pb.Tensor(name, array[None]) for name, array in inputs.items()],
        parameters={"session": session} | parameters,
    )


def output(response: Any, name: str) -> Array:
    """An output without its batch dimension."""
    check(response)
    row: Array = pb.get_output_tensor_by_name(response, name).as_numpy()[0].copy()
    return row


class TritonLM:
    """Implements `LMBackend`, over the tensors of the TensorRT-LLM backend.

    Its requests go over the server's own gRPC side: streams between models inside Triton stop all
    of a process when several are open at once, and work goes on when nobody listens.
    """

    def __init__(self, address: str, sampling: LLMSampling | None, vocabulary: Vocabulary) -> None:
        """`sampling` of the TensorRT-LLM backend; None: the model behind the name is our LM."""
        self._vocabulary = vocabulary
        self._address = address
        self._sampling = sampling
        self._ours = sampling is None
        self._resumes: set[asyncio.Task[None]] = set()

    @cached_property
    def _client(self) -> TritonClient:
        return TritonClient(self._address)

    async def generate(self, request: LMRequest) -> AsyncGenerator[SpeechTokens, None]:
        if self._sampling:
            request = limited(request, self._sampling.max_tokens)
        pause_id = secrets.randbits(62)
        chunks = {"first_chunk": request.first_chunk, "chunk": request.chunk, "pause_id": pause_id}
        answers = self._stream(self._inputs(request), chunks if self._ours else {})
        count, may_pause = 0, self._ours
        try:
            async with aclosing(answers):
                async for answer in answers:
                    length = int(answer["sequence_length"].reshape(-1)[0])
                    ids = answer["output_ids"].reshape(-1)[:length].tolist()
                    tokens = self._vocabulary.tokens(ids)
                    count += len(tokens)
                    if tokens:
                        yield SpeechTokens(
                            tokens, "length" if count >= request.max_tokens else None
                        )
                    if may_pause and request.first_chunk <= count < request.max_tokens:
                        may_pause = False
                        resume = asyncio.create_task(self._resume(pause_id))
                        self._resumes.add(resume)
                        resume.add_done_callback(self._resumes.discard)
        except WorkerError as error:
            where = f"the speech model asks for {LM} at the address in its setting `grpc`"
            raise WorkerError(f"{error} ({where})") from error
        if count < request.max_tokens:
            yield SpeechTokens((), "stop")

    async def close(self) -> None:
        await self._client.close()

    async def _resume(self, pause_id: int) -> None:
        """Resumes the LM, which has paused after its first chunk, once that chunk was sent."""
        await asyncio.sleep(SEND_SECONDS)
        one = np.ones((1, 1), np.int32)
        inputs = dict.fromkeys(("input_ids", "input_lengths", "request_output_len"), one)
        with suppress(CosyError):  # then it resumes by itself, a little later
            async for _ in self._stream(inputs, {"resume": pause_id}):
                pass

    def _stream(
        self, inputs: Outputs, parameters: dict[str, int]
    ) -> AsyncGenerator[dict[str, Array], None]:
        return self._client.stream(
            LM,
            inputs,
            first_seconds=SILENT_SECONDS,
            between_seconds=SILENT_SECONDS,
            outputs=("output_ids", "sequence_length"),  # TensorRT-LLM fails without either
            parameters=parameters,
        )

    def _inputs(self, request: LMRequest) -> Outputs:
        ids = self._vocabulary.prompt(request)
        inputs: Outputs = {
            "input_ids": np.array(ids, np.int32),
            "input_lengths": np.array([len(ids)], np.int32),
            "request_output_len": np.array([request.max_tokens], np.int32),
            "min_length": np.array([request.min_tokens], np.int32),
            "random_seed": np.array([request.seed & SEED_MASK], np.uint64),
            "streaming": np.array([True]),
        }
        if own := request.sampling or self._sampling:
            inputs["runtime_top_k"] = np.array([own.top_k], np.int32)
            inputs["runtime_top_p"] = np.array([own.top_p], np.float32)
            inputs["temperature"] = np.array([own.temperature], np.float32)
        if sampling := self._sampling:  # our model knows its own end, and draws without these
            inputs["repetition_penalty"] = np.array([sampling.repetition_penalty], np.float32)
            inputs["end_id"] = inputs["pad_id"] = np.array([self._vocabulary.end], np.int32)
            # as later versions of the backend call them
            inputs |= {"min_tokens": inputs["min_length"], "seed": inputs["random_seed"]}
            if self._vocabulary.bias is not None:
                inputs["embedding_bias"] = self._vocabulary.bias
        return {name: array[None] for name, array in inputs.items()}


class TritonToken2Wav:
    """Implements `Token2WavBackend`."""

    def __init__(
        self, model: str, lookahead: int, cache_bytes: int, vocabulary: TritonVocabulary
    ) -> None:
        self.model = model
        self.vocabulary = vocabulary
        self.lookahead = lookahead
        self._voice_files: ByteLRU[bytes] = ByteLRU(cache_bytes, IDLE_SECONDS)

    def begin(
        self, voice: Voice, *, with_prompt: bool, seed: int, speed: float, stream: bool
    ) -> TritonToken2WavStream:
        parameters = {"with_prompt": with_prompt, "seed": seed & SEED_MASK, "speed": str(speed)}
        return TritonToken2WavStream(self, self._bytes(voice), stream, parameters)

    async def close(self) -> None: ...

    def _bytes(self, voice: Voice) -> bytes:
        key = voice_key(voice)
        data = self._voice_files.get(key)
        if data is None:
            data = voice_bytes(voice)
            self._voice_files.put(key, data, len(data))
        return data


class TritonToken2WavStream:
    """Implements `Token2WavStream`."""

    def __init__(
        self, backend: TritonToken2Wav, voice: bytes, stream: bool, parameters: dict[str, Any]
    ) -> None:
        self._backend = backend
        self._stream = stream
        self._parameters = parameters
        self._voice = np.frombuffer(voice, np.uint8)
        self._session = uuid.uuid4().hex
        self._playback = Playback()
        self._offset = 0  # tokens whose audio was computed
        self._over = True

    async def advance(self, tokens: Sequence[int], *, final: bool) -> Floats:
        inputs: Outputs = {
            "target_speech_tokens": np.array(self._backend.vocabulary.ids(tokens), np.int32),
            "voice": self._voice,
            "finalize": np.array([final]),
        }
        if self._stream:
            inputs["token_offset"] = np.array([self._offset], np.int32)
        playback, now = self._playback, time.monotonic()
        slack = max(0.0, playback.slack(now)) if playback.chunks else -1.0
        parameters = self._parameters | {"slack": str(slack)}
        request = model_request(
            self._backend.model, inputs, ("waveform",), self._session, **parameters
        )
        self._over = False
        samples: Floats = output(await request.async_exec(), "waveform")
        self._over = final
        playback.send(samples, len(tokens), time.monotonic())
        self._offset = len(tokens) - self._backend.lookahead
        return samples

    async def close(self) -> None:
        if not self._over:
            inputs: Outputs = {"target_speech_tokens": np.zeros(1, np.int32)}
            cancel = model_request(
                self._backend.model, inputs, ("waveform",), self._session, cancel=self._session
            )
            asyncio.get_running_loop().run_in_executor(None, cancel.exec)
