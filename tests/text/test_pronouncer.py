"""The pronouncer with random weights: what it reads, what it leaves out, how it is kept."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models

from cosyserve.errors import CheckpointError
from cosyserve.text import Pronouncer, TextTokenizer, pronouncer
from cosyserve.text.exceptions import Exceptions
from cosyserve.text.pronouncer import EXCEPTIONS, LETTERS, SOUNDS_PER_LETTER
from cosyserve.text.tokens.piece_tokenizer import PieceTokenizer

SOUNDS = ["", "p", "t", "ˈɑ", "i"]
MARKS = "ptˈɑi ,.!?;:"


def random_pronouncer(width: int = 8, blocks: int = 2) -> Pronouncer:
    draw = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return draw.normal(size=shape).astype(np.float32)

    tensors = {"letters.weight": weights(len(LETTERS), width)}
    for i in range(blocks):
        name = f"blocks.{i}."
        tensors |= {
            name + "norm.weight": np.ones(width, np.float32),
            name + "norm.bias": np.zeros(width, np.float32),
            name + "conv.weight": weights(width, width, 5),
            name + "conv.bias": weights(width),
            name + "out.weight": weights(width, width),
            name + "out.bias": weights(width),
        }
    tensors |= {
        "norm.weight": np.ones(width, np.float32),
        "norm.bias": np.zeros(width, np.float32),
        "head.weight": weights(SOUNDS_PER_LETTER * len(SOUNDS), width),
        "head.bias": weights(SOUNDS_PER_LETTER * len(SOUNDS)),
    }
    return Pronouncer(tensors, SOUNDS)


@pytest.fixture(scope="module")
def reader() -> Pronouncer:
    return random_pronouncer()


@pytest.fixture(scope="module")
def tokenizer(reader: Pronouncer) -> TextTokenizer:
    vocabulary = {mark: i for i, mark in enumerate(MARKS)}
    return TextTokenizer(Tokenizer(models.BPE(vocabulary, [])), "test", reader)


def test_words_pauses_and_special_tokens(reader: Pronouncer) -> None:
    hello, you = reader("hello"), reader("you")
    assert hello
    assert reader("Hello,  you!") == f"{hello}, {you}!"
    assert reader("hello-you") == f"{hello} {you}"
    assert reader("hello… you — you") == f"{hello}. {you}, {you}"
    assert reader("hello [breath]you<|endofprompt|>") == f"{hello} [breath]{you}<|endofprompt|>"


def test_sounds_are_taken_as_they_are(reader: Pronouncer) -> None:
    hello = reader("hello")
    assert reader("hello [HH][AH0][L][OW1], [W][ER1][L][D][ER0]") == f"{hello} həlˈO, wˈɜɹldəɹ"
    assert reader("[AA2][ZH][B]") == "ˌɑʒb"


def test_accents_and_curly_apostrophes_are_read_plain(reader: Pronouncer) -> None:
    assert reader("Café’s") == reader("Cafe's")


def test_abbreviations_without_vowels_are_spelled(reader: Pronouncer) -> None:
    assert reader("'BBC'") == reader("b b c")
    assert reader("NASA") == reader("nasa")


def test_exceptions_are_said_as_the_table_has_them(reader: Pronouncer, tmp_path: Path) -> None:
    table = Exceptions({"mateo": "tɑti", "wi-fi": "pɑpi"})
    knowing = Pronouncer(reader.tensors, SOUNDS, table, "whose words these are")
    knowing.save(tmp_path / "p.safetensors")
    again = Pronouncer.load(tmp_path / "p.safetensors")
    assert (len(again.exceptions), again.notice) == (2, "whose words these are")
    hello = again("hello")
    assert again("Hello, MATEO's Wi-Fi!") == f"{hello}, tɑtiz pɑpi!"
    assert again("hello-mateo") == f"{hello} tɑti"


def test_a_table_that_is_none_is_named(reader: Pronouncer, tmp_path: Path) -> None:
    file = tmp_path / "p.safetensors"
    reader.save(file)
    table = {EXCEPTIONS: np.zeros(9, np.uint8)}
    save_file(load_file(file) | table, file, {"sounds": " ".join(SOUNDS[1:])})
    with pytest.raises(CheckpointError, match="table of exceptions"):
        Pronouncer.load(file)


def test_what_is_no_english_is_left_out(reader: Pronouncer, tokenizer: TextTokenizer) -> None:
    assert reader("你好 мир 123") == ""
    assert tokenizer.encode("你好") == []


@settings(deadline=None)
@given(text=st.text(max_size=60))
def test_any_text_can_be_read(text: str) -> None:
    phonemes = random_pronouncer()(text)
    assert "  " not in phonemes


# fmt: off
TEXT = st.lists(
    st.sampled_from([
        "hello", " ", "  ", ",", " .", "don't", "hello-you", "[breath]", "é", "你", "-", "\n", "?!",
        "Dr. ", "U.S. ", "US ", "Wu", "I AM", "etc.", "W. ", "'BBC'", "\xa8", "\u0301", "\xa0",
    ]),
    max_size=12,
).map("".join)
# fmt: on


@settings(deadline=None)
@given(TEXT)
def test_ids_tell_whether_there_is_a_sound(
    reader: Pronouncer, tokenizer: TextTokenizer, text: str
) -> None:
    assert tokenizer.speaks(tokenizer.encode(text)) == bool(set(reader(text)) - set(",.!?;: "))


@settings(deadline=None)
@given(TEXT, st.integers(0, 9))
def test_pieces_give_the_ids_of_the_whole(tokenizer: TextTokenizer, text: str, seed: int) -> None:
    pieces, draw, ids, at = PieceTokenizer(tokenizer), random.Random(seed), [], 0
    while at < len(text):
        step = draw.randint(1, 4)
        ids += pieces.push(text[at : at + step])
        at += step
    assert ids + pieces.flush() == tokenizer.encode(text)


@settings(deadline=None)
@given(TEXT)
def test_words_are_counted_as_the_whole(tokenizer: TextTokenizer, text: str) -> None:
    assert tokenizer.length(text) == len(tokenizer.encode(text))


def test_counts_are_not_kept_for_ever(
    tokenizer: TextTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cosyserve.text.tokens.tokenizer.KEPT_LENGTHS", 3)
    for text in ("one two three", "four five", "one six"):
        assert tokenizer.length(text) == len(tokenizer.encode(text))
        assert len(tokenizer._lengths) <= 3


def test_a_very_long_word_is_read_in_part(reader: Pronouncer) -> None:
    assert reader("a" * 10_000) == reader("a" * 64)


def test_kept_in_eight_bits(reader: Pronouncer, tmp_path: Path) -> None:
    reader.save(tmp_path / "p.safetensors")
    again = Pronouncer.load(tmp_path / "p.safetensors")
    assert again.sounds == reader.sounds
    assert again.tensors.keys() == reader.tensors.keys()
    for key, value in reader.tensors.items():
        step = np.abs(value.reshape(len(value), -1)).max(1).max() / 127
        assert np.allclose(again.tensors[key], value, atol=0.51 * step)


def test_half_precision_is_read_too(reader: Pronouncer, tmp_path: Path) -> None:
    half = {key: value.astype(np.float16) for key, value in reader.tensors.items()}
    save_file(half, tmp_path / "p.safetensors", {"sounds": " ".join(SOUNDS[1:])})
    again = Pronouncer.load(tmp_path / "p.safetensors")
    assert again("hello you") == reader("hello you")


def test_eight_bits_without_their_scales_are_refused(reader: Pronouncer, tmp_path: Path) -> None:
    file, sounds = tmp_path / "p.safetensors", {"sounds": " ".join(SOUNDS[1:])}
    reader.save(file)
    whole = load_file(file)
    scale = "blocks.1.conv.weight.scale"
    missing = {key: value for key, value in whole.items() if key != scale}
    for broken in (missing, whole | {scale: whole[scale][:1]}):
        save_file(broken, file, sounds)
        with pytest.raises(
            CheckpointError, match=r"p\.safetensors: .*'blocks\.1\.conv\.weight' is int8"
        ):
            Pronouncer.load(file)


def test_a_broken_file_is_named(reader: Pronouncer, tmp_path: Path) -> None:
    file = tmp_path / "p.safetensors"
    with pytest.raises(CheckpointError, match=r"p\.safetensors"):
        Pronouncer.load(file)
    file.write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match="not the weights of a pronouncer"):
        Pronouncer.load(file)
    fewer = Pronouncer({k: v for k, v in reader.tensors.items() if k != "norm.bias"}, SOUNDS)
    fewer.save(file)
    with pytest.raises(CheckpointError, match="not the weights of a pronouncer"):
        Pronouncer.load(file)


WORDS = st.lists(st.text("abcdefghijklmnopqrstuvwxyz'", min_size=1, max_size=70), max_size=40)


@settings(deadline=None, max_examples=30)
@given(WORDS)
def test_a_word_sounds_the_same_in_any_company(words: list[str]) -> None:
    reader = random_pronouncer()
    together = reader.read(words)
    assert together == {word: random_pronouncer().read([word])[word] for word in words}


def test_words_that_were_not_used_for_long_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pronouncer, "CACHED_WORDS", 3)
    reader = random_pronouncer()
    for text in ("one two three", "one", "four five"):
        reader(text)
    assert set(reader._known) == {"one", "four", "five"}
