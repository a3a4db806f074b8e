"""Errors whose message tells what to change."""

from __future__ import annotations

from typing import ClassVar


class CosyError(Exception):
    """An error whose message tells its reader what to change.

    CosyError
      InputError            a request that can't be done as asked
      AudioError            bytes that are no audio
      CheckpointError       a broken model folder
      VoiceError            a broken voice
        MissingVoiceError   no voice of that name
        ConsentError        nobody has agreed to a voice
      StoreError            voices can't be read or written now
      OverloadError         no place in the queue
      SlowReaderError       more audio than may wait for a client
      WorkerError           no process that computes
      LLMServerError        an LLM server that does not speak

    A process tells another one of an error by the name of its class here (`kind`).
    """

    kinds: ClassVar[dict[str, type[CosyError]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__ == __name__:
            CosyError.kinds[cls.__name__] = cls

    @property
    def kind(self) -> str:
        """The nearest class that every process knows."""
        return next(cls.__name__ for cls in type(self).__mro__ if cls.__module__ == __name__)

    @staticmethod
    def of_kind(kind: str, message: str, retry_after: float = 0.0) -> CosyError:
        """The error that another process told of."""
        if kind == OverloadError.__name__:
            return OverloadError(message, retry_after)
        return CosyError.kinds.get(kind, CosyError)(message)


class InputError(CosyError):
    """A request asks for something that can't be done as asked."""


class AudioError(CosyError):
    """Bytes that should be audio are not, or exceed a limit."""


class CheckpointError(CosyError):
    """A model folder or file is not what it should be; the message names file and key."""


class VoiceError(CosyError):
    """A voice is broken, or was made by another model."""


class MissingVoiceError(VoiceError):
    """There is no voice of that name."""


class ConsentError(VoiceError):
    """A voice would be learned without the consent that the operator wants."""


class StoreError(CosyError):
    """The place where voices are kept can't be read or written now."""


class OverloadError(CosyError):
    """The queue is full. `retry_after` seconds are a fair guess of when it is not."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class SlowReaderError(CosyError):
    """A client reads its speech so slowly that more of it waits than may."""


class WorkerError(CosyError):
    """The process that computed the speech has died or is not there yet."""


class LLMServerError(CosyError):
    """An LLM server answers with something that is no speech, or refuses a request."""
