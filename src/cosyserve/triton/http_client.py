"""Requests to a Triton server over HTTP, each answered once.

Tensors travel in the binary form of Triton's protocol, behind a JSON head.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import httpx

from cosyserve.errors import CosyError, WorkerError
from cosyserve.triton import tensors
from cosyserve.triton.errors import parse_error
from cosyserve.triton.tensors import Array, Tensors

HEAD_LENGTH = "Inference-Header-Content-Length"
CODES = {400: "INVALID_ARGUMENT", 404: "NOT_FOUND", 501: "UNIMPLEMENTED", 503: "UNAVAILABLE"}


class TritonHTTPClient:
    """A connection to one server."""

    def __init__(self, url: str) -> None:
        """`url` is the server's HTTP side; `http://` may be left out."""
        self.address = url if "://" in url else f"http://{url}"
        with self._as_our_errors():
            self._http = httpx.AsyncClient(base_url=self.address, trust_env=False)
            if (self._http.base_url.port or 0) > 65535:
                raise httpx.InvalidURL("a port is at most 65535")

    async def close(self) -> None:
        await self._http.aclose()

    async def ready(self, model: str, *, seconds: float) -> bool:
        """Whether the model answers requests. A server that is not there is an error."""
        with self._as_our_errors():
            answer = await self._http.get(f"/v2/models/{model}/ready", timeout=seconds)
        return answer.status_code == httpx.codes.OK

    async def config(self, model: str, *, seconds: float) -> dict[str, Any]:
        """The model's configuration, in the words of config.pbtxt."""
        config: dict[str, Any] = await self._get(f"/v2/models/{model}/config", seconds)
        return config

    async def statistics(self, *, seconds: float) -> list[dict[str, Any]]:
        """Counts and times of every model since the server's start."""
        answer = await self._get("/v2/models/stats", seconds)
        models: list[dict[str, Any]] = answer["model_stats"]
        return models

    async def infer(
        self, model: str, inputs: Tensors, *, seconds: float, request_id: str = ""
    ) -> dict[str, Array]:
        """One answer; a decoupled model has none over HTTP."""
        head, body = _encode(inputs, request_id)
        with self._as_our_errors():
            answer = await self._http.post(
                f"/v2/models/{model}/infer",
                content=head + body,
                headers={HEAD_LENGTH: str(len(head))},
                timeout=seconds,
            )
            self._check(answer)
            return _decode(answer)

    async def _get(self, path: str, seconds: float) -> Any:
        with self._as_our_errors():
            answer = await self._http.get(path, timeout=seconds)
            self._check(answer)
            return answer.json()

    def _check(self, answer: httpx.Response) -> None:
        if answer.status_code != httpx.codes.OK:
            message = answer.text
            with contextlib.suppress(ValueError, KeyError, TypeError):
                message = str(answer.json()["error"])
            code = CODES.get(answer.status_code, "")
            raise parse_error(code, message or f"status {answer.status_code}", self.address)

    @contextlib.contextmanager
    def _as_our_errors(self) -> Iterator[None]:
        try:
            yield
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            raise WorkerError(f"Triton at {self.address}: {reason}") from error
        except (ValueError, KeyError, TypeError, httpx.InvalidURL) as error:
            raise CosyError(f"Triton at {self.address}: not understood: {error}") from error


def _encode(inputs: Tensors, request_id: str) -> tuple[bytes, bytes]:
    blobs = [tensors.to_bytes(array) for array in inputs.values()]
    heads = [
        {
            "name": name,
            "datatype": tensors.type_name(array),
            "shape": array.shape,
            "parameters": {"binary_data_size": len(blob)},
        }
        for (name, array), blob in zip(inputs.items(), blobs, strict=True)
    ]
    head = {"id": request_id, "inputs": heads, "parameters": {"binary_data_output": True}}
    return json.dumps(head).encode(), b"".join(blobs)


def _decode(answer: httpx.Response) -> dict[str, Array]:
    data = answer.content
    place = int(answer.headers.get(HEAD_LENGTH, len(data)))
    arrays = {}
    for output in json.loads(data[:place]).get("outputs", ()):
        size = output["parameters"]["binary_data_size"]
        blob = data[place : place + size]
        place += size
        arrays[output["name"]] = tensors.from_bytes(blob, output["datatype"], output["shape"])
    return arrays
