from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from cosyserve.checkpoints.plain_files import read_json, read_state, read_tensors, read_text
from cosyserve.errors import CheckpointError
from tests.checkpoints.memory import PEAK_RESET, peak_of

TENSOR = torch.rand(40, 50)


class Command:
    """Code inside a pickle."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch CANARY",)


def bomb() -> Any:
    """A tuple that is small in memory and endless to walk through."""
    value: Any = ()
    for _ in range(40):
        value = (value, value)
    return value


def refusal(file: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        read_state(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert len(str(caught.value)) < 600 + len(str(file))
    return str(caught.value)


def archive(file: Path, pickled: bytes) -> Path:
    with zipfile.ZipFile(file, "w") as zipped:
        zipped.writestr("a/data.pkl", pickled)
        zipped.writestr("a/version", "3\n")
    return file


def test_a_state_is_read_as_it_was_saved(tmp_path: Path) -> None:
    state = {"a": TENSOR, "b": TENSOR.T, "c": TENSOR[3:5, ::2], "d": TENSOR, "n": torch.tensor(3)}
    state["e"] = torch.nn.Parameter(TENSOR)
    torch.save(state | {"epoch": 3, "step": 100}, tmp_path / "a.pt")
    actual = read_state(tmp_path / "a.pt")
    assert actual.keys() == state.keys()
    assert all(torch.equal(actual[key], state[key]) for key in state)
    assert not any(value.requires_grad for value in actual.values())


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        "text",
        [1.0],
        {"bad": {"inner": TENSOR}},
        bomb(),
        Command(),
        TENSOR.to_sparse(),
        TENSOR.to("meta"),
        TENSOR.to(torch.complex64),
        torch.zeros(1).expand(1 << 20, 1 << 20),
        torch.nested.nested_tensor([TENSOR, TENSOR[1:]]),
    ],
)
def test_what_is_no_plain_tensor(
    value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for content in ({"good": TENSOR, "bad": value}, value, [value]):
        torch.save(content, tmp_path / "a.pt")
        message = refusal(tmp_path / "a.pt")
        assert "bad" in message or "not a dict" in message or "damaged" in message
    assert os.listdir(tmp_path) == ["a.pt"]


def test_keys_that_are_no_names(tmp_path: Path) -> None:
    for key in (3, None, (1, 2), "x" * 10**6):
        torch.save({key: TENSOR}, tmp_path / "a.pt")
        assert "a key that is not the name of a tensor" in refusal(tmp_path / "a.pt")


def test_pickles_that_torch_did_not_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "a.pt"
    for protocol in range(5):
        file.write_bytes(pickle.dumps({"a": Command()}, protocol))
        assert "damaged, or not plain tensors" in refusal(file)
        assert "damaged" in refusal(archive(file, pickle.dumps({"a": Command()}, protocol)))
    torch.save({"a": TENSOR}, file, _use_new_zipfile_serialization=False)
    assert "File is not a zip file" in refusal(file)
    assert os.listdir(tmp_path) == ["a.pt"]


def detonate(file: Path) -> None:
    doubling = b")q\x00" + b"h\x00h\x00\x86q\x00" * 60
    assert "used twice" in refusal(archive(file, b"\x80\x02}(" + doubling + b"tK\x01s."))
    assert "a pickle of 4194304 bytes" in refusal(archive(file, b"\x80\x02})" * (1 << 20)))
    gigabytes = b"\x80\x02cbuiltins\nbytearray\n\x8a\x05" + (1 << 35).to_bytes(5, "little")
    refusal(archive(file, gigabytes + b"\x85R."))
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("a/data.pkl", bytes(1 << 24))
    assert "its contents are compressed" in refusal(file)
    torch.save({"a": torch.zeros(1).expand(1 << 30)}, file)
    assert "'a' is no plain tensor" in refusal(file)


@pytest.mark.skipif(not PEAK_RESET.exists(), reason="needs Linux's /proc")
def test_bombs(tmp_path: Path) -> None:
    assert peak_of(detonate, tmp_path / "a.pt") < 100 << 20


def test_damaged_archives(tmp_path: Path) -> None:
    file = tmp_path / "a.pt"
    torch.save({"a": TENSOR, "b": TENSOR + 1}, file)
    data = file.read_bytes()
    for size in range(0, len(data), len(data) // 50):
        file.write_bytes(data[:size])
        refusal(file)
    file.write_bytes(data)
    contents = zipfile.ZipFile(file)
    entries = {name: contents.read(name) for name in contents.namelist()}
    with zipfile.ZipFile(file, "w") as zipped:
        for name, entry in entries.items():
            zipped.writestr(name, entry if name.endswith("data.pkl") else entry[:4])
    assert "damaged" in refusal(file)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1234567",
        (10**15).to_bytes(8, "little") + b"{}",
        (1 << 27).to_bytes(8, "little") + b"{" + b" " * (1 << 20),
        (9).to_bytes(8, "little") + b'{"a": {}}',
        (1 << 16).to_bytes(8, "little") + b'{"a":' * (1 << 14),
        (62).to_bytes(8, "little")
        + b'{"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}        1234',
    ],
)
def test_safetensors_headers(data: bytes, tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    file.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"a\.safetensors: not a whole safetensors file"):
        read_tensors(file)


@pytest.mark.parametrize("text", [b"", b"[]", b"7", b"{", b"\xff", b'{"a":' * 10**5, b"[" * 10**6])
def test_json_that_is_no_object(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(text)
    with pytest.raises(CheckpointError, match=r"a\.json: "):
        read_json(tmp_path / "a.json")


def test_files_that_never_end_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "long").write_bytes(b"x" * 100)
    for name in ("pipe", "zero", "."):
        for read in (read_json, read_tensors, read_state):
            with pytest.raises(CheckpointError, match="not a file"):
                read(tmp_path / name)
    with pytest.raises(CheckpointError, match="long: larger than the 99 bytes"):
        read_text(tmp_path / "long", 99)
    assert read_text(tmp_path / "long", 100)
