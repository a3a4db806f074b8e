"""Numbers as people write them, drawn at random, and the grammars' readings to compare with.

`python -m tests.text.number_rules.corpus 2000 1` compares so many of every kind, drawn by a seed;
a file's name behind it keeps what the grammars say, as `readings.json` is kept for the tests.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

from cosyserve.text.fixes import ALL_FIXES
from cosyserve.text.language import Language
from cosyserve.text.number_rules.chinese import read_chinese
from cosyserve.text.number_rules.english import read_english
from cosyserve.text.numbers import read_numbers
from cosyserve.text.rewrites.numbers import rewrite_words

Kind = Callable[["Draw"], str]

_UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MONTHS = (
    "Jan|January|Feb.|February|Mar|March|Apr.|April|May|Jun|June|Jul|July|Aug|August|Sep|Sept.|"
    "September|Oct|October|Nov.|November|Dec|December"
)
_ENGLISH_UNITS = (
    "%|°|°C|°F|km|cm|mm|kg|mg|lb|lbs|oz|ft|mph|min|ms|ns|Hz|GHz|MHz|KB|MB|GB|TB|PB|m²|km²|cm²|m³|"
    "ha|yd|mi|ml|hp|kW|MW|GW|rpm|kbps|Mbps"
)
_CHINESE_UNITS = (
    "万|个|人|亿|件|位|元|克|分|千|只|号|名|吨|周|回|场|块|多|天|头|套|家|对|层|岁|度|座|张|把|斤|日|时|月|"
    "本|条|杯|根|段|毫|片|瓶|百|盒|碗|秒|米|粒|群|袋|课|趟|辆|里|钟|队|集|面|页|颗|首|两|余|几|年|年前|年之后|"
    "年内|年来|公里|小时|平方|立方|摄氏度|赛季|℃|°|km|cm|mm|m|kg|mg|ml|h|min|s|gb|点|章|次|到"
)
_MARKS = "，、：“”‘’（）《》【】…()!?;\"'.,:/-+=~"
_HAN = (
    "我们今天去了的好大小是在有和会这那里说看吃买共第每到达一二三十百万年月日人均约号尾为周星期点章次名位元美"
    "方米公前后来多余上下午晚早湖海中国队赛分角毛"
)
_NEIGHBOURS = "午晨晚早夜在于至从号天间要有为共需是每了的第过近超等用，、：（("
_LATIN = ("iPhone ", "A", "B", "GPT", "USD", "USD ", "CO", "v", "x", "GB ", " ", "the ", "(", "“")
_ENDINGS = ("", "G", "K", " Pro", "D", "kg", " girls", ")", "”", "!", "A", "PM", " PM", "后")


class Draw(Random):
    """Parts of numbers."""

    def one(self, names: str) -> str:
        return self.choice(names.split("|"))

    def digits(self, count: int) -> str:
        """No leading zero; many zeros and twos, which have readings of their own."""
        rest = (self.choice("0123456789" + "02" * 4) for _ in range(count - 1))
        return self.choice("123456789") + "".join(rest)

    def integer(self, longest: int = 15) -> str:
        return self.digits(self.choice((1, 2, 3, 4, self.randint(1, longest))))

    def number(self, longest: int = 15) -> str:
        integer = self.choice(("0", self.integer(longest), self.integer(longest)))
        return integer + self.choice(("", "." + f"{self.randint(0, 9999)}"[: self.randint(1, 4)]))

    def grouped(self) -> str:
        return f"{int(self.integer()):,}"

    def english(self) -> str:
        return self.choice((self.number(), self.grouped()))

    def upper(self, most: int) -> str:
        return "".join(self.choice(_UPPER) for _ in range(self.randint(1, most)))

    def han(self, most: int = 4) -> str:
        return "".join(self.choice(_HAN) for _ in range(self.randint(0, most)))

    def any_han(self) -> str:
        return "".join(chr(self.randint(0x4E00, 0x9FFF)) for _ in range(self.randint(0, 3)))

    def clock(self) -> str:
        hour = self.choice(("%d", "%02d")) % self.randint(0, 25)
        return f"{hour}:{self.randint(0, 61):02d}"

    def iso_date(self, mark: str) -> str:
        month, day = self.randint(0, 13), self.randint(0, 32)
        return f"{self.randint(900, 3100)}{mark}{month:02d}{mark}{day:02d}"

    def day(self) -> str:
        return f"{self.randint(1, 32)}" + self.choice(("", "", "st", "nd", "rd", "th"))

    def year_after(self) -> str:
        return self.choice(("", f", {self.randint(900, 3100)}", f" {self.randint(1000, 2100)}"))


def _ordinal(draw: Draw) -> str:
    number = draw.choice((draw.integer(), draw.grouped()))
    right = {"1": "st", "2": "nd", "3": "rd"}.get(number[-1], "th")
    return number + draw.choice(("th" if number[-2:-1] == "1" else right, "th", "st"))


def _phone(draw: Draw) -> str:
    area = draw.choice((f"{draw.randint(0, 999):03d}", "800", "900"))
    rest = f"{draw.randint(0, 999):03d}-{draw.randint(0, 9999):04d}"
    return draw.choice((f"({area}) {rest}", f"({area}){rest}", f"{area}-{rest}"))


ENGLISH: dict[str, Kind] = {
    "integer": lambda d: d.choice((d.integer(), d.grouped(), f"{d.randint(1000, 3100)}")),
    "digits": lambda d: d.digits(d.randint(14, 24)),
    "zeros": lambda d: "0" * d.randint(1, 3) + d.integer(6),
    "decimal": lambda d: d.choice(("", "", "+", "-")) + d.english(),
    "unit": lambda d: (
        d.choice(("", "", "-")) + d.english() + d.choice(("", " ")) + d.one(_ENGLISH_UNITS)
    ),
    "price": lambda d: d.choice("$£€¥") + d.english() + d.choice(("", "", " million", " billion")),
    "large": lambda d: d.number(4) + d.choice((" million", " billion", " trillion")),
    "ordinal": _ordinal,
    "time": lambda d: (
        d.choice((d.clock(), f"{d.randint(0, 25)}"))
        + d.choice(("", " am", "am", " PM", "pm", " a.m.", " p.m."))
    ),
    "seconds": lambda d: f"{d.clock()}:{d.randint(0, 61):02d}",
    "phone": _phone,
    "range": lambda d: f"{d.english()}-{d.english()}",
    "fraction": lambda d: (
        d.choice(("", d.integer(3) + " ")) + f"{d.integer(3)}/{d.choice((d.integer(3), '2', '4'))}"
    ),
    "iso date": lambda d: d.iso_date("-"),
    "slashed date": lambda d: f"{d.randint(0, 13)}/{d.randint(0, 32)}/{d.randint(900, 3100)}",
    "month first": lambda d: f"{d.one(_MONTHS)} {d.day()}{d.year_after()}",
    "month": lambda d: f"{d.one(_MONTHS)} {d.randint(900, 3100)}",
    "day first": lambda d: f"{d.day()} {d.one(_MONTHS).rstrip('.')}{d.year_after()}",
    "decade": lambda d: d.choice(("", "'")) + f"{d.randint(1, 9)}0s",
    "name": lambda d: d.choice((d.upper(4), "")) + d.integer(3) + d.choice(("", d.upper(1))),
    "sign": lambda d: d.choice((f"#{d.english()}", f"{d.integer(4)}x")),
}
CHINESE: dict[str, Kind] = {
    "bare": lambda d: d.han() + d.choice(("", "0", "00")) + d.digits(d.randint(1, 30)) + d.han(),
    "unit": lambda d: (
        d.han() + d.number(9) + d.choice(("", "", " ")) + d.one(_CHINESE_UNITS) + d.han()
    ),
    "decimal": lambda d: d.number(6) + d.choice(("", "%")) + d.han(),
    "price": lambda d: d.choice(("￥", "¥", "$", "€", "£", "￥ ")) + d.number(9) + d.han(),
    "date": lambda d: (
        f"{d.integer(5)}年{d.randint(1, 13)}月{d.randint(1, 32)}{d.choice('日号')}{d.han()}"
    ),
    "iso date": lambda d: (
        d.choice(("", d.choice(_NEIGHBOURS), d.han())) + d.iso_date(d.choice("-/")) + d.han()
    ),
    "time": lambda d: d.choice(("", d.choice(_NEIGHBOURS), d.han())) + d.clock() + d.han(),
    "range": lambda d: (
        d.choice(("", d.choice(_NEIGHBOURS), d.han()))
        + f"{d.integer(9)}{d.choice('-~')}{d.number(9)}{d.one(_CHINESE_UNITS + '|%||')}"
    ),
    "several": lambda d: "".join(
        d.han() + d.number(9) + d.one(_CHINESE_UNITS + "|%||") for _ in range(3)
    ),
    "any han": lambda d: d.any_han() + d.number(6) + d.any_han() + d.integer(6) + d.any_han(),
    "latin": lambda d: d.han() + d.choice(_LATIN) + d.number(5) + d.choice(_ENDINGS) + d.han(),
    "marks": lambda d: (
        d.han() + d.choice(_MARKS) + d.number(4) + d.choice(_MARKS) + d.han() + d.number(4)
    ),
}


KINDS = {Language.ENGLISH: ENGLISH, Language.CHINESE: CHINESE}
RULES = {Language.ENGLISH: read_english, Language.CHINESE: read_chinese}


def drawn(kind: str, language: Language, count: int, seed: int) -> list[str]:
    """Those of so many draws that the rules read."""
    draw = Draw(f"{seed} {kind}")
    written = [KINDS[language][kind](draw) for _ in range(count)]
    return [text for text in written if RULES[language](text) is not None]


def grammar(written: str, language: Language) -> str:
    return rewrite_words(read_numbers(written, language), language, ALL_FIXES)


def differences(readings: dict[str, str], language: Language) -> list[str]:
    """Where the rules read another thing."""
    return [
        f"{written}: {words!r}, but {expected!r}"
        for written, expected in readings.items()
        if (words := RULES[language](written)) != expected
    ]


if __name__ == "__main__":
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    kept: dict[str, dict[str, dict[str, str]]] = {}
    for language in KINDS:
        for kind in KINDS[language]:
            texts = drawn(kind, language, count, seed)
            readings = {text: grammar(text, language) for text in texts}
            kept.setdefault(language, {})[kind] = readings
            wrong = differences(readings, language)
            said = f"{language} {kind}: {len(texts)} of {count} read, {len(wrong)} wrong"
            print(said, *wrong[:5], sep="\n  ")
    if len(sys.argv) > 3:
        Path(sys.argv[3]).write_text(json.dumps(kept, ensure_ascii=False, indent=0), "utf-8")
