import os
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from cosyserve.text import TextTokenizer
from cosyserve.text.tokens.byte_level import BYTE_NAMES

QWEN2 = "COSYSERVE_QWEN2_TOKENIZER"  # names a folder outside of the repository


@pytest.fixture(scope="session")
def qwen2() -> TextTokenizer:
    if QWEN2 not in os.environ:
        pytest.skip(f"set {QWEN2} to a folder with Qwen2's vocab.json and merges.txt")
    folder = Path(os.environ[QWEN2])
    return TextTokenizer.from_vocabulary(folder / "vocab.json", folder / "merges.txt")


@pytest.fixture(scope="session")
def small_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """vocab.json and merges.txt of a BPE trained here, with merges over Chinese characters."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    corpus = [
        "hello world, it's the café's weather; don't you think so?",
        "你好世界，你好天气。",
    ] * 9
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=BYTE_NAMES, show_progress=False)
    bpe.train_from_iterator(corpus, trainer)
    vocab, merges = bpe.model.save(str(tmp_path_factory.mktemp("bpe")))
    return Path(vocab), Path(merges)


@pytest.fixture(scope="session")
def small(small_files: tuple[Path, Path]) -> TextTokenizer:
    return TextTokenizer.from_vocabulary(*small_files)
