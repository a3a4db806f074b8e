import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.errors import CheckpointError, InputError
from cosyserve.text import SPECIAL_TOKENS, TextTokenizer, byte_tokenizer

BYTES = byte_tokenizer()
PLAIN = st.text().filter(lambda t: not any(s in t for s in SPECIAL_TOKENS))


@given(PLAIN)
def test_bytes_come_back(text: str) -> None:
    composed = unicodedata.normalize("NFC", text)
    assert BYTES.encode(text) == list(composed.encode())
    assert BYTES.decode(BYTES.encode(text)) == composed


def test_special_tokens_follow_the_vocabulary() -> None:
    ids = [BYTES.encode(token) for token in SPECIAL_TOKENS]
    assert ids == [[256 + n] for n in range(20)]
    assert BYTES.vocab_size == 276
    mixed = BYTES.encode("a[laughter]b")
    assert mixed == [97, 264, 98]
    assert BYTES.decode(mixed) == "ab"
    assert BYTES.decode(mixed, skip_special=False) == "a[laughter]b"


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(InputError):
        BYTES.encode("\ud800")


def test_vocabulary_and_merges(small: TextTokenizer, tmp_path: Path) -> None:
    text = "hello world, 你好<|endofprompt|>it's"
    ids = small.encode(text)
    assert len(ids) < len(text.encode())
    assert small.decode(ids, skip_special=False) == text
    assert small.length(text) == len(ids)
    small.save(tmp_path / "tokenizer.json")
    again = TextTokenizer.from_json(tmp_path / "tokenizer.json")
    assert again.encode(text) == ids
    assert again.vocab_size == small.vocab_size


@pytest.mark.parametrize(
    "content", ["", '{"a": 0', "[]", '{"a": "b"}', '{"a": 7}', '{"a": 0}', "[" * 99999]
)
def test_a_broken_file_is_named(content: str, tmp_path: Path) -> None:
    path = tmp_path / "vocab.json"
    path.write_text(content)
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    with pytest.raises(CheckpointError, match=r"vocab\.json"):
        TextTokenizer.from_vocabulary(path, tmp_path / "merges.txt")
    with pytest.raises(CheckpointError, match=r"vocab\.json"):
        TextTokenizer.from_json(path)


@pytest.mark.parametrize("line", ["abc", "a b c", "你 好", "zz qq"])
def test_merges_must_fit(line: str, small_files: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "merges.txt").write_text(line)
    with pytest.raises(CheckpointError, match=r"merges\.txt"):
        TextTokenizer.from_vocabulary(small_files[0], tmp_path / "merges.txt")


def test_special_tokens_with_other_ids_are_refused(tmp_path: Path) -> None:
    BYTES.save(tmp_path / "good.json")
    tokens = json.loads((tmp_path / "good.json").read_text())
    tokens["added_tokens"][0]["content"] = "<|other|>"
    (tmp_path / "bad.json").write_text(json.dumps(tokens))
    with pytest.raises(CheckpointError, match="endoftext"):
        TextTokenizer.from_json(tmp_path / "bad.json")


def test_missing_and_huge_files(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"none\.json"):
        TextTokenizer.from_json(tmp_path / "none.json")
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(CheckpointError, match="too large"):
        TextTokenizer.from_json(tmp_path / "huge.json")


def test_qwen2_ids(qwen2: TextTokenizer) -> None:
    assert qwen2.vocab_size == 151663
    assert qwen2.encode("<|endoftext|>[mn]") == [151643, 151662]
    assert qwen2.encode("你好，世界！") == [56568, 52801, 3837, 99244, 97120, 6313]
