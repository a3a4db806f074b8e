"""Arrays to bytes and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.errors import InputError
from cosyserve.triton import tensors

KINDS = [np.bool_, np.uint8, np.int32, np.int64, np.uint64, np.float16, np.float32]


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_come_back(kind: type) -> None:
    array = np.arange(12).reshape(2, 1, 6).astype(kind)[:, :, ::2]
    name = tensors.type_name(array)
    assert (tensors.from_bytes(tensors.to_bytes(array), name, array.shape) == array).all()


@given(st.lists(st.binary(max_size=20), max_size=6))
def test_texts_come_back(texts: list[bytes]) -> None:
    array = np.empty((1, len(texts)), np.object_)
    array[0] = texts
    found = tensors.from_bytes(tensors.to_bytes(array), tensors.type_name(array), array.shape)
    assert found.tolist() == [texts]


@pytest.mark.parametrize(
    ("data", "name", "shape", "told"),
    [
        (b"\0" * 8, "FP32", [3], "reshape"),
        (b"\0" * 7, "FP32", [2], "size"),
        (b"\0" * 8, "FP64", [1], "FP64"),
        (b"\x05\0\0\0ab", "BYTES", [1], "cut off"),
        (b"\x05\0", "BYTES", [1], "cut off"),
        (b"\x01\0\0\0a", "BYTES", [2], "reshape"),
    ],
)
def test_what_does_not_fit_is_told(data: bytes, name: str, shape: list[int], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        tensors.from_bytes(data, name, shape)


def test_half_a_character_is_no_text() -> None:
    with pytest.raises(InputError, match="surrogate"):
        tensors.text("\ud800")
