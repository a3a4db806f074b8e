"""Arrays as Triton's tensors: names of types, and their bytes.

Texts are arrays of `object`; on the wire each has its length before it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cosyserve.errors import InputError

Array = npt.NDArray[Any]
Tensors = Mapping[str, Array]

TYPES: dict[str, type] = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "INT32": np.int32,
    "INT64": np.int64,
    "UINT64": np.uint64,
    "FP16": np.float16,
    "FP32": np.float32,
    "BYTES": np.object_,
}
NAMES = {kind: name for name, kind in TYPES.items()}
LENGTH = struct.Struct("<I")


def text(value: str) -> Array:
    """One text, as a batch of one."""
    try:
        return np.array([[value.encode()]], dtype=np.object_)
    except UnicodeEncodeError as error:
        raise InputError("text holds half a surrogate pair: send valid Unicode") from error


def type_name(array: Array) -> str:
    return NAMES[array.dtype.type]


def to_bytes(array: Array) -> bytes:
    if array.dtype != np.object_:
        return np.ascontiguousarray(array).tobytes()
    return b"".join(LENGTH.pack(len(item)) + item for item in array.ravel())


def from_bytes(data: bytes, name: str, shape: Sequence[int]) -> Array:
    """The array of a tensor's bytes; bytes that don't fit are a ValueError."""
    if name not in TYPES:
        raise ValueError(f"a tensor of type {name} is not understood")
    if name == "BYTES":
        flat = np.empty(len(items := list(_texts(data))), np.object_)
        flat[:] = items
        return flat.reshape(shape)
    return np.frombuffer(data, TYPES[name]).reshape(shape)


def _texts(data: bytes) -> Iterator[bytes]:
    place = 0
    while place < len(data):
        if len(data) < place + LENGTH.size:
            raise ValueError("a text's length is cut off")
        (length,) = LENGTH.unpack_from(data, place)
        place += LENGTH.size
        if len(data) < place + length:
            raise ValueError("a text is cut off")
        yield data[place : place + length]
        place += length
