"""Requests of a Triton model as tasks of one event loop: many at once in one instance.

`execute` returns at once. A task ends when its client leaves, or when a request with the parameter
`cancel` names the task's own parameter `session`: requests between models can't be cancelled
otherwise. Neither is ever a client's request id.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb

from cosyserve.errors import InputError, OverloadError
from cosyserve.triton.models.instance.errors import triton_error
from cosyserve.triton.models.instance.leaving import LeavesAtOnce
from cosyserve.triton.models.instance.metrics import ModelMetrics
from cosyserve.triton.models.instance.parameters import ModelParameters

Array = npt.NDArray[Any]
Outputs = dict[str, Array]

FINAL = pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL
WATCH_SECONDS = 0.1  # from one look for clients that have left to the next
CANCELLED_SESSIONS = 1024  # that are remembered: a request may arrive after its own `cancel`
SUCCESS, FAILURE, CANCELLED = "request_success", "request_failure", "request_cancelled"
REQUEST_TIME, FIRST_TIME = "request_duration_us", "first_response_duration_us"
QUEUE_TIME = "queue_duration_us"  # of models that have a queue
TOTALS = (SUCCESS, FAILURE, CANCELLED, REQUEST_TIME, FIRST_TIME)


class AsyncTritonModel(LeavesAtOnce):
    """A model of Triton's Python backend; a subclass says what is loaded and answered."""

    def initialize(self, args: dict[str, str]) -> None:
        logging.basicConfig(
            stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(message)s"
        )
        config = json.loads(args["model_config"])
        self.name: str = config["name"]
        self.folder = Path(args["model_repository"], args["model_version"])
        self.decoupled = bool(config.get("model_transaction_policy", {}).get("decoupled"))
        self.settings = ModelParameters.of(config)
        self._limit = int(self.settings["max_requests"])
        self._tasks: dict[asyncio.Task[None], tuple[Sender, str]] = {}
        self._cancelled: deque[str] = deque(maxlen=CANCELLED_SESSIONS)
        self._totals = dict.fromkeys(TOTALS, 0.0)
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(ThreadPoolExecutor(2 * self._limit + 8))
        self.prepare()
        threading.Thread(target=self.loop.run_forever, name="answer", daemon=True).start()
        threading.Thread(target=self._watch, name="watch", daemon=True).start()

    def prepare(self) -> None:
        """Loads the model's parts."""
        raise NotImplementedError

    def answers(self, request: Request) -> AsyncGenerator[Outputs, None]:
        """The responses to a request; a model that is not decoupled gives exactly one."""
        raise NotImplementedError

    def forget(self, session: str) -> None:
        """Frees whatever is kept of a session between its requests."""

    def execute(self, requests: list[Any]) -> None:
        # What belongs to a raw request is Triton's again when this returns.
        for raw in requests:
            sender = Sender(raw.get_response_sender())
            try:
                request = Request(raw)
            except Exception as error:
                sender.send(_error_response(triton_error(error)), final=True)
            else:
                self.loop.call_soon_threadsafe(self._take, request, sender)

    def held(self) -> dict[str, int]:
        """Counts of what the model holds at this moment, by name."""
        return {"requests": len(self._tasks)}

    def totals(self) -> dict[str, float]:
        """What only grows, by name. Triton's own times end when `execute` returns."""
        return dict(self._totals)

    def _take(self, request: Request, sender: Sender) -> None:
        if cancelled := request.parameters.get("cancel"):
            self._cancel(str(cancelled))
            sender.send(pb.InferenceResponse([]), final=True)
            return
        if len(self._tasks) >= self._limit:
            error = OverloadError(f"{self._limit} requests are being answered already", 1.0)
            sender.send(_error_response(triton_error(error)), final=True)
            self._totals[FAILURE] += 1
            return
        session = str(request.parameters.get("session", ""))
        task = self.loop.create_task(self._answer(request, sender))
        self._tasks[task] = sender, session
        task.add_done_callback(self._tasks.pop)
        if session in self._cancelled:
            self.loop.call_soon(task.cancel)

    async def _answer(self, request: Request, sender: Sender) -> None:
        begun, first, outcome = time.monotonic(), 0.0, SUCCESS
        try:
            async with aclosing(self.answers(request)) as answers:
                async for outputs in answers:
                    tensors = [pb.Tensor(name, array) for name, array in outputs.items()]
                    sender.send(pb.InferenceResponse(tensors), final=not self.decoupled)
                    first = first or time.monotonic() - begun
            if self.decoupled:
                sender.send(None, final=True)
        except asyncio.CancelledError:  # nobody waits for an answer, but there must be an end
            outcome = CANCELLED
            error = pb.TritonError("cancelled", pb.TritonError.CANCELLED)
            sender.send(None if self.decoupled else _error_response(error), final=True)
        except Exception as error:
            outcome = FAILURE
            sender.send(_error_response(triton_error(error)), final=True)
        if outcome != SUCCESS:
            self._totals[outcome] += 1
        elif first:  # what has no answer is no inference, but a word about another
            self._totals[SUCCESS] += 1
            self._totals[FIRST_TIME] += 1e6 * first
            self._totals[REQUEST_TIME] += 1e6 * (time.monotonic() - begun)

    def _cancel(self, session: str) -> None:
        self._cancelled.append(session)
        for task, (_, task_session) in list(self._tasks.items()):
            if task_session == session:
                task.cancel()
        self.forget(session)

    def _watch(self) -> None:
        """Ends the tasks of clients that have left, and keeps the server's metrics up to date.

        It has a thread of its own: each look waits for the server.
        """
        metrics = ModelMetrics(self.name)
        while True:
            time.sleep(WATCH_SECONDS)
            metrics.show(self.held(), self.totals())
            for task, (sender, session) in list(self._tasks.items()):
                if not session and sender.cancelled:  # our own models send `cancel`
                    self.loop.call_soon_threadsafe(task.cancel)


def _error_response(error: pb.TritonError) -> Any:
    return pb.InferenceResponse([], error)


class Sender:
    """Sends the responses of one request. After the last one Triton must not even be asked whether
    the client has left: that would end the server."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._lock = threading.Lock()
        self._over = False

    def send(self, response: Any, *, final: bool) -> None:
        with self._lock:
            if self._over:  # cancelled right after its last answer
                return
            self._over = final
            flags = {"flags": FINAL} if final else {}
            self._raw.send(*([response] if response else []), **flags)

    @property
    def cancelled(self) -> bool:
        with self._lock:
            return not self._over and bool(self._raw.is_cancelled())


class Request:
    """The inputs and parameters of one request (a batch of one), copied out of Triton's memory."""

    def __init__(self, raw: Any) -> None:
        self._inputs: dict[str, Array] = {
            tensor.name(): tensor.as_numpy().copy() for tensor in raw.inputs()
        }
        self.outputs = frozenset(raw.requested_output_names())
        self.parameters: dict[str, Any] = json.loads(raw.parameters() or "{}")

    def array(self, name: str) -> Array | None:
        """An input without its batch dimension; None: it was not given."""
        array = self._inputs.get(name)
        if array is None:
            return None
        if array.shape[:1] != (1,):
            raise InputError(f"{name} has shape {list(array.shape)}: send one row per request")
        row: Array = array[0]
        return row

    def need(self, name: str) -> Array:
        """An input that must be there, without its batch dimension."""
        array = self.array(name)
        if array is None:
            raise InputError(f"{name} is missing")
        return array

    def get_float(self, name: str, default: float) -> float:
        return float(self._only(name, default))

    def get_int(self, name: str, default: int) -> int:
        return int(self._only(name, default))

    def get_bool(self, name: str, default: bool) -> bool:
        return bool(self._only(name, default))

    def _only(self, name: str, default: Any) -> Any:
        """The only element of an input."""
        array = self.array(name)
        if array is None:
            return default
        if array.size != 1:
            raise InputError(f"{name} must be one number, got shape {list(array.shape)}")
        return array.reshape(-1)[0]

    def text(self, name: str) -> str:
        """The only text of an input; "" when it was not given."""
        array = self.array(name)
        if array is None or not array.size:
            return ""
        if array.size != 1:
            raise InputError(f"{name} must be one text, got shape {list(array.shape)}")
        value = array.reshape(-1)[0]
        try:
            return value.decode() if isinstance(value, bytes) else str(value)
        except UnicodeDecodeError as error:
            raise InputError(f"{name} is not UTF-8") from error

    def wave(self) -> npt.NDArray[np.float32] | None:
        """The recording, without the silence that clients append to it."""
        wave = self.array("reference_wav")
        if wave is None:
            return None
        length = self.get_int("reference_wav_len", wave.size)
        if wave.ndim != 1 or not 0 < length <= wave.size:
            raise InputError(
                f"reference_wav_len is {length}, but reference_wav has {wave.size} samples"
            )
        return wave[:length].astype(np.float32)
