"""The port that the original's gRPC client asks for speech."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from urllib.parse import unquote
from uuid import uuid4

import grpc
import numpy as np
from google.protobuf.message import DecodeError

from cosyserve.audio import AudioFormat, encode
from cosyserve.audio.features import SPEECH_RATE
from cosyserve.errors import InputError
from cosyserve.gateway.connection.context import ConnectionContext
from cosyserve.gateway.connection.events import ErrorEvent, ServerEvent
from cosyserve.gateway.connection.utterance import ConnectionUtterance
from cosyserve.gateway.errors import Refusal, invalid_value
from cosyserve.gateway.keys import KeyRing, bearer_key
from cosyserve.gateway.limits import Gate
from cosyserve.gateway.original.fields import speech_fields
from cosyserve.gateway.original.grpc_messages import METHOD, ONEOF, SERVICE, Request, Response
from cosyserve.gateway.speech.body import SpeechFields
from cosyserve.gateway.speech.routes import check_text
from cosyserve.gateway.telemetry.record import Record

PATH = f"/{SERVICE}/{METHOD}"
GRACE_SECONDS = 1.0  # for calls that are still open at the end
LONGEST_MS = 2**31 - 1  # that gRPC counts
CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}


@asynccontextmanager
async def grpc_server(
    context: ConnectionContext, keys: KeyRing, address: str, max_conc: int
) -> AsyncIterator[int]:
    """Serves at the address inside the `async with` -> the port. Of more than `max_conc` calls
    that have asked for speech, the rest is refused with RESOURCE_EXHAUSTED."""
    limits = context.limits
    age = min(int(1000 * limits.seconds), LONGEST_MS)
    server = grpc.aio.server(
        maximum_concurrent_rpcs=limits.requests,  # those that have not asked yet included
        options=[
            ("grpc.max_receive_message_length", limits.body_bytes),
            ("grpc.max_connection_age_ms", age),
            ("grpc.max_connection_age_grace_ms", age),
            ("grpc.so_reuseport", 0),  # a port that is taken is an error
        ],
    )
    # As a method of many messages, though there is one: a handler of one is called when it came,
    # and nobody would look at the key of a client that sends none.
    inference = grpc.stream_stream_rpc_method_handler(Inference(context, keys, max_conc).answer)
    handlers = grpc.method_handlers_generic_handler(SERVICE, {METHOD: inference})
    server.add_generic_rpc_handlers((handlers,))
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise InputError(
            f"can't listen on {address}: choose another port with --legacy-grpc-port"
        ) from error
    await server.start()
    try:
        yield port
    finally:
        await server.stop(GRACE_SECONDS)


class Inference:
    """The method of the service. A call whose client leaves is cancelled by gRPC."""

    def __init__(self, context: ConnectionContext, keys: KeyRing, max_conc: int) -> None:
        self._context = context
        self._keys = keys
        self._asked = Gate(max_conc, max_conc)

    async def answer(self, _: object, call: grpc.aio.ServicerContext) -> None:
        record = Record(f"req_{uuid4().hex}", "GRPC", PATH, client=_address(call))
        ledger, key = self._context.ledger, None
        with ExitStack() as admitted:
            try:
                if self._keys:
                    key = record.client = self._keys.name(_sent_key(call))
                data = await self._receive(call)
                admitted.enter_context(self._asked.admit(None))
                fields, text = await self._read(data)
            except Exception as error:
                refusal = ledger.refuse(record, error)
                record.status = refusal.status_code
                ledger.finish(record, PATH)
                await call.abort(_code(record.status), refusal.detail)
            await self._speak(
                call, ConnectionUtterance(self._context, fields, text, record, key), record
            )

    async def _receive(self, call: grpc.aio.ServicerContext) -> bytes:
        seconds = self._context.limits.idle_seconds
        try:
            async with asyncio.timeout(seconds):
                data = await call.read()
        except TimeoutError as error:
            message = f"no request came for {seconds:g} s"
            raise Refusal(408, message, "timeout") from error
        if not isinstance(data, bytes):
            raise Refusal(400, "the call ended without a request", "invalid_request")
        return data

    async def _speak(
        self, call: grpc.aio.ServicerContext, utterance: ConnectionUtterance, record: Record
    ) -> None:
        fault = ""

        async def send(item: ServerEvent | bytes) -> None:
            nonlocal fault
            if isinstance(item, ErrorEvent):
                fault = item.error.message
            elif isinstance(item, bytes):
                await call.write(Response(tts_audio=item).SerializeToString())

        await utterance.run(send)
        if fault:
            await call.abort(_code(record.status), fault)

    async def _read(self, data: bytes) -> tuple[SpeechFields, str]:
        """How to speak, and what."""
        try:
            request = Request.FromString(data)
        except DecodeError as error:
            raise Refusal(400, "this is no cosyvoice.Request", "invalid_request") from error
        kind = request.WhichOneof(ONEOF)
        if kind is None:
            raise Refusal(400, "the request has no payload", "invalid_request")
        payload = getattr(request, kind)
        values = {field.name: value for field, value in payload.ListFields()}
        text = values.pop("tts_text", "")
        check_text(text, self._context.limits, "tts_text")
        if kind == "instruct_request" and not payload.instruct_text.strip():
            raise invalid_value("say how to speak", ["instruct_text"])
        audio = values.pop("prompt_audio", b"")
        if kind in ("zero_shot_request", "cross_lingual_request"):
            values["prompt_wav"] = await asyncio.to_thread(_with_header, audio)
        return await speech_fields(self._context, **values), text


def _with_header(audio: bytes) -> bytes:
    """Bare 16-bit samples as a file, which is how all other recordings come."""
    if not audio or len(audio) % 2:
        raise invalid_value("16-bit samples, 16 000 a second, are expected", ["prompt_audio"])
    samples = np.frombuffer(audio, "<i2").astype(np.float32) / 32768
    return encode(samples, AudioFormat.WAV, rate=SPEECH_RATE, out_rate=SPEECH_RATE)


def _address(call: grpc.aio.ServicerContext) -> str:
    """Of the client, without its port; gRPC writes `ipv6:%5B::1%5D:50051`."""
    address = str(call.peer()).rpartition(":")[0].partition(":")[2]
    return unquote(address).strip("[]")


def _sent_key(call: grpc.aio.ServicerContext) -> bytes | None:
    metadata = dict(call.invocation_metadata() or ())
    return bearer_key(str(metadata.get("authorization", "")))


def _code(status: int) -> grpc.StatusCode:
    return CODES.get(status, grpc.StatusCode.INTERNAL)
