from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cosyserve.errors import VoiceError
from cosyserve.text import byte_tokenizer
from cosyserve.voices.file import from_bytes, to_bytes
from cosyserve.voices.spk2info import import_spk2info

REAL = os.environ.get("COSYSERVE_SPK2INFO", "")  # a published speaker file
TOKENIZER = byte_tokenizer()


def triton() -> dict[str, Any]:
    return {
        "name": "someone",
        "spk_id": "001",
        "prompt_text": "hello",
        "prompt_text_token": torch.tensor([[1, 2]], dtype=torch.int32),
        "speech_token": torch.arange(5, dtype=torch.int32)[None],
        "speech_feat": torch.rand(1, 10, 80),
        "embedding": torch.rand(1, 192),
    }


def python_api() -> dict[str, Any]:
    tokens = torch.arange(6, dtype=torch.int32)[None]
    return {
        "prompt_text": torch.tensor([TOKENIZER.encode("hi<|endofprompt|>")], dtype=torch.int32),
        "prompt_text_len": torch.tensor([3]),
        "llm_prompt_speech_token": tokens,
        "flow_prompt_speech_token": tokens,
        "prompt_speech_feat": torch.rand(1, 11, 80),
        "llm_embedding": torch.rand(1, 192),
        "flow_embedding": torch.rand(1, 192).half(),
    }


def imported(tmp_path: Path, content: Any, tokenizer: Any = TOKENIZER) -> dict[str, Any]:
    torch.save(content, tmp_path / "spk2info.pt")
    return import_spk2info(tmp_path / "spk2info.pt", tokenizer)


def test_all_forms(tmp_path: Path) -> None:
    content = {"a": triton(), "b": python_api(), "c": {"embedding": torch.rand(1, 192)}}
    voices = imported(tmp_path, content)
    assert [voice.name for voice in voices.values()] == ["a", "b", "c"]
    assert [voice.prompt_text for voice in voices.values()] == ["hello", "hi<|endofprompt|>", ""]
    assert [len(voice.speech_tokens) for voice in voices.values()] == [5, 5, 0]  # mel decides b's
    assert np.array_equal(voices["a"].mel, content["a"]["speech_feat"][0])
    for voice in voices.values():
        assert from_bytes(to_bytes(voice), "f").content_hash == voice.content_hash
        assert (voice.embedding.shape, voice.embedding.dtype) == ((192,), np.float32)


@pytest.mark.skipif(not REAL, reason="COSYSERVE_SPK2INFO names no published spk2info.pt")
def test_the_real_file() -> None:
    voices = import_spk2info(Path(REAL), None)
    assert {name: len(voice.speech_tokens) for name, voice in voices.items()} == {
        "001": 87,
        "longxiaoxia": 89,
        "xiaohe": 94,
    }


def test_ids_need_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(VoiceError, match=r"spk2info\.pt: speaker 'b': .*--model"):
        imported(tmp_path, {"b": python_api()}, None)


class Command:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch CANARY",)


def bomb() -> Any:
    value: Any = ()
    for _ in range(40):
        value = (value, value)
    return value


@pytest.mark.parametrize(
    "content",
    [
        [],
        None,
        "text",
        torch.zeros(3),
        {"a": None},
        {"a": []},
        {"a": {}},
        {"a": {"x" * 10**6: 1}},
        {"a": {3: 1}},
        {3: {"embedding": torch.ones(1, 192)}},
        {"a": bomb()},
        {"a": Command()},
        Command(),
    ],
)
def test_no_speakers(content: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(VoiceError, match=r"spk2info\.pt: ") as caught:
        imported(tmp_path, content)
    assert len(str(caught.value)) < 800
    assert os.listdir(tmp_path) == ["spk2info.pt"]


@pytest.mark.parametrize("form", [triton, python_api])
@pytest.mark.parametrize(
    ("change", "values"),
    [
        ("tokens", [None, "x", [1], torch.tensor(3), torch.ones(1, 5), torch.ones(1, 5).bool()]),
        ("tokens", [torch.full((1, 5), 2**40), torch.full((1, 5), -1), torch.ones(1, 0).int()]),
        ("tokens", [torch.ones(1).int().expand(1 << 40), torch.ones(1, 5).int().to_sparse()]),
        ("mel", [None, torch.rand(1, 10, 79), torch.rand(80), torch.rand(1, 0, 80)]),
        ("mel", [torch.full((1, 10, 80), torch.nan), torch.ones(10, 0), torch.rand(1, 80, 10)]),
        ("mel", [torch.ones(1).expand(1 << 30, 80), torch.ones(10, 80, dtype=torch.complex64)]),
        ("embedding", [None, torch.ones(1, 0), torch.tensor(1.0), torch.ones(192).int()]),
        ("embedding", [torch.full((192,), torch.inf), torch.ones(192).to("meta")]),
        ("text", [None, 3, bomb(), torch.rand(3), torch.tensor([10**6]), "\ud800"]),
    ],
)
def test_wrong_tensors_are_named(
    form: Callable[[], dict[str, Any]], change: str, values: list[Any], tmp_path: Path
) -> None:
    names = {
        triton: ("speech_token", "speech_feat", "embedding"),
        python_api: ("flow_prompt_speech_token", "prompt_speech_feat", "flow_embedding"),
    }[form]
    key = dict(zip(("tokens", "mel", "embedding", "text"), (*names, "prompt_text"), strict=True))
    for value in values:
        with pytest.raises(VoiceError, match=r"spk2info\.pt: ") as caught:
            imported(tmp_path, {"a": form() | {key[change]: value}})
        assert "'a'" in str(caught.value) or "damaged" in str(caught.value)
        assert len(str(caught.value)) < 800


def test_broken_files(tmp_path: Path) -> None:
    file = tmp_path / "spk2info.pt"
    torch.save({"a": triton()}, file)
    data = file.read_bytes()
    for junk in (
        b"",
        b"junk",
        pickle.dumps({"a": 1}),
        *(data[: len(data) * i // 9] for i in range(9)),
    ):
        file.write_bytes(junk)
        with pytest.raises(VoiceError, match=r"spk2info\.pt: "):
            import_spk2info(file, TOKENIZER)
    file.unlink()
    for place in (lambda: None, file.mkdir):
        place()
        with pytest.raises(VoiceError, match=r"spk2info\.pt: (missing|not a file)"):
            import_spk2info(file, TOKENIZER)


def test_a_trained_speaker_table(tmp_path: Path) -> None:
    """Parameters are tensors too."""
    speaker = {"embedding": torch.nn.Parameter(torch.rand(1, 192))}
    assert imported(tmp_path, {"a": speaker})["a"].speech_tokens.size == 0


def test_a_file_may_have_no_speaker(tmp_path: Path) -> None:
    """The original writes one where nobody was added."""
    assert imported(tmp_path, {}) == {}
