"""Requests to a Triton server over gRPC, answered once or as a stream."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from tritonclient.grpc import service_pb2 as messages
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from cosyserve.errors import CosyError, WorkerError
from cosyserve.triton import tensors
from cosyserve.triton.errors import parse_error
from cosyserve.triton.tensors import Array, Tensors

OPTIONS = (
    # A server that is back is to be found at once.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A proxy that the environment names is for the world outside.
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
)


def is_address(place: str) -> bool:
    """Whether it is host:port; gRPC would take a port beyond the last one for another."""
    host, _, port = place.rpartition(":")
    return bool(host) and port.isdecimal() and 0 < int(port[:6]) < 65536


class TritonClient:
    """A connection to one server."""

    def __init__(self, address: str) -> None:
        """`address` is host:port of the server's gRPC side. The client belongs to the running
        event loop."""
        self.address = address
        self._channel = grpc.aio.insecure_channel(address, options=OPTIONS)
        self._stub = GRPCInferenceServiceStub(self._channel)
        # A stream of ours has one request. To open it with that request, which the stub can't,
        # spares a turn between threads.
        self._stream_infer = self._channel.unary_stream(
            "/inference.GRPCInferenceService/ModelStreamInfer",
            request_serializer=messages.ModelInferRequest.SerializeToString,
            response_deserializer=messages.ModelStreamInferResponse.FromString,
        )

    async def close(self) -> None:
        await self._channel.close()

    async def ready(self, model: str, *, seconds: float) -> bool:
        """Whether the model answers requests. A server that is not there is an error."""
        request = messages.ModelReadyRequest(name=model)
        with self._as_our_errors():
            answer = await self._stub.ModelReady(request, timeout=seconds)
        return bool(answer.ready)

    async def config(self, model: str, *, seconds: float) -> dict[str, Any]:
        """The model's configuration, in the words of config.pbtxt."""
        request = messages.ModelConfigRequest(name=model)
        with self._as_our_errors():
            answer = await self._stub.ModelConfig(request, timeout=seconds)
        return _plain(answer.config)

    async def statistics(self, *, seconds: float) -> list[dict[str, Any]]:
        """Counts and times of every model since the server's start."""
        request = messages.ModelStatisticsRequest()
        with self._as_our_errors():
            answer = await self._stub.ModelStatistics(request, timeout=seconds)
        return [_plain(model) for model in answer.model_stats]

    async def infer(
        self, model: str, inputs: Tensors, *, seconds: float, request_id: str = ""
    ) -> dict[str, Array]:
        """One answer. Cancelling the caller cancels the request."""
        request = _request(model, inputs, request_id)
        with self._as_our_errors():
            answer = await self._stub.ModelInfer(request, timeout=seconds)
            return _outputs(answer)

    async def stream(
        self,
        model: str,
        inputs: Tensors,
        *,
        first_seconds: float,
        between_seconds: float,
        request_id: str = "",
        outputs: Sequence[str] = (),
        parameters: Mapping[str, int] | None = None,
    ) -> AsyncGenerator[dict[str, Array], None]:
        """Every answer as it comes, of a decoupled model or another. Closing it cancels.

        `outputs` names the outputs to send; empty: all.
        """
        request = _request(model, inputs, request_id)
        for name in outputs:
            request.outputs.add(name=name)
        for key, value in (parameters or {}).items():
            request.parameters[key].int64_param = value
        request.parameters["triton_enable_empty_final_response"].bool_param = True
        call = self._stream_infer(request)
        limit, ended, failure = first_seconds, False, None
        try:
            while True:
                with self._as_our_errors(limit):
                    async with asyncio.timeout(limit):
                        answer = await call.read()
                if answer is grpc.aio.EOF:
                    break
                # A request that has ended must not be cancelled: the server would wait for it at
                # its own end. So an error is raised when the server has hung up.
                response = answer.infer_response
                if answer.error_message:
                    failure = parse_error("", answer.error_message, self.address)
                elif response.outputs:
                    with self._as_our_errors():
                        arrays = _outputs(response)
                    yield arrays
                    limit = between_seconds
                ended = response.parameters["triton_final_response"].bool_param
        finally:
            call.cancel()
        if failure or not ended:
            raise failure or WorkerError(f"Triton at {self.address}: ended before its answer did")

    @contextlib.contextmanager
    def _as_our_errors(self, limit: float = 0.0) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise WorkerError(f"Triton at {self.address}: silent for {limit:g} s") from None
        except grpc.aio.AioRpcError as error:
            raise parse_error(error.code().name, error.details() or "", self.address) from error
        except ValueError as error:
            raise CosyError(f"Triton at {self.address}: {error}") from error


def _request(model: str, inputs: Tensors, request_id: str) -> Any:
    request = messages.ModelInferRequest(model_name=model, id=request_id)
    for name, array in inputs.items():
        kind = tensors.type_name(array)
        request.inputs.add(name=name, datatype=kind, shape=array.shape)
        request.raw_input_contents.append(tensors.to_bytes(array))
    return request


def _outputs(answer: Any) -> dict[str, Array]:
    pairs = zip(answer.outputs, answer.raw_output_contents, strict=True)
    return {out.name: tensors.from_bytes(data, out.datatype, out.shape) for out, data in pairs}


def _plain(message: Any) -> dict[str, Any]:
    data: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    return data
