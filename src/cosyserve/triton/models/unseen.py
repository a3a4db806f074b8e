"""Bytes from a model that streams to another model of the server. Knows no meaning of them.

Triton's stub (2.51) turns the tensors of streamed answers into numpy arrays on a thread of its own
that does not hold Python's lock, which now and then ends the process. The one type that it leaves
alone, because numpy has no such type, is BF16: so bytes travel in its clothes.
"""

from __future__ import annotations

from typing import Any

import torch
import triton_python_backend_utils as pb
from torch.utils.dlpack import from_dlpack

LENGTH = 4  # bytes in front that say how many follow


def tensor(name: str, data: bytes) -> Any:
    """A tensor of one row."""
    framed = bytearray(len(data).to_bytes(LENGTH, "little") + data + b"\0" * (len(data) % 2))
    row = torch.frombuffer(framed, dtype=torch.uint8).view(torch.bfloat16)
    return pb.Tensor.from_dlpack(name, row[None].clone())


def data(tensor: Any) -> bytes:
    row = from_dlpack(tensor.to_dlpack()).reshape(-1).view(torch.uint8)
    framed: bytes = row.numpy().tobytes()
    return framed[LENGTH : LENGTH + int.from_bytes(framed[:LENGTH], "little")]
