"""Dictionaries in our phonemes, and which of their words become exceptions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from training.dictionaries import of_arpabet, read_dictionary, sounds_alike
from training.exceptions import exceptions


@pytest.mark.parametrize(
    ("arpabet", "phonemes"),
    [
        ("HH AH0 L OW1", "həlˈO"),
        ("M AA0 T EY1 OW0", "mɑtˈAO"),
        ("B EH1 T ER0", "bˈɛTəɹ"),
        ("B AH1 T AH0 N", "bˈʌTᵊn"),
        ("L IH1 T AH0 L", "lˈɪTᵊl"),
        ("B AE1 R AH0 L", "bˈæɹəl"),
        ("W AY1 F AY2", "wˈIfˌI"),
    ],
)
def test_arpabet_in_our_phonemes(arpabet: str, phonemes: str) -> None:
    assert of_arpabet(arpabet.split()) == phonemes


def test_both_kinds_of_dictionaries_are_read(tmp_path: Path) -> None:
    misaki, cmu = tmp_path / "us.json", tmp_path / "cmu.dict"
    read = {"DEFAULT": "ɹˈid", "VBD": "ɹˈɛd"}
    misaki.write_text(json.dumps({"Read": read, "NASA": "x", "no": None, "a": "ˈA"}), "utf-8")
    cmu.write_text("mateo M AA0 T EY1 OW0 # name\nread R EH1 D\nread(2) R IY1 D\n", "utf-8")
    assert read_dictionary(misaki) == {"read": ["ɹˈid", "ɹˈid", "ɹˈɛd"], "a": ["ˈA", "ˈA"]}
    assert read_dictionary(cmu) == {"mateo": ["mɑtˈAO"], "read": ["ɹˈɛd", "ɹˈid"]}


def test_readings_that_few_people_tell_apart() -> None:
    assert sounds_alike("bˈʌTᵊn", ["bˈʌtən"])
    assert sounds_alike("dəlˈisi", ["x", "dɛlˈisi"])
    for other in ("səmˈOni", "sˈɪmOn", "sɪmˈɑn", "sɪmˈO"):
        assert not sounds_alike(other, ["sɪmˈOn"])


def test_what_the_net_reads_wrong_is_an_exception() -> None:
    readings = {
        "mateo": ["mɑtˈAO"],
        "mateo's": ["mɑtˈAOz"],
        "see": ["sˈi"],
        "read": ["ɹˈid", "ɹˈɛd"],
    }
    readings |= {"bas": ["bˈɑ"], "ba": ["bˈi"], "bass": ["bˈAs"]}
    readings |= {"meme": ["mˈim"], "memes": ["mˈɛmz"]}
    net = {"mateo": "mˈATiˌO", "mateo's": "mˈATiˌOz", "see": "sˈi", "read": "ɹˈɛd"}
    net |= {"bas": "bˈɑ", "ba": "bˈæ", "bass": "bˈAs", "meme": "mˈim", "memes": "mˈimz"}
    table = exceptions(readings, net)
    assert {word for word in readings if table._line(word)} == {"mateo", "ba", "bas"}
    assert table.get("mateo's") == "mɑtˈAOz"
    assert table.get("bas") == "bˈɑ"  # no plural of ba
