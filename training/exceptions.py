"""Writes the table of words that a pronouncer reads wrong into its file.

Dictionaries say what is wrong: a word is an exception where no reading of any of them sounds as the
net's. It is said then as the first one has it.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from cosyserve.text.exceptions import Exceptions, ending
from cosyserve.text.pronouncer import Pronouncer
from training.data import read_index
from training.dictionaries import read_dictionary, sounds_alike
from training.pronounce import corpus_words

WORD = re.compile(r"[a-z]+(?:['-][a-z]+)*")
SHOWN = 20_000  # words between two lines of progress


def exceptions(readings: dict[str, list[str]], net: dict[str, str]) -> Exceptions:
    """`readings`: words as the dictionaries say them, the best first; `net`: as the net does."""
    wrong = {
        word: said[0]
        for word, said in readings.items()
        if not sounds_alike(net[word], said + _as_plural(word, readings))
    }
    stems = {word for word in wrong if word.removesuffix("'s") == word or not _follows(word, wrong)}
    table = Exceptions({word: wrong[word] for word in stems})
    # What would follow from a stem that it is no form of, as the net or a dictionary says it.
    for word, said in readings.items():
        derived = table.get(word)
        if derived is not None and not sounds_alike(derived, said):
            stems.add(word)
            wrong.setdefault(word, net[word])
    return Exceptions({word: wrong[word] for word in stems})


def _follows(word: str, wrong: dict[str, str]) -> bool:
    stem = word.removesuffix("'s")
    derived = Exceptions({stem: wrong[stem]}).get(word) if stem in wrong else None
    return derived is not None and sounds_alike(derived, [wrong[word]])


def _as_plural(word: str, readings: dict[str, list[str]]) -> list[str]:
    """As it is said if it is one: dictionaries know their stems best."""
    stem = word.removesuffix("s")
    return [said + ending(said) for said in readings.get(stem, ())] if stem != word else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pronouncer", type=Path, required=True, help="pronouncer.safetensors")
    parser.add_argument(
        "--dictionary", type=Path, nargs="+", required=True, help="the best first: JSON, .dict"
    )
    parser.add_argument("--corpus", type=Path, help="folder with index.tsv: its words are right")
    parser.add_argument("--notice", type=Path, help="text file with the dictionaries' licences")
    given = parser.parse_args()
    readings: dict[str, list[str]] = {}
    for file in given.dictionary:
        for word, said in read_dictionary(file).items():
            readings.setdefault(word, []).extend(said)
    for word, sounds in corpus_words(read_index(given.corpus)).items() if given.corpus else ():
        readings.setdefault(word, []).insert(0, sounds)
    reader = Pronouncer.load(given.pronouncer)
    marks = set("".join(reader.sounds))
    readings = {
        word: said
        for word, said in readings.items()
        if WORD.fullmatch(word) and marks.issuperset("".join(said))
    }
    bare = Pronouncer(reader.tensors, reader.sounds)
    words, net = list(readings), dict[str, str]()
    for start in range(0, len(words), SHOWN):
        some = words[start : start + SHOWN]
        parts = bare.read({part for word in some for part in word.split("-")})
        net |= {word: "".join(parts[part] for part in word.split("-")) for word in some}
        print(f"{len(net)} of {len(words)} words", flush=True)
    notice = given.notice.read_text("utf-8") if given.notice else ""
    table = exceptions(readings, net)
    Pronouncer(reader.tensors, reader.sounds, table, notice).save(given.pronouncer)
    print(f"{len(table)} exceptions, {len(table.packed())} bytes")


if __name__ == "__main__":
    main()
