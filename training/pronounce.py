"""Sentences with their pronunciation, for the LM to learn spelling from: no recording needed.

Words sound as the corpus says them, else as a pronunciation dictionary (JSON, word to phonemes)
does. Knows no speech token.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from training.data import STRESS, read_index

AMERICAN = "a"  # first letter of the voices whose phonemes the dictionary shares
EDGES = '.,!?;:"“”()—…'
PLAIN = re.compile(r"[A-Za-z' ,.?!;:-]+")


def corpus_words(rows: Iterable[dict[str, str]]) -> dict[str, str]:
    """How the corpus most often pronounces each word."""
    heard: dict[str, Counter[str]] = {}
    for row in rows:
        words, sounds = row["text"].split(), row["phonemes"].split()
        if row["voice"].startswith(AMERICAN) and len(words) == len(sounds):
            for word, sound in zip(words, sounds, strict=True):
                key = word.strip(EDGES).lower()
                heard.setdefault(key, Counter())[sound.strip(EDGES)] += 1
    return {word: sounds.most_common(1)[0][0] for word, sounds in heard.items()}


def dictionary_words(file: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for word, sound in json.loads(file.read_text("utf-8")).items():
        sound = sound.get("DEFAULT") if isinstance(sound, dict) else sound
        if sound and word.isalpha() and word.isascii():
            found.setdefault(word.lower(), sound.replace("ɾ", "T").replace("ʔ", "t"))
    return found


def pronounced(text: str, words: dict[str, str]) -> str | None:
    """Phonemes with the text's punctuation; None where a word is not known."""
    said = []
    for word in text.replace("-", " ").split():
        bare = word.strip(EDGES)
        if (sound := words.get(bare.lower())) is None:
            return None
        said.append(sound + "".join(m for m in word[len(bare) :] if m in ",.!?;:"))
    return " ".join(said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--dictionary", type=Path, nargs="*", default=[])
    parser.add_argument("--sentences", type=Path, help="text file, one sentence a line")
    parser.add_argument("--without", type=Path, help="sentences kept for tests, one a line")
    parser.add_argument("--count", type=int, default=30_000)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    rows = read_index(given.corpus)
    words: dict[str, str] = {}
    for file in given.dictionary:
        words = dictionary_words(file) | words
    rare = sorted(words)
    words |= corpus_words(rows)
    marks = {m for r in rows if r["voice"].startswith(AMERICAN) for m in r["phonemes"]}
    allowed = marks | set(STRESS)
    random.seed(0)
    texts = given.sentences.read_text("utf-8").splitlines() if given.sentences else []
    texts = [text for text in texts if len(text) < 110 and PLAIN.fullmatch(text)]
    random.shuffle(texts)
    kept = set(given.without.read_text("utf-8").splitlines()) if given.without else set()
    invented = (" ".join(random.choices(rare, k=random.randint(2, 7))) + "." for _ in texts)
    found: list[tuple[str, str]] = []
    for source in ([t for t in texts if t not in kept], invented):
        enough = len(found) + given.count // 2
        for text in source:
            sound = pronounced(text, words)
            if sound and set(sound) <= allowed:
                found.append((text, sound))
            if len(found) >= enough:
                break
    given.out.write_text(json.dumps(found, ensure_ascii=False), "utf-8")
    print(f"{len(found)} sentences, {len(words)} words known")


if __name__ == "__main__":
    main()
