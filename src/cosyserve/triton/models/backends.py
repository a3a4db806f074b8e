"""The LM and the token2wav of the same Triton server, as the two backends of the joined engine.

Knows tensors and names of models, no text. Triton can't cancel a request between models: one to
token2wav that is no longer wanted is named in the parameter `cancel` of another, by a token made
here.
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

from cosyserve.backends.protocols import LMRequest, SpeechTokens
from cosyserve.contracts import Floats, Voice
from cosyserve.engine.compute.limits import SEED_MASK
from cosyserve.engine.compute.playback import Playback
from cosyserve.errors import CosyError, WorkerError
from cosyserve.triton import vocabulary
from cosyserve.triton.client import TritonClient
from cosyserve.triton.models.base import Array, Outputs
from cosyserve.triton.models.errors import check
from cosyserve.voices.lru import ByteLRU
from cosyserve.voices.mirror import voice_bytes, voice_key

LM = "tensorrt_llm"
WAY_SECONDS = 0.005  # of first audio to its listener: an LM that wakes meanwhile makes it wait
SILENT_SECONDS = 60.0  # an LM that says nothing for so long is dead: a slot is waited for less


def ask(
    model: str, inputs: Outputs, outputs: Sequence[str], session: str = "", **parameters: Any
) -> Any:
    """A request to another model of this server."""
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


class InnerLM:
    """Implements `LMBackend`, over the tensors of the TensorRT-LLM backend.

    Asks by way of the server's own gRPC side: Triton's streams between models stop all of a
    process when several are open at once, and hold on to the work when nobody listens.
    """

    def __init__(self, address: str, *, ours: bool) -> None:
        """`ours`: it is our LM that answers."""
        self._address, self._ours = address, ours
        self._telling: set[asyncio.Task[None]] = set()

    @cached_property
    def _client(self) -> TritonClient:
        return TritonClient(self._address)

    async def generate(self, request: LMRequest) -> AsyncGenerator[SpeechTokens, None]:
        name = secrets.randbits(62)
        pace = {"first": request.first_chunk, "every": request.chunk, "rests": name}
        answers = self._ask(self._inputs(request), pace if self._ours else {})
        count, rests = 0, self._ours
        try:
            async with aclosing(answers):
                async for answer in answers:
                    ids = answer["output_ids"].reshape(-1).tolist()
                    tokens = vocabulary.heard([id for id in ids if id < vocabulary.END])
                    count += len(tokens)
                    if tokens:
                        yield SpeechTokens(
                            tokens, "length" if count >= request.max_tokens else None
                        )
                    if rests and request.first_chunk <= count < request.max_tokens:
                        rests = False
                        telling = asyncio.create_task(self._go_on(name))
                        self._telling.add(telling)
                        telling.add_done_callback(self._telling.discard)
        except WorkerError as error:
            where = f"cosyvoice2 asks for {LM} at the address in its setting `grpc`"
            raise WorkerError(f"{error} ({where})") from error
        if count < request.max_tokens:
            yield SpeechTokens((), "stop")

    async def close(self) -> None:
        await self._client.close()

    async def _go_on(self, name: int) -> None:
        """Whoever comes back for the second piece wakes the LM, which rests since the first."""
        await asyncio.sleep(WAY_SECONDS)
        one = np.ones((1, 1), np.int32)
        inputs = dict.fromkeys(("input_ids", "input_lengths", "request_output_len"), one)
        with suppress(CosyError):  # then it goes on a little later
            async for _ in self._ask(inputs, {"go_on": name}):
                pass

    def _ask(
        self, inputs: Outputs, parameters: dict[str, int]
    ) -> AsyncGenerator[dict[str, Array], None]:
        return self._client.stream(
            LM,
            inputs,
            first_seconds=SILENT_SECONDS,
            between_seconds=SILENT_SECONDS,
            outputs=("output_ids",),
            parameters=parameters,
        )

    def _inputs(self, request: LMRequest) -> Outputs:
        ids = vocabulary.asked(request)
        inputs: Outputs = {
            "input_ids": np.array(ids, np.int32),
            "input_lengths": np.array([len(ids)], np.int32),
            "request_output_len": np.array([request.max_tokens], np.int32),
            "min_length": np.array([request.min_tokens], np.int32),
            "runtime_top_k": np.array([request.sampling.top_k], np.int32),
            "runtime_top_p": np.array([request.sampling.top_p], np.float32),
            "random_seed": np.array([request.seed & SEED_MASK], np.uint64),
            "streaming": np.array([True]),
        }
        if not self._ours:  # ours knows its end
            inputs["end_id"] = inputs["pad_id"] = np.array([vocabulary.END], np.int32)
        return {name: array[None] for name, array in inputs.items()}


class InnerToken2Wav:
    """Implements `Token2WavBackend`."""

    def __init__(self, model: str, lookahead: int, cache_bytes: int) -> None:
        self.model, self.lookahead = model, lookahead
        self._packed: ByteLRU[bytes] = ByteLRU(cache_bytes)

    def begin(
        self, voice: Voice, *, with_prompt: bool, seed: int, speed: float, stream: bool
    ) -> InnerStream:
        about = {"with_prompt": with_prompt, "seed": seed & SEED_MASK, "speed": str(speed)}
        return InnerStream(self, self._bytes(voice), stream, about)

    async def close(self) -> None: ...

    def _bytes(self, voice: Voice) -> bytes:
        key = voice_key(voice)
        data = self._packed.get(key)
        if data is None:
            data = voice_bytes(voice)
            self._packed.put(key, data, len(data))
        return data


class InnerStream:
    """Implements `Token2WavStream`; `spoken` tokens of it are behind us."""

    def __init__(
        self, backend: InnerToken2Wav, voice: bytes, stream: bool, about: dict[str, Any]
    ) -> None:
        self._backend, self._stream, self._about = backend, stream, about
        self._voice = np.frombuffer(voice, np.uint8)
        self._session = uuid.uuid4().hex
        self._playback = Playback()
        self._spoken, self._over = 0, True

    async def advance(self, tokens: Sequence[int], *, final: bool) -> Floats:
        inputs: Outputs = {
            "target_speech_tokens": np.array(vocabulary.spoken(tokens), np.int32),
            "voice": self._voice,
            "finalize": np.array([final]),
        }
        if self._stream:
            inputs["token_offset"] = np.array([self._spoken], np.int32)
        playback, now = self._playback, time.monotonic()
        slack = max(0.0, playback.slack(now)) if playback.chunks else -1.0
        about = self._about | {"slack": str(slack)}
        call = ask(self._backend.model, inputs, ("waveform",), self._session, **about)
        self._over = False
        samples: Floats = output(await call.async_exec(), "waveform")
        self._over = final
        playback.send(samples, len(tokens), time.monotonic())
        self._spoken = len(tokens) - self._backend.lookahead
        return samples

    async def close(self) -> None:
        if not self._over:
            inputs: Outputs = {"target_speech_tokens": np.zeros(1, np.int32)}
            stop = ask(
                self._backend.model, inputs, ("waveform",), self._session, cancel=self._session
            )
            asyncio.get_running_loop().run_in_executor(None, stop.exec)
