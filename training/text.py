"""The text vocabulary: one entry per phoneme mark, in the form models load. Knows no speech."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models


def write(sentences: Iterable[str], most: int, file: Path) -> None:
    """Writes a tokenizer.json for phonemes as they stand in `sentences`."""
    marks = sorted({mark for sentence in sentences for mark in sentence})
    if len(marks) > most:
        raise ValueError(f"{len(marks)} phoneme marks, the LM has room for {most}")
    bpe = Tokenizer(models.BPE({mark: i for i, mark in enumerate(marks)}, []))
    bpe.decoder = decoders.Fuse()
    file.parent.mkdir(parents=True, exist_ok=True)
    bpe.save(str(file))
