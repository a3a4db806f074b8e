"""One request to a speech model on a Triton server, every piece of its answer timed as it arrives.

The model is `cosyvoice2`, the original's or ours.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

import numpy as np

from cosyserve.audio import AudioFormat, encode, resample
from cosyserve.audio.features import SPEECH_RATE
from cosyserve.bench.client import NoServerError, leading_silence_seconds
from cosyserve.bench.items import Item
from cosyserve.bench.playback import Arrival
from cosyserve.bench.sample import Failure, Sample
from cosyserve.contracts import SAMPLE_RATE, Floats
from cosyserve.errors import CosyError, InputError, WorkerError
from cosyserve.triton import tensors
from cosyserve.triton.http_client import TritonHTTPClient
from cosyserve.triton.speech import speech_inputs, waveform

if TYPE_CHECKING:
    from cosyserve.triton.client import TritonClient

PROBE_SECONDS = 5.0


@dataclass(frozen=True)
class TritonEndpoint:
    """A server, the model to ask it for, and how."""

    address: str
    protocol: Literal["grpc", "http"] = "grpc"
    model: str = "cosyvoice2"
    streaming: bool = False
    recordings: bool = True  # False: the server's own voice, whatever an item says
    timeout: float = 200.0  # seconds, for a whole request

    def __post_init__(self) -> None:
        if not self.timeout > 0:
            raise InputError(f"the timeout must be more than 0 s, got {self.timeout:g}")
        if self.streaming and self.protocol == "http":
            raise InputError("Triton does not stream over HTTP: use gRPC")

    def client(self) -> TritonSpeechClient:
        return TritonSpeechClient(self)


class TritonSpeechClient:
    """Sends requests and times them. Belongs to the running event loop."""

    def __init__(self, endpoint: TritonEndpoint) -> None:
        self._endpoint = endpoint
        self._client = _connected(endpoint)
        self._begun = time.perf_counter()

    async def check_server(self) -> None:
        try:
            ready = await self._client.ready(self._endpoint.model, seconds=PROBE_SECONDS)
        except WorkerError as error:
            raise NoServerError(f"no server answers: {error}") from error
        if not ready:
            raise InputError(f"{self._client.address} has no model {self._endpoint.model!r} ready")

    async def statistics(self) -> list[dict[str, Any]]:
        return await self._client.statistics(seconds=PROBE_SECONDS)

    async def config(self) -> dict[str, Any]:
        return await self._client.config(self._endpoint.model, seconds=PROBE_SECONDS)

    async def aclose(self) -> None:
        await self._client.close()

    async def speak(self, item: Item) -> tuple[Sample, bytes]:
        """The times of a request, and its audio. A request that fails is a sample, too."""
        inputs = await asyncio.to_thread(_inputs, item, self._endpoint.recordings)
        chunks: list[Floats] = []
        arrivals: list[Arrival] = []
        failure = None
        sent = time.perf_counter()
        try:
            async with asyncio.timeout(self._endpoint.timeout):
                async for chunk in self._chunks(inputs):
                    arrivals.append(Arrival(time.perf_counter() - sent, len(chunk) / SAMPLE_RATE))
                    chunks.append(chunk)
            if not any(map(len, chunks)):
                failure = Failure("empty", "an answer without audio")
        except TimeoutError:
            failure = Failure("timeout", f"not finished after {self._endpoint.timeout:g} s")
        except CosyError as error:
            failure = Failure(type(error).__name__, str(error))
        total = time.perf_counter() - sent
        audio = encode(np.concatenate(chunks), AudioFormat.PCM) if chunks else b""
        silence = leading_silence_seconds(audio)
        sample = Sample(item.id, sent - self._begun, total, tuple(arrivals), failure, silence)
        return sample, audio

    async def _chunks(self, inputs: tensors.Tensors) -> AsyncIterator[Floats]:
        model, name = self._endpoint.model, str(uuid4())
        seconds = 2 * self._endpoint.timeout  # the limit of `speak` comes first
        if isinstance(self._client, TritonHTTPClient) or not self._endpoint.streaming:
            answer = await self._client.infer(model, inputs, seconds=seconds, request_id=name)
            yield waveform(answer)
            return
        async with aclosing(
            self._client.stream(
                model, inputs, first_seconds=seconds, between_seconds=seconds, request_id=name
            )
        ) as answers:
            async for answer in answers:
                yield waveform(answer)


def _connected(endpoint: TritonEndpoint) -> TritonClient | TritonHTTPClient:
    if endpoint.protocol == "http":
        return TritonHTTPClient(endpoint.address)
    try:
        from cosyserve.triton.client import TritonClient, is_address
    except ImportError:
        raise InputError("gRPC needs a package: pip install 'cosyserve[triton]'") from None
    if not is_address(endpoint.address):
        raise InputError(f"{endpoint.address!r:.200} is no server's address: write HOST:8001")
    return TritonClient(endpoint.address)


def _inputs(item: Item, recordings: bool) -> tensors.Tensors:
    recording = item.recording() if recordings else None
    if recording is None:
        return speech_inputs(item.text)
    samples = resample(recording.samples, recording.rate, SPEECH_RATE)
    return speech_inputs(item.text, samples, recording.text)
