"""One Triton server behind an engine: what it serves, whether it is ready, how busy it is."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from cosyserve.contracts import MEL_BINS, ModelInfo, Sampling, Voice, VoiceFormat
from cosyserve.errors import CosyError, InputError, WorkerError
from cosyserve.triton.client import TritonClient
from cosyserve.triton.options import own_sampling
from cosyserve.voices.store import DEFAULT

CHECK_EVERY = 0.5  # seconds
CHECK_SECONDS = 2.0  # within which a server must say that it is ready
HUNG_AFTER = 3  # checks that failed. Pings of gRPC would do, but Triton takes them for an attack

Answer = TypeVar("Answer")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServedModel:
    """What the configuration of a server's speech model says."""

    name: str
    family: str
    fingerprint: str
    speech: bool
    shipped_voices: tuple[str, ...]  # that the model brings along
    takes_voices: bool  # whole ones, and options; the original's takes recordings and nothing else
    sampling: Sampling = field(default=Sampling(), compare=False)  # as its LM is best sampled

    @classmethod
    def of(cls, config: dict[str, Any]) -> ServedModel:
        if not config.get("model_transaction_policy", {}).get("decoupled"):
            raise InputError(
                f"the model {config['name']!r} gives one answer: name one that streams, "
                "e.g. triton://HOST:8001/cosyvoice2_streaming"
            )
        inputs = {tensor["name"] for tensor in config.get("input", ())}
        parameters = config.get("parameters", {})
        values = {key: value.get("string_value", "") for key, value in parameters.items()}
        return cls(
            name=values.get("model", config["name"]),
            family=values.get("family", "cosyvoice2"),
            fingerprint=values.get("fingerprint", ""),
            speech=values.get("speech", "true") == "true",
            shipped_voices=tuple(filter(None, values.get("shipped_voices", DEFAULT).split(","))),
            takes_voices={"voice", "options"} <= inputs,
            sampling=_sampling(values),
        )

    @property
    def info(self) -> ModelInfo:
        """What a gateway knows of the model. Its voices are empty: only the server has them."""
        nothing = np.zeros(0, np.int32), np.zeros((0, MEL_BINS), np.float32), np.ones(1, np.float32)
        own = {
            name: Voice("", *nothing, name=name, family=self.family) for name in self.shipped_voices
        }
        wanted = VoiceFormat(self.family, self.fingerprint)
        return ModelInfo(self.name, wanted, self.speech, own, sampling=self.sampling)


def _sampling(settings: dict[str, str]) -> Sampling:
    """As a repository of ours says; another's says nothing, or what nobody here knows."""
    try:
        return own_sampling(settings, Sampling(**json.loads(settings["sampling"])))
    except (InputError, LookupError, TypeError, ValueError):
        return Sampling()


class Upstream:
    """A server and the task that watches it. Belongs to the running event loop."""

    def __init__(self, address: str, models: Sequence[str]) -> None:
        """`models`: names of speech models, one of which the server has."""
        self.address, self.model = address, models[0]
        self._models = models
        self.client = TritonClient(address)
        self.served: ServedModel | None = None
        self.ready = False
        self.trouble: CosyError | None = None
        self.load = 0  # requests on their way
        self._expected: ServedModel | None = None
        self._failed_checks = 0  # in a row
        self._hung = asyncio.Event()
        self._watch = asyncio.create_task(self._keep_watching())

    async def close(self) -> None:
        self._watch.cancel()
        await asyncio.wait([self._watch])
        await self.client.close()

    def expect(self, served: ServedModel) -> None:
        """Leaves the server out when it serves anything else."""
        self._expected = served
        if self.ready and self.served != served:
            self.leave_out(self._other_model())

    def leave_out(self, reason: CosyError) -> None:
        """No request goes to the server until it says that it is ready."""
        if self.ready or str(reason) != str(self.trouble):
            log.warning("Triton at %s is left out: %s", self.address, reason)
        self.ready, self.trouble = False, reason

    async def while_alive(self, pending: Coroutine[Any, Any, Answer]) -> Answer:
        """Awaits an answer of the server; a WorkerError when the server hangs meanwhile."""
        answer, hung = asyncio.create_task(pending), asyncio.create_task(self._hung.wait())
        try:
            await asyncio.wait((answer, hung), return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            raise WorkerError(f"Triton at {self.address} hangs")
        finally:
            answer.cancel()
            hung.cancel()
            await asyncio.wait((answer, hung))

    async def _keep_watching(self) -> None:
        while True:
            try:
                await self._check()
                self._failed_checks = 0
                self._hung.clear()
            except Exception as error:  # whatever it is, the server may be well the next time
                ours = error if isinstance(error, CosyError) else CosyError(f"odd: {error!r}")
                self.leave_out(ours)
                self._failed_checks += 1
                if self._failed_checks == HUNG_AFTER:
                    self._hung.set()
            await asyncio.sleep(CHECK_EVERY)

    async def _check(self) -> None:
        """A server that answers does not hang: of an unloaded model it finishes what it speaks."""
        names = [self.model] if self.ready else self._models
        for name in names:
            if await self.client.ready(name, seconds=CHECK_SECONDS):
                self.model = name
                break
        else:
            known = " or ".join(map(repr, names))
            self.leave_out(WorkerError(f"the model {known} is not ready"))
            return
        if not self.ready:  # a server that comes back may have another model
            config = await self.client.config(self.model, seconds=CHECK_SECONDS)
            self.served = ServedModel.of(config)
            if self._expected not in (None, self.served):
                raise self._other_model()
            log.info("Triton at %s is ready", self.address)
            self.ready, self.trouble = True, None

    def _other_model(self) -> CosyError:
        return InputError(f"it serves {self.served}, the others {self._expected}")
