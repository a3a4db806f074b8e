"""The text vocabulary: a small byte-level BPE over lower-case text, in the form models load.

Lower case, because a small corpus does not show every word in both. Knows no speech.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from cosyserve.text import TextTokenizer


def train(sentences: Iterable[str], size: int, file: Path) -> TextTokenizer:
    """Writes a tokenizer.json of `size` entries beside the special tokens."""
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    bpe.train_from_iterator(sentences, trainer)
    file.parent.mkdir(parents=True, exist_ok=True)
    bpe.save(str(file))
    return TextTokenizer.from_json(file)
