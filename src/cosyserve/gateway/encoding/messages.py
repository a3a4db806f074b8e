"""What the gateway and a process that encodes say to each other."""

from __future__ import annotations

import msgspec

from cosyserve.audio import AudioFormat
from cosyserve.contracts import Floats
from cosyserve.engine.workers.messages import Reader


class OpenEncoder(msgspec.Struct, tag=True):
    """`rate`: of what is written; speech comes at its own."""

    id: int
    audio_format: AudioFormat
    rate: int


class Encode(msgspec.Struct, tag=True):
    """More samples."""

    id: int
    samples: Floats


class FinishEncoder(msgspec.Struct, tag=True):
    """There are no more samples."""

    id: int


class DropEncoder(msgspec.Struct, tag=True):
    """Nobody listens any more. The only message without an answer."""

    id: int


class Encoded(msgspec.Struct, tag=True):
    """The bytes that are ready."""

    data: bytes


class NotEncoded(msgspec.Struct, tag=True):
    """The samples, or the order of the messages, are wrong."""

    message: str


class EncoderFailed(msgspec.Struct, tag=True):
    """Something unforeseen, of which the log has more."""


ToEncoder = OpenEncoder | Encode | FinishEncoder | DropEncoder
FromEncoder = Encoded | NotEncoded | EncoderFailed

to_encoder: Reader[ToEncoder] = Reader(ToEncoder)
from_encoder: Reader[FromEncoder] = Reader(FromEncoder)
